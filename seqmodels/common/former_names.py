"""Public names that are no more, and what is in their place."""

_POWER_LAWS = "was removed; scipy.optimize.curve_fit fits c + a n^-b to scores, numpy.polyfit on logarithms a n^-b"

# The rest of a sentence that begins with the name.
FORMER_NAMES = {
    "Cached": "was removed; wrap a network in Dynamic, and of counts fit NGram(adaptive=True), which gain more",
    "PPM": "was removed; fit ContextMixing, ContextTree or NGram(adaptive=True), which learn while they read as well",
    "PowerLaw": _POWER_LAWS,
    "fit_power_law": _POWER_LAWS,
    "plot_power_laws": _POWER_LAWS,
    "power_laws": _POWER_LAWS,
}
