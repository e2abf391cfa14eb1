"""Former public names: those that were removed, with what is in their place, and those that moved into a package."""

_POWER_LAWS = "was removed; scipy.optimize.curve_fit fits c + a n^-b to scores, numpy.polyfit on logarithms a n^-b"

# Names that were removed, and the rest of a sentence that begins with the name.
FORMER_NAMES = {
    "Cached": "was removed; wrap a network in Dynamic, and of counts fit NGram(adaptive=True), which gain more",
    "LinearGaussianModel": "was removed; make LinearGaussian.from_parameters of its matrices, as adapt.from_pyro does",
    "PPM": "was removed; fit ContextMixing, ContextTree or NGram(adaptive=True), which learn while they read as well",
    "PowerLaw": _POWER_LAWS,
    "fit_power_law": _POWER_LAWS,
    "plot_power_laws": _POWER_LAWS,
    "power_laws": _POWER_LAWS,
}

# Names that stood in ``seqmodels`` itself, and where in it each is now. Saved files have names of classes alone.
MOVED_NAMES = {
    "Encoding": "encodings.Encoding",
    "OpenSymbols": "encodings.OpenSymbols",
    "Audit": "evaluation.Audit",
    "Backtest": "evaluation.Backtest",
    "CodeLength": "evaluation.CodeLength",
    "CodeLengths": "evaluation.CodeLengths",
    "Comparison": "evaluation.Comparison",
    "ModelSelection": "evaluation.ModelSelection",
    "prequential_code_lengths": "evaluation.prequential_code_lengths",
    "window_loss": "evaluation.window_loss",
    "Forecast": "generation.Forecast",
    "Arcs": "hmm.Arcs",
    "Banded": "hmm.Banded",
    "Frozen": "hmm.Frozen",
    "Pseudocounts": "hmm.Pseudocounts",
    "Series": "hmm.Series",
    "Topology": "hmm.Topology",
    "CausalModel": "neural.CausalModel",
    "Cell": "neural.Cell",
    "Recurrent": "neural.Recurrent",
    "from_huggingface": "neural.from_huggingface",
    "from_module": "neural.from_module",
    "to_huggingface": "neural.to_huggingface",
    "Observation": "observations.Observation",
    "OneOf": "observations.OneOf",
    "PseudoFrames": "observations.PseudoFrames",
    "plot_alignment": "plot.alignment",
    "plot_confusion": "plot.confusion",
    "plot_durations": "plot.durations",
    "plot_forecast": "plot.forecast",
    "plot_frames": "plot.frames",
    "plot_posterior": "plot.posterior",
    "plot_states": "plot.states",
    "plot_transitions": "plot.transitions",
    "AdamW": "training.AdamW",
    "Cosine": "training.Cosine",
    "Muon": "training.Muon",
    "Perturbation": "training.Perturbation",
    "TensorBoard": "training.TensorBoard",
    "Trapezoid": "training.Trapezoid",
}
