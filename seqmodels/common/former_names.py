"""Names of classes that were removed, with what replaces each, for errors about old files or code."""

LAST_TO_READ = "0.1"  # the last version that read files of these classes

# The rest of a sentence that begins with the name.
FORMER_NAMES = {
    "Cached": "was removed; wrap a network in Dynamic, and of counts fit NGram(adaptive=True), which gain more",
    "LatentOffset": "was removed; encoding=encodings.RunningScale(40) follows the level and scale of each sequence",
    "OnlineEM": "was removed; encoding=encodings.RunningScale(40) follows vectors, and ContextTree, ContextMixing and "
    "NGram(adaptive=True) learn symbols and text while they read",
    "LinearGaussianModel": "was removed; make LinearGaussian.from_parameters of its matrices, as adapt.from_pyro does",
    "PPM": "was removed; fit ContextMixing, ContextTree or NGram(adaptive=True), which learn while they read as well",
}
