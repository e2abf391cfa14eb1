"""Public names that are no more, and what is in their place."""

# The rest of a sentence that begins with the name.
FORMER_NAMES = {
    "Cached": "was removed; wrap a network in Dynamic, and of counts fit NGram(adaptive=True), which gain more",
    "PPM": "was removed; fit ContextMixing, ContextTree or NGram(adaptive=True), which learn while they read as well",
}
