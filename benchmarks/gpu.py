"""Every figure of a GPU, by one command: ``python benchmarks/gpu.py --text FILE --pairs FOLDER`` (``make gpu``).

On a machine with torch for its GPU; neither the internet nor Pyro is needed. Parts come in the order of what they are
worth, each in a process of its own. A row is written as soon as it is measured, with the device named and the goal
beside the figure: to ``benchmarks/results/gpu/PART.unfinished.csv``, which is ``PART.csv`` once the part is whole. The
next call goes on with what is not measured yet on this device; delete a file to measure it again. It ends within
``--minutes``, 40 unless it is said (9 for a machine that is lent in short commands): what would take longer is left for
the next call. What is missing (a package) is named, and the others run; without ``--text`` and ``--pairs`` the speed is
measured on made-up data of the same shape, named as such. ``--device cpu --tiny`` runs every part in its smallest size,
to see that it runs. At the end stands a table of all that was measured so far.
"""

from __future__ import annotations

import argparse
import csv
import gc
import gzip
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workloads import Mixture, Workload, make

from seqmodels import (
    BPE,
    GRU,
    HMM,
    LSTM,
    AutoregressiveGaussian,
    GaussianMixture,
    NGram,
    Transformer,
    TransformerSeq2Seq,
    presets,
)
from seqmodels.evaluation.comparison.provenance import provenance
from seqmodels.generation.sampling import sample_steps
from seqmodels.inference.chains.forward_backward import forward_backward
from seqmodels.neural.untrained import untrained

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/gpu"
OVERTIME = 1.5  # times the minutes of its measurements that a part may take
LEAST_SECONDS = 45  # in which a process can begin, and measure something
NO_TESTS = 5  # pytest's exit status where all were left out, as without triton
HELD_OUT = 111_540  # the last characters of a text, as nanoGPT holds them out
VOCABULARY = 50_257  # of GPT-2
CHARACTERS = 1_115_394  # of Shakespeare, as nanoGPT reads him
PAIRS = 29_000  # of multi30k
COLUMNS = (
    *("part", "measurement", "state", "what", "value", "unit", "goal", "note", "device", "tiny", "peak_gb"),
    *("sequences_per_s", "log_prob", "share_of_memory", "share_of_arithmetic", "command", "date", "hardware"),
)

Row = dict[str, Any]


class Missing(Exception):
    """What a part needs and this machine has not."""


@dataclass(frozen=True)
class Measurement:
    """What is measured as a whole or not at all.

    Attributes:
        name: unique in its part.
        minutes: that it takes at full size, compilation included.
        rows: what is measured.
    """

    name: str
    minutes: float
    rows: Callable[[], Iterator[Row]]


@dataclass(frozen=True)
class Roof:
    """What a device can do at most: bytes a second of its memory, and operations a second."""

    memory: float
    float32: float
    bfloat16: float


# From the data sheets; dense, without tensor cores in float32.
ROOFS = {
    "H200": Roof(4.8e12, 67e12, 989e12),
    "H100": Roof(3.35e12, 67e12, 989e12),
    "A100": Roof(2.0e12, 19.5e12, 312e12),
}


@dataclass(frozen=True)
class Run:
    """Where and how large a part runs, and whether it is profiled."""

    device: str
    tiny: bool
    text: Path | None = None
    pairs: Path | None = None
    out: Path = RESULTS
    profile: bool = False

    @property
    def roof(self) -> Roof | None:
        """That of the device, if it is known."""
        name = device_name(self.device)
        return next((roof for model, roof in ROOFS.items() if model in name), None)

    def size(self, full: int, tiny: int) -> int:
        """A size of the run, or of its smallest form."""
        return tiny if self.tiny else full

    def characters(self) -> tuple[str, bool]:
        """The text that was given, or one of made-up words in as many characters; whether it was given."""
        if self.text is not None:
            return self.text.read_text(), True
        random = np.random.default_rng(0)
        words = ["".join(random.choice(list("abcdefghijklmnopqrst"), n)) for n in random.integers(2, 9, 2_000)]
        ranks = np.minimum(random.zipf(1.3, self.size(CHARACTERS // 4, 4_000)) - 1, len(words) - 1)
        return " ".join(words[i] for i in ranks)[: self.size(CHARACTERS, 20_000)], False

    def pairs_of_sentences(self) -> dict[str, tuple[list[str], list[str]]]:
        """German and English by part of multi30k, or, not given, as many made-up sentences."""
        if self.pairs is not None:
            names = {"train": "train", "test": "test_2016_flickr"}
            return {k: (lines(self.pairs, f"{v}.de"), lines(self.pairs, f"{v}.en")) for k, v in names.items()}
        words, random = self.characters()[0].split(), np.random.default_rng(1)
        starts = random.integers(0, len(words) - 30, self.size(PAIRS, 60))
        sizes = random.integers(6, 20, len(starts))
        pairs = [(words[i : i + n], words[i : i + n + 1]) for i, n in zip(starts, sizes, strict=True)]
        german, english = ([" ".join(side) for side in sides] for sides in zip(*pairs, strict=True))
        return {"train": (german, english), "test": (german[:1_000], english[:1_000])}


def device_name(device: str) -> str:
    """``NVIDIA H200``, or the name of a device that is no GPU."""
    return torch.cuda.get_device_name() if device == "cuda" else device


def synchronised(device: str) -> float:
    """The time when all that was asked of the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_gb(device: str) -> float:
    """Memory of the device at its peak since the process began; NaN without one."""
    return torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else float("nan")


# -- (a) does it compute the same -----------------------------------------------------------------------------


def tests(run: Run) -> list[Measurement]:
    """The HMM's inference with its kernels compiled, and the contract on one row of each class.

    ``device="auto"`` takes the GPU, so that the tests run on it as they stand.
    """
    kernels = [
        *("tests/inference/chains/test_triton_kernels.py", "tests/hmm/emissions/test_triton_mixtures.py"),
        "tests/neural/ops/test_triton_softmax.py",
    ]
    if run.tiny:
        return [Measurement("kernels", 1, partial(passed, run, "kernels", [*kernels, "-k", "log_likelihood"]))]
    chosen = {
        "kernels": (2, kernels),
        "inference": (2, ["tests/inference/chains", *(f"--deselect={file}" for file in kernels)]),
        "contract": (5, ["tests/test_contract.py", "--one-row"]),
    }
    return [Measurement(name, n, partial(passed, run, name, which)) for name, (n, which) in chosen.items()]


def passed(run: Run, name: str, chosen: Sequence[str]) -> Iterator[Row]:
    """Whether these tests pass. Their output stands in ``tests-NAME.log``, also of those that were ended too early."""
    needs("pytest", "hypothesis", "scipy")
    several = ["-n", "8"] if find_spec("xdist") is not None and not run.tiny else []
    # What torch warns of on a GPU alone (its cuBLAS, the layout of cuDNN's weights) is no error.
    options = ["-q", "-p", "no:cacheprovider", "--maxfail", "50", "-W", "default::UserWarning", *several]
    log = run.out / f"tests-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        done = subprocess.run([sys.executable, "-m", "pytest", *options, *chosen], cwd=ROOT, stdout=file, stderr=file)
    if done.returncode == NO_TESTS:
        raise Missing("the package triton")
    told = log.read_text().strip().splitlines()
    failed = [line for line in told if line.startswith(("FAILED", "ERROR"))]
    note = "; ".join([*told[-1:], *failed[:20]])[:2_000]
    yield {"what": f"tests, {name}", "value": int(done.returncode == 0), "unit": "passed", "goal": 1, "note": note}


def needs(*packages: str) -> None:
    """Raise ``Missing`` for those that are not there."""
    if absent := [name for name in packages if find_spec(name) is None]:
        raise Missing("the package" + "s" * (len(absent) > 1) + " " + ", ".join(absent))


def agreement(run: Run) -> list[Measurement]:
    """Log-probabilities of one fitted model on the device and on the CPU, in both precisions."""
    return [Measurement("agreement", 1, partial(agreements, run))]


def agreements(run: Run) -> Iterator[Row]:
    """Log-probabilities of one fitted model on the device and on the CPU, in both precisions."""
    random = np.random.default_rng(0)
    vectors = [random.standard_normal((t, 3)) * [1, 10, 0.1] + 5 for t in (20, 1, 60, 33)]
    symbols = [random.integers(0, 7, t) for t in (20, 1, 60, 33)]
    small = {"d_model": 32, "n_layers": 1, "max_steps": 1, "device": "cpu"}
    models = {
        "HMM, Gaussians": (HMM(8, device="cpu"), vectors),
        "HMM, full": (HMM(4, observation=GaussianMixture(2, "full"), device="cpu"), vectors),
        "HMM, autoregressive": (HMM(4, observation=AutoregressiveGaussian(2), device="cpu"), vectors),
        "HMM, symbols": (HMM(8, device="cpu", length="stop"), symbols),
        "n-gram": (NGram(3, device="cpu"), symbols),
        "LSTM": (LSTM(**small), vectors),
        "GRU": (GRU(**small), symbols),
        "Transformer": (Transformer(**small, context=64), symbols),
    }
    for name, (model, data) in models.items():
        model.fit(data)
        for dtype, goal in (("float64", 1e-10), ("float32", 1e-4)):
            here, there = (model.set_params(dtype=dtype, device=d).log_prob(data) for d in ("cpu", run.device))
            error = float(np.max(np.abs(here - there) / np.maximum(1, np.abs(here))))
            yield {"what": f"{name}, {dtype}", "value": error, "unit": "largest relative error", "goal": goal}


# -- (b) EM ---------------------------------------------------------------------------------------------------


def repeated(workload: Workload, times: int) -> Workload:
    """The same sequences so many times."""
    return replace(workload, x=np.concatenate([workload.x] * times), lengths=np.concatenate([workload.lengths] * times))


def with_states(workload: Workload, n_states: int) -> Workload:
    """Where EM starts, with another number of states: the same emissions in turn, moved a little."""
    random = np.random.default_rng(n_states)
    index = np.arange(n_states) % len(workload.initial)
    emission = workload.emission
    if isinstance(emission, Mixture):
        means = emission.means[index]
        moved = means + 0.1 * random.standard_normal(means.shape)
        emission = Mixture(emission.weights[index], moved, emission.variances[index])
    else:
        emission = 0.9 * emission[index] + 0.1 * random.dirichlet(np.ones(emission.shape[1]), size=n_states)
    transition = random.dirichlet(np.ones(n_states), size=n_states)
    return replace(workload, initial=np.full(n_states, 1 / n_states), transition=transition, emission=emission)


def seconds_an_iteration(workload: Workload, device: str, n: int) -> tuple[float, float]:
    """Median of EM iterations after the first two, and the last log-likelihood a frame."""
    options: Row = {"warm_start": True, "tol": 0, "device": device, "max_iter": n + 2}
    emission, chain = workload.emission, (workload.initial, workload.transition)
    if isinstance(emission, Mixture):
        moments = {"weights": emission.weights, "means": emission.means, "covariances": emission.variances}
        model = HMM.from_parameters(*chain, **moments, **options)
    else:
        model = HMM.from_parameters(*chain, emission=emission, **options)
    history = model.fit(workload.sequences).history_
    return float(np.median(np.diff(history["seconds"])[2:])), float(history["log_prob"].iloc[-1])


def plain_loop(workload: Workload, device: str) -> float:
    """Seconds of the forward and backward recursions alone as a plain loop over time in torch, scaled, of symbols."""
    transition = torch.tensor(workload.transition, dtype=torch.float32, device=device)
    x = torch.tensor(workload.stacked, device=device)
    b = torch.tensor(np.asarray(workload.emission), dtype=torch.float32, device=device).T[x]  # (n, T, K)
    initial = torch.tensor(workload.initial, dtype=torch.float32, device=device)

    def recursions() -> None:
        alpha, beta = initial * b[:, 0], torch.ones_like(b[:, 0])
        for t in range(1, b.shape[1]):
            alpha = (alpha / alpha.sum(1, keepdim=True)) @ transition * b[:, t]
        for t in range(b.shape[1] - 1, 0, -1):
            beta = (beta * b[:, t]) @ transition.T
            beta = beta / beta.sum(1, keepdim=True)

    recursions()
    began = synchronised(device)
    recursions()
    return synchronised(device) - began


def em(run: Run) -> list[Measurement]:
    """W1 a hundred times over, like speech, and W4 twenty times, symbols."""
    return [of_workload(run, *size, minutes) for size, minutes in ((("W1", 48, 100), 2.5), (("W4", 256, 20), 1))]


def em_of_more_states(run: Run) -> list[Measurement]:
    """The same with more states; on this machine's processor; and what the kernels are measured against."""
    measurements = [
        of_workload(run, *size, minutes)
        for size, minutes in ((("W1", 256, 100), 3), (("W4", 1024, 2), 1), (("W1", 1024, 10), 2))
    ]
    for name, n_states, times in (("W1", 48, 100), ("W4", 256, 20)):
        what = f"EM, {name} x {times}, K={n_states}, this machine's processor"
        measurements.append(Measurement(what, 0.5, partial(em_on_processor, run, what, name, times)))
    measurements.append(Measurement("plain loop", 0.5, partial(em_in_plain_torch, run)))
    return measurements[1::2] if run.tiny else measurements


def of_workload(run: Run, name: str, n_states: int, times: int, minutes: float) -> Measurement:
    """Seconds of an iteration on so many copies of a workload, with so many states."""
    times = run.size(times, 1)
    what = f"EM, {name} x {times}, K={n_states}"
    return Measurement(what, minutes, partial(em_of, run, what, name, n_states, times))


def em_of(run: Run, what: str, name: str, n_states: int, times: int) -> Iterator[Row]:
    """Seconds an iteration on the device."""
    once = make(name).first(4) if run.tiny else make(name)
    once = once if n_states == len(once.initial) else with_states(once, n_states)
    workload = repeated(once, times)
    seconds, log_prob = seconds_an_iteration(workload, run.device, run.size(6, 1))
    goal = 0.040 if (name, n_states) == ("W1", 48) else None
    extra = {"sequences_per_s": len(workload.lengths) / seconds, "log_prob": log_prob}
    yield {"what": what, "value": seconds, "unit": "s", "goal": goal, **extra, **shares(run, workload, seconds)}


def em_on_processor(run: Run, what: str, name: str, times: int) -> Iterator[Row]:
    """Of the workload once, times the copies."""
    seconds, _ = seconds_an_iteration(make(name).first(4) if run.tiny else make(name), "cpu", 1)
    yield {"what": what, "value": seconds * times, "unit": "s", "note": f"{times} x one"}


def em_in_plain_torch(run: Run) -> Iterator[Row]:
    """What the kernels are measured against."""
    yield {"what": "plain loop, recursions of W4", "value": plain_loop(make("W4").first(8), run.device), "unit": "s"}


def em_of_pomegranate(run: Run) -> list[Measurement]:
    """EM by pomegranate, pure torch, beside ours: the same device, sequences of one length, float32, the same start.

    Its passes hold (n, T, K, K) numbers, so both get few enough sequences that they fit.
    """
    sizes = (("W1", 48, 4), ("W4", 256, 1))
    return [
        Measurement(f"{name}, K={k}", 1.5, partial(beside_pomegranate, run, name, times)) for name, k, times in sizes
    ]


def beside_pomegranate(run: Run, name: str, times: int) -> Iterator[Row]:
    """Seconds an iteration of both, and the log-likelihoods a frame that they come to."""
    needs("pomegranate")
    from peers.pomegranate import PomegranateTrainer

    once = make(name, "equal")
    workload = once.first(30) if run.tiny else repeated(once, times)
    n, what = run.size(6, 1), f"EM, {name} x {times} of one length, K={len(workload.initial)}"
    seconds, log_prob = seconds_an_iteration(workload, run.device, n)
    theirs = PomegranateTrainer(workload, "float32", run.device).iterate(
        n + 3
    )  # of which the last begins where ours end
    median = float(np.median([each.seconds for each in theirs[2:]]))
    yield {"what": what, "value": seconds, "unit": "s", "log_prob": log_prob}
    yield {
        "what": f"{what}, pomegranate",
        "value": median,
        "unit": "s",
        "log_prob": theirs[-1].log_prob / len(workload.x),
    }
    yield {"what": f"{what}, pomegranate's time over ours", "value": median / seconds, "unit": "times"}


def long_sequence(run: Run) -> list[Measurement]:
    """Forward-backward of one sequence of a million steps, of a chain that forgets and of one that hardly moves."""
    chains = {"forgets": 0.1, "hardly moves": 1e-9}
    return [Measurement(name, 0.5, partial(recursions_of_one, run, name, leaves)) for name, leaves in chains.items()]


def recursions_of_one(run: Run, name: str, leaves: float) -> Iterator[Row]:
    """Seconds of the recursions alone, given densities on the device, where a state is left so often."""
    n, k, goal = run.size(1_000_000, 2_000), 16, 0.010 if name == "forgets" else None
    transition = torch.full((k, k), leaves / (k - 1))
    transition.fill_diagonal_(1 - leaves)
    generator = torch.Generator().manual_seed(0)
    log_b = -0.5 * torch.randn(n, k, generator=generator).square() * 4
    arguments = [each.to(run.device) for each in (torch.full((k,), 1 / k), transition, log_b)]
    for _ in range(run.size(3, 1)):
        forward_backward(*arguments)
    seconds = []
    for _ in range(run.size(7, 1)):
        began = synchronised(run.device)
        forward_backward(*arguments)
        seconds.append(synchronised(run.device) - began)
    what = f"forward-backward, 1 x {n:,}, K={k}, a chain that {name}"
    yield {"what": what, "value": float(np.median(seconds)), "unit": "s", "goal": goal}


def shares(run: Run, workload: Workload, seconds: float) -> Row:
    """Of the device's memory and arithmetic, what an iteration used at least.

    Bytes: densities written once and read twice, alpha written and read (float32). Operations: densities and statistics
    of Gaussians, and three products by the transition matrix a frame.
    """
    if run.roof is None:
        return {}
    n, k = len(workload.x), len(workload.initial)
    operations = 6.0 * n * k * k
    if isinstance(workload.emission, Mixture):
        operations += 8.0 * n * workload.emission.means.size
    moved = 4.0 * 5 * n * k
    return {
        "share_of_memory": moved / seconds / run.roof.memory,
        "share_of_arithmetic": operations / seconds / run.roof.float32,
    }


# -- (c) training ---------------------------------------------------------------------------------------------


def nanogpt(run: Run) -> list[Measurement]:
    """nanoGPT's characters to its published loss, and what a compiled step takes."""
    return without_compilation(
        run,
        Measurement("training", 2, partial(nanogpt_characters, run)),
        Measurement("compiled", 2.5, partial(nanogpt_compiled, run)),
    )


def gpt2(run: Run) -> list[Measurement]:
    """Steps of GPT-2's shape."""
    return without_compilation(
        run,
        Measurement("training", 1.5, partial(steps_of_gpt2, run, compiled=False)),
        Measurement("compiled", 4, partial(steps_of_gpt2, run, compiled=True)),
    )


def without_compilation(run: Run, plain: Measurement, compiled: Measurement) -> list[Measurement]:
    """Both, but in the smallest size: a compilation takes a minute."""
    return [plain] if run.tiny else [plain, compiled]


def recurrent(run: Run) -> list[Measurement]:
    """Steps of wide recurrent networks."""
    return [Measurement("recurrent networks", 1.5, partial(steps_of_recurrent_networks, run))]


def steps_of_recurrent_networks(run: Run) -> Iterator[Row]:
    """Training of wide networks on random characters."""
    text = "".join(np.random.default_rng(0).choice(list("abcdefgh "), 64 * 128 * run.size(40, 1)))
    for name, model in (("LSTM", LSTM), ("GRU", GRU)):
        shape = {"d_model": run.size(1024, 32), "n_layers": 2, "batch_size": 64, "bptt": 128, "device": run.device}
        seconds = seconds_a_step(lambda n, m=model, s=shape: m(max_steps=n, **s).fit([text], validation=None), run)
        yield {"what": f"{name} training, width {shape['d_model']}", "value": 64 * 128 / seconds, "unit": "symbols/s"}


def nanogpt_of(run: Run) -> tuple[Transformer, str, str]:
    """The untrained model, the characters, and what they are called."""
    (text, is_given), model = run.characters(), presets.nanogpt("gpu" if not run.tiny else "cpu")
    return model.set_params(device=run.device), text, "nanoGPT's characters" if is_given else "made-up characters"


def nanogpt_characters(run: Run) -> Iterator[Row]:
    """The seconds of its training, and the loss after it.

    It has learned all that it can long before its 5,000 steps are over, and nanoGPT keeps the weights that did best on
    the text held out. Here they are chosen, and training ends, by a part of the training text.
    """
    model, text, name = nanogpt_of(run)
    held_out = min(HELD_OUT, len(text) // 10)
    if run.tiny:
        model.set_params(max_steps=2)
    began = synchronised(run.device)
    model.fit([text[:-held_out]])
    seconds = synchronised(run.device) - began
    taken, step = int(model.history_["step"].iloc[-1]), median_seconds_a_step(model.history_)
    yield {"what": f"{name}, training", "value": seconds, "unit": "s", "note": f"it ended after {taken:,} steps"}
    yield {"what": f"{name}, 5,000 steps", "value": 5_000 * step, "unit": "s", "goal": 25}
    goal = 1.4697 if run.text is not None else None
    loss = loss_in_windows(model, text[-held_out:])
    yield {"what": f"{name}, loss", "value": loss, "unit": "nats a character", "goal": goal}


def nanogpt_compiled(run: Run) -> Iterator[Row]:
    """5,000 times a compiled step, launched as a graph, without the compilation, which is named."""
    model, text, name = nanogpt_of(run)
    fitted = model.set_params(training__compile="reduce-overhead", max_steps=600).fit([text], validation=None)
    first, step = float(fitted.history_["seconds"].iloc[0]), median_seconds_a_step(fitted.history_)
    yield {
        "what": f"{name}, 5,000 steps, compiled",
        "value": 5_000 * step,
        "unit": "s",
        "goal": 25,
        "note": f"of {1e3 * step:.2f} ms; the first took {first:.0f} s",
    }


def loss_in_windows(model: Transformer, text: str) -> float:
    """Nats a character in windows that do not overlap, of all but the first of each: nanoGPT's, of all windows."""
    width = int(model.context or 1) + 1
    windows = [text[i : i + width] for i in range(0, len(text) - width + 1, width - 1)]
    return -float(np.mean([steps[1:].mean() for steps in model.log_prob_steps(windows)]))


def seconds_a_step(fit: Callable[[int], Any], run: Run) -> float:
    """Of training: the median over the later half of its steps, as its history times them."""
    return median_seconds_a_step(fit(run.size(100, 4)).history_)


def median_seconds_a_step(history: Any) -> float:
    """Over the later half of the steps of a history."""
    later = history[history["step"] >= history["step"].max() / 2]
    steps, seconds = (np.diff(later[c].to_numpy(float)) for c in ("step", "seconds"))
    if not len(steps):
        return float(history["seconds"].iloc[-1] / history["step"].iloc[-1])
    return float(np.median(seconds / steps))


def steps_of_gpt2(run: Run, *, compiled: bool) -> Iterator[Row]:
    """Training of GPT-2's shape on random symbols."""
    context, batch = run.size(1024, 16), run.size(32, 2)
    size = batch * run.size(12, 4), context  # each a row of a batch, so that all batches are full
    data = list(np.random.default_rng(0).integers(0, run.size(VOCABULARY, 50), size))
    shape: Row = {"context": context, "batch_size": batch, "device": run.device, "training__compile": compiled}
    model = presets.gpt2("small").set_params(**shape)
    if run.tiny:
        model.set_params(d_model=16, n_layers=1, n_heads=2)
    rate = batch * context / seconds_a_step(lambda n: model.set_params(max_steps=n).fit(data, validation=None), run)
    what = f"GPT-2 124 M training{', compiled' * compiled}"
    yield {"what": what, "value": rate, "unit": "symbols/s"}
    if run.roof is not None:
        width, depth = model.d_model, model.n_layers
        operations = 6 * model.n_parameters_ + 12 * depth * width * context  # a symbol (Chowdhery et al. 2022)
        share = operations * rate / run.roof.bfloat16
        yield {"what": what, "value": share, "unit": "of the peak in bfloat16", "goal": 0.45}


# -- (d) decoding, (e) translation, (f) memory ----------------------------------------------------------------


def decoding(run: Run) -> list[Measurement]:
    """Symbols a second of GPT-2's shape and of an LSTM, of one sequence and of 256."""
    return [Measurement(name, 1, partial(decoding_by, run, name)) for name in ("GPT-2 124 M", "LSTM 1024")]


def decoding_by(run: Run, name: str) -> Iterator[Row]:
    """Of an untrained network, which is as fast as a trained one.

    From one cursor, whose step of a Transformer is captured as a graph by a first short draw, which is not counted.
    """
    gpt2 = presets.gpt2("small").set_params(device=run.device)
    if run.tiny:
        gpt2.set_params(d_model=16, n_layers=1, n_heads=2, context=16)
    lstm = LSTM(d_model=run.size(1024, 16), n_layers=2, device=run.device)
    model = untrained(gpt2 if name.startswith("GPT-2") else lstm, VOCABULARY if not run.tiny else 50)
    model.module_.to(run.device)
    cursor, generator = model.cursor(), torch.Generator(run.device)
    for n in (1, 256) if not run.tiny else (1, 2):
        length, nothing = run.size(256, 4), np.zeros(0, dtype=int)
        draw = partial(sample_steps, cursor, n, prefix=nothing, source=None, max_length=length, generator=generator)
        draw(length=run.size(16, 2))
        began = synchronised(run.device)
        draw(length=length)
        rate = n * length / (synchronised(run.device) - began)
        goal = 2_000 if (name, n) == ("GPT-2 124 M", 1) else None
        yield {"what": f"{name}, batch {n}", "value": rate, "unit": "symbols/s", "goal": goal}


def lines(folder: Path, name: str) -> list[str]:
    """Of a text, or of one that is packed."""
    file = folder / name
    if file.exists():
        return file.read_text().splitlines()
    packed = folder / f"{name}.gz"
    if not packed.exists():
        raise Missing(f"{name} or {name}.gz in the folder of --pairs")
    return gzip.decompress(packed.read_bytes()).decode().splitlines()


def translation(run: Run) -> list[Measurement]:
    """German to English on multi30k, by BPE and beams, to a published BLEU."""
    return [Measurement("multi30k", 8, partial(translated, run))]


def translated(run: Run) -> Iterator[Row]:
    """The minutes of training, and the BLEU after it."""
    needs("tokenizers")
    parts, name = run.pairs_of_sentences(), "made-up pairs" if run.pairs is None else "multi30k"
    model = TransformerSeq2Seq(
        d_model=run.size(256, 16),
        n_layers=run.size(3, 1),
        dropout=0.3,
        batch_size=run.size(128, 4),
        max_steps=run.size(8_000, 2),
        encoding=BPE(run.size(8_000, 300)),
        device=run.device,
    )
    began = synchronised(run.device)
    model.fit(*parts["train"])
    seconds = synchronised(run.device) - began
    sources, targets = (part[: run.size(1_000, 2)] for part in parts["test"])
    yield {"what": f"{name}, training", "value": seconds / 60, "unit": "minutes"}
    began = synchronised(run.device)
    guesses = model.predict(sources, n_beams=run.size(5, 1), max_length=run.size(100, 4), alpha=1.0)
    rate = len(sources) / (synchronised(run.device) - began)
    yield {"what": f"{name}, beams of 5", "value": rate, "unit": "sentences/s"}
    if run.pairs is None:
        return
    needs("sacrebleu")
    import sacrebleu

    bleu = sacrebleu.corpus_bleu(guesses, [targets]).score
    yield {"what": f"{name}, BLEU", "value": bleu, "unit": "BLEU", "goal": 36.5}


def memory(run: Run) -> list[Measurement]:
    """The peak of a long Transformer's step, and of scoring a long text."""
    return [Measurement("memory", 2, partial(peaks, run))]


def peaks(run: Run) -> Iterator[Row]:
    """Both, of one model."""
    context = run.size(8192, 16)
    options: Row = {"context": context, "batch_size": 1, "device": run.device, "max_steps": 2}
    model = Transformer(d_model=run.size(768, 16), n_layers=run.size(12, 1), n_heads=run.size(12, 2), **options)
    symbols = np.random.default_rng(0).integers(0, 256, run.size(100_000, 200))
    model.fit([symbols], validation=None)
    yield {"what": f"a step of 12 layers over {context} symbols", "value": peak_gb(run.device), "unit": "GB"}
    if run.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model.log_prob([symbols])
    yield {"what": f"scoring {len(symbols):,} symbols", "value": peak_gb(run.device), "unit": "GB"}


# -- running --------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Run], list[Measurement]]] = {
    part.__name__: part
    for part in (
        *(agreement, tests, em, nanogpt, gpt2, decoding),
        *(translation, memory, recurrent, em_of_more_states, long_sequence, em_of_pomegranate),
    )
}
STATES = {"whole": 0, "missing": 3, "left": 5, "failed": 4}  # and the exit status of a part, the worst of them last
OUTCOMES = {0: "measured", 3: "misses something", 4: "failed in part", 5: "left in part for the next call"}


@dataclass
class Sheet:
    """The rows of a part, as they stand in its file."""

    name: str
    run: Run
    rows: list[Row] = field(default_factory=list)

    @property
    def unfinished(self) -> Path:
        return self.run.out / f"{self.name}.unfinished.csv"

    @property
    def finished(self) -> Path:
        return self.run.out / f"{self.name}.csv"

    def read(self) -> Sheet:
        """With the rows that an earlier call has written, of this device and size."""
        file = self.finished if self.finished.exists() else self.unfinished
        if file.exists():
            with file.open(newline="") as lines_of_file:
                rows = list(csv.DictReader(lines_of_file))
            own = device_name(self.run.device), str(self.run.tiny)
            self.rows = [row for row in rows if (row["device"], row["tiny"]) == own]
        return self

    def state(self, measurement: str) -> str | None:
        """Of a measurement; None: it was not begun."""
        states = [row["state"] for row in self.rows if row["measurement"] == measurement]
        return states[-1] if states else None

    def write(self) -> None:
        """All rows, in one go: who ends the process finds the file as it was before, or as it is now."""
        self.run.out.mkdir(parents=True, exist_ok=True)
        beside = self.unfinished.with_suffix(".part")
        with beside.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
            table.writeheader()
            table.writerows(self.rows)
        beside.replace(self.unfinished)

    def begin(self, measurement: str) -> None:
        """Leave out what was measured of it before, and write that it was begun, for who ends the process."""
        self.rows = [row for row in self.rows if row["measurement"] != measurement]
        self._append(measurement, "begun", {"what": measurement, "note": "was begun, and ended too early"})

    def add(self, measurement: str, state: str, row: Row) -> None:
        """A row more, printed and written."""
        print(in_words(row), flush=True)
        numbers = {name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items() if v is not None}
        self._append(measurement, state, numbers)

    def _append(self, measurement: str, state: str, row: Row) -> None:
        device = self.run.device
        here = {"device": device_name(device), "tiny": str(self.run.tiny), "peak_gb": f"{peak_gb(device):.6g}"}
        self.rows = [row for row in self.rows if (row["measurement"], row["state"]) != (measurement, "begun")]
        self.rows.append({"part": self.name, "measurement": measurement, "state": state, **row, **here, **stamp()})
        self.write()

    def end(self, measurement: str, state: str) -> None:
        """Say what became of it."""
        for row in self.rows:
            if row["measurement"] == measurement:
                row["state"] = state
        self.write()

    def close(self) -> None:
        """The part is whole."""
        self.unfinished.replace(self.finished)


def stamp() -> Row:
    """The command, the date and the hardware, as all results have them."""
    now = provenance()
    machine = f"{now['hardware']['processor']}, {now['hardware']['cores']} cores, torch {torch.__version__}"
    return {"command": f"python {now['command']}", "date": now["date"], "hardware": machine}


def run_part(name: str, run: Run, seconds: float = float("inf")) -> str:
    """One part, here, but for what would take longer than ``seconds``; returns the worst state of a measurement.

    What was not begun comes first, then what failed or was ended before.
    """
    sheet, began, states = Sheet(name, run).read(), time.monotonic(), ["whole"]
    remaining = [m for m in PARTS[name](run) if sheet.state(m.name) != "whole"]
    for measurement in sorted(remaining, key=lambda m: sheet.state(m.name) is not None):
        left = seconds - (time.monotonic() - began)
        if left < (60 * measurement.minutes if not run.tiny else 1):
            states.append("left")
            continue
        states.append(measured(sheet, measurement))
    worst = max(states, key=list(STATES).index)
    if worst == "whole":
        sheet.close()
    return worst


def measured(sheet: Sheet, measurement: Measurement) -> str:
    """The rows of a measurement, and the state that it ends in."""
    name, device, state, note = measurement.name, sheet.run.device, "whole", None
    sheet.begin(name)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        with profiled(sheet.run):
            for row in measurement.rows():
                sheet.add(name, "ended", row)  # unless it goes on
    except Missing as missing:
        state, note = "missing", f"needs {missing}"
    except Exception as error:
        traceback.print_exc()
        state, note = "failed", f"failed: {type(error).__name__}: {error}"[:500]
    if note is not None:
        sheet.add(name, state, {"what": name, "note": note})
    sheet.end(name, state)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return state


@contextmanager
def profiled(run: Run) -> Iterator[None]:
    """Print, where it was asked for, the operations and kernels that took longest; timings are then too long."""
    if not run.profile:
        yield
        return
    with torch.profiler.profile() as profile:
        yield
    by = "self_device_time_total" if run.device == "cuda" else "self_cpu_time_total"
    print(profile.key_averages().table(sort_by=by, row_limit=20, max_name_column_width=70), flush=True)


def in_words(row: Row) -> str:
    """A line: what, the figure, and the goal beside it."""
    goal = f"   goal {float(row['goal']):g}" if row.get("goal") not in (None, "") else ""
    value = f"{float(row['value']):.6g} {row.get('unit', '')}" if row.get("value") not in (None, "") else ""
    return f"  {row['what']}: {value}{goal}   {row.get('note') or ''}".rstrip()


def is_done(name: str, run: Run) -> bool:
    """Whether the part was measured on this device, at this size."""
    sheet = Sheet(name, run).read()
    return sheet.finished.exists() and all(sheet.state(m.name) == "whole" for m in PARTS[name](run))


def in_processes(names: Sequence[str], run: Run, options: Sequence[str], seconds: float) -> dict[str, str]:
    """Each part in its own process, until ``seconds`` are over; what became of it."""
    outcomes: dict[str, str] = {}
    end = time.monotonic() + seconds
    for name in names:
        if is_done(name, run):
            outcomes[name] = "measured before"
            continue
        sheet, left = Sheet(name, run).read(), end - time.monotonic()
        minutes = sum(m.minutes for m in PARTS[name](run) if sheet.state(m.name) != "whole")
        limit = min(left, OVERTIME * 60 * minutes + LEAST_SECONDS)
        if left < LEAST_SECONDS:
            outcomes[name] = "left for the next call"
            continue
        print(f"{name} (about {minutes:g} minutes)" if not run.tiny else name, flush=True)
        command = [sys.executable, str(Path(__file__)), "--only", name, "--here", str(limit), *options]
        code = exit_code(command, limit)
        outcomes[name] = "ran out of time" if code is None else OUTCOMES.get(code, f"failed ({code})")
    return outcomes


def exit_code(command: Sequence[str], seconds: float) -> int | None:
    """Of a process, which is ended with all that it started when its time is over; None: it was."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def summary(run: Run) -> str:
    """All figures so far, each beside its goal."""
    table = [("what", "figure", "goal", "")]
    for name in PARTS:
        for row in Sheet(name, run).read().rows:
            if row["value"]:
                verdict = "" if not row["goal"] else "reached" if reaches(row) else "NOT REACHED"
                table.append((row["what"], f"{float(row['value']):.5g} {row['unit']}", row["goal"], verdict))
            else:
                table.append((row["what"], row["note"][:60], "", row["state"]))
    widths = [max(len(str(line[i])) for line in table) for i in range(3)]
    return "\n".join(
        "  ".join([*(str(c).ljust(w) for c, w in zip(r, widths, strict=False)), r[3]]).rstrip() for r in table
    )


def reaches(row: Mapping[str, str]) -> bool:
    """Whether the figure is as good as its goal: of times, losses and errors less is better."""
    value, goal = float(row["value"]), float(row["goal"])
    is_cost = row["unit"] in ("s", "minutes", "nats a character", "largest relative error")
    return value <= goal if is_cost else value >= goal


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code is 1 where a part failed."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="every part in its smallest size")
    parser.add_argument("--text", type=Path, help="nanoGPT's characters of Shakespeare")
    parser.add_argument("--pairs", type=Path, help="the folder of multi30k")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=40, help="end within so many")
    parser.add_argument("--profile", action="store_true", help="print what took longest; write to another --out then")
    parser.add_argument("--here", type=float, help=argparse.SUPPRESS)  # seconds that this part may take
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here; --device cpu --tiny shows that every part runs")
        return 1
    run = Run(given.device, given.tiny, given.text, given.pairs, given.out, given.profile)
    if given.here is not None:
        return STATES[run_part(given.only[0], run, given.here)]
    outcomes = in_processes(given.only, run, without_only(arguments), 60 * given.minutes)
    print("\n" + summary(run) + "\n")
    print("\n".join(f"{name}: {outcome}" for name, outcome in outcomes.items()))
    return int(any(o.startswith(("failed", "ran out")) for o in outcomes.values()))


def without_only(arguments: Sequence[str]) -> list[str]:
    """The arguments that each process is given too."""
    kept, skip = [], False
    for argument in arguments:
        skip = argument in ("--only", "--minutes") or (skip and not argument.startswith("--"))
        if not skip:
            kept.append(argument)
    return kept


if __name__ == "__main__":
    sys.exit(main())
