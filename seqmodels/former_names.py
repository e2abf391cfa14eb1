"""Public names that are no more, and what is in their place."""

# The rest of a sentence that begins with the name.
FORMER_NAMES = {
    "PPM": "was removed; fit ContextMixing, ContextTree or NGram(adaptive=True), which learn while they read as well",
}
