"""Every figure of a GPU, by one command: ``python benchmarks/gpu.py --text FILE --pairs FOLDER`` (``make gpu``).

On a machine with torch for its GPU; neither the internet nor Pyro is needed. Each part runs in a process of its own,
for one and a half times its minutes at most, and writes ``benchmarks/results/gpu/PART.csv``, with the device named and
the goal beside the figure. A part whose file is there, of this device, is not run again: delete the file to do so.
While it runs, and where something in it failed, the rows stand in ``PART.unfinished.csv``, and the part is run again
next time. What a part misses (a text, a package) is said, and the others run. ``--device cpu --tiny`` runs every part
in its smallest size, to see that it runs.
"""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
from seqmodels.evaluation.provenance import stamped
from seqmodels.generation.sampling import sample_steps
from seqmodels.neural.untrained import untrained

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/gpu"
MINUTES = {"tests": 6, "agreement": 2, "em": 8, "training": 9, "decoding": 4, "translation": 8, "memory": 3}
OVERTIME = 1.5  # times its minutes that a part may take: all end within an hour
NO_TESTS = 5  # pytest's exit status where all were left out, as without triton
HELD_OUT = 111_540  # the last characters of a text, as nanoGPT holds them out
VOCABULARY = 50_257  # of GPT-2

Row = dict[str, Any]


class Missing(Exception):
    """What a part needs and this machine has not."""


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
    """Where and how large a part runs."""

    device: str
    tiny: bool
    text: Path | None
    pairs: Path | None

    @property
    def roof(self) -> Roof | None:
        """That of the device, if it is known."""
        name = device_name(self.device)
        return next((roof for model, roof in ROOFS.items() if model in name), None)

    def size(self, full: int, tiny: int) -> int:
        """A size of the run, or of its smallest form."""
        return tiny if self.tiny else full

    def characters(self) -> str:
        """The text that was given; in the smallest form one of the package's."""
        if self.text is not None:
            return self.text.read_text()
        if self.tiny:
            from seqmodels.data import builtin_text

            return str(builtin_text()[0])[:20_000]
        raise Missing("a text: --text FILE, the 1,115,394 characters of Shakespeare that nanoGPT trains on")


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


def each(device: str, measures: Mapping[str, Callable[[], Iterator[Row]]]) -> Iterator[Row]:
    """The rows of each; where one fails, or misses something, a row says so, and the others go on."""
    for name, measure in measures.items():
        try:
            yield from measure()
        except Missing as missing:
            yield {"what": name, "note": f"needs {missing}", "failed": True}
        except Exception as error:
            traceback.print_exc()
            yield {"what": name, "note": f"failed: {type(error).__name__}: {error}"[:500], "failed": True}
            if device == "cuda":
                torch.cuda.empty_cache()


# -- (a) does it compute the same -----------------------------------------------------------------------------


def tests(run: Run) -> Iterator[Row]:
    """The contract on one row of each class, and the tests of the HMM's inference, kernels compiled.

    ``device="auto"`` takes the GPU, so that the tests run on it as they stand.
    """
    if find_spec("pytest") is None or find_spec("hypothesis") is None:
        raise Missing("pytest and hypothesis")
    chosen = ["tests/hmm/inference/test_triton_kernels.py"]
    chosen += ["-k", "log_likelihood"] if run.tiny else ["tests/hmm/inference", "tests/test_contract.py", "--one-row"]
    several = ["-n", "4"] if find_spec("xdist") is not None and not run.tiny else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail", "50", *several, *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode == NO_TESTS:
        raise Missing("triton")
    note = "; ".join([last, *failed[:20]])
    yield {"what": "tests", "value": int(done.returncode == 0), "unit": "passed", "goal": 1, "note": note}


def agreement(run: Run) -> Iterator[Row]:
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


def em(run: Run) -> Iterator[Row]:
    """W1 a hundred times over, like speech, and W4 twenty times, symbols; with more states too."""
    sizes = (("W1", 48, 100), ("W1", 256, 100), ("W4", 256, 20), ("W1", 1024, 10), ("W4", 1024, 2))
    measures: dict[str, Callable[[], Iterator[Row]]] = {}
    for name, n_states, times in (sizes[0], sizes[2]) if run.tiny else sizes:
        what = f"EM, {name} x {run.size(times, 1)}, K={n_states}"
        measures[what] = partial(em_of, run, what, name, n_states, run.size(times, 1))
    measures["plain loop, recursions of W4"] = partial(em_in_plain_torch, run)
    yield from each(run.device, measures)


def em_of(run: Run, what: str, name: str, n_states: int, times: int) -> Iterator[Row]:
    """Seconds an iteration on the device and on the CPU, which is given the sequences once."""
    once = make(name).first(4) if run.tiny else make(name)
    once = once if n_states == len(once.initial) else with_states(once, n_states)
    workload = repeated(once, times)
    seconds, log_prob = seconds_an_iteration(workload, run.device, run.size(6, 1))
    goal = 0.040 if (name, n_states) == ("W1", 48) else None
    extra = {"sequences_per_s": len(workload.lengths) / seconds, "log_prob": log_prob}
    yield {"what": what, "value": seconds, "unit": "s", "goal": goal, **extra, **shares(run, workload, seconds)}
    cpu, _ = seconds_an_iteration(once, "cpu", 1)
    yield {"what": f"{what}, this machine's CPU", "value": cpu * times, "unit": "s", "note": f"{times} x one"}


def em_in_plain_torch(run: Run) -> Iterator[Row]:
    """What the kernels are measured against."""
    yield {"what": "plain loop, recursions of W4", "value": plain_loop(make("W4").first(8), run.device), "unit": "s"}


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


def training(run: Run) -> Iterator[Row]:
    """nanoGPT's characters to its published loss; steps of GPT-2 and of recurrent networks."""
    measures: dict[str, Callable[[], Iterator[Row]]] = {
        "nanoGPT's characters": partial(nanogpt_characters, run),
        "GPT-2 124 M training": partial(steps_of_gpt2, run, compiled=False),
        "recurrent networks": partial(steps_of_recurrent_networks, run),
        "GPT-2 124 M training, compiled": partial(steps_of_gpt2, run, compiled=True),
    }
    if run.tiny:  # a compilation takes a minute
        measures.popitem()
    yield from each(run.device, measures)


def steps_of_recurrent_networks(run: Run) -> Iterator[Row]:
    """Training of wide networks on random characters."""
    text = "".join(np.random.default_rng(0).choice(list("abcdefgh "), 300_000))
    for name, model in (("LSTM", LSTM), ("GRU", GRU)):
        shape = {"d_model": run.size(1024, 32), "n_layers": 2, "batch_size": 64, "bptt": 128, "device": run.device}
        seconds = seconds_a_step(lambda n, m=model, s=shape: m(max_steps=n, **s).fit([text], validation=None), run)
        yield {"what": f"{name} training, width {shape['d_model']}", "value": 64 * 128 / seconds, "unit": "symbols/s"}


def nanogpt_characters(run: Run) -> Iterator[Row]:
    """The loss after all of its training, and the seconds of that."""
    text = run.characters()
    held_out = min(HELD_OUT, len(text) // 10)
    model = presets.nanogpt("gpu" if not run.tiny else "cpu").set_params(device=run.device)
    if run.tiny:
        model.set_params(max_steps=2)
    began = synchronised(run.device)
    model.fit([text[:-held_out]], validation=None)
    seconds = synchronised(run.device) - began
    yield {
        "what": "nanoGPT's characters, loss",
        "value": loss_in_windows(model, text[-held_out:]),
        "unit": "nats a character",
        "goal": 1.4697,
    }
    yield {"what": "nanoGPT's characters, training", "value": seconds, "unit": "s", "goal": 25}


def loss_in_windows(model: Transformer, text: str) -> float:
    """Nats a character in windows that do not overlap, of all but the first of each: nanoGPT's, of all windows."""
    width = int(model.context or 1) + 1
    windows = [text[i : i + width] for i in range(0, len(text) - width + 1, width - 1)]
    return -float(np.mean([steps[1:].mean() for steps in model.log_prob_steps(windows)]))


def seconds_a_step(fit: Callable[[int], Any], run: Run) -> float:
    """Of training: the median over the later half of its steps, as its history times them."""
    history = fit(run.size(40, 4)).history_
    later = history[history["step"] >= history["step"].max() / 2]
    steps, seconds = (np.diff(later[c].to_numpy(float)) for c in ("step", "seconds"))
    if not len(steps):
        return float(history["seconds"].iloc[-1] / history["step"].iloc[-1])
    return float(np.median(seconds / steps))


def steps_of_gpt2(run: Run, *, compiled: bool) -> Iterator[Row]:
    """Training of GPT-2's shape on random symbols."""
    context, batch = run.size(1024, 16), run.size(32, 2)
    data = [np.random.default_rng(0).integers(0, VOCABULARY if not run.tiny else 50, 400_000 if not run.tiny else 400)]
    shape: Row = {"context": context, "batch_size": batch, "device": run.device, "compile": compiled}
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


def decoding(run: Run) -> Iterator[Row]:
    """Symbols a second of GPT-2's shape and of an LSTM, of one sequence and of 256."""
    names = ("GPT-2 124 M", "LSTM 1024")
    yield from each(run.device, {name: partial(decoding_by, run, name) for name in names})


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


def translation(run: Run) -> Iterator[Row]:
    """German to English on multi30k, by BPE and beams, to a published BLEU."""
    if find_spec("tokenizers") is None or find_spec("sacrebleu") is None:
        raise Missing("the packages tokenizers and sacrebleu")
    if run.pairs is None and not run.tiny:
        raise Missing("--pairs FOLDER with train.de, train.en, test_2016_flickr.de and .en (or .gz)")
    if run.pairs is None:
        german, english = ["ein hund", "eine katze", "zwei hunde"] * 20, ["a dog", "a cat", "two dogs"] * 20
        parts = {"train": (german, english), "test": (german[:3], english[:3])}
    else:
        names = {"train": "train", "test": "test_2016_flickr"}
        parts = {k: (lines(run.pairs, f"{v}.de"), lines(run.pairs, f"{v}.en")) for k, v in names.items()}
    import sacrebleu

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
    guesses = model.predict(sources, n_beams=run.size(5, 1), max_length=run.size(100, 4), alpha=1.0)
    bleu = sacrebleu.corpus_bleu(guesses, [targets]).score
    yield {"what": "multi30k, BLEU", "value": bleu, "unit": "BLEU", "goal": 36.5}
    yield {"what": "multi30k, training", "value": seconds / 60, "unit": "minutes"}


def memory(run: Run) -> Iterator[Row]:
    """The peak of a long Transformer's step, and of scoring a long text."""
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

PARTS: dict[str, Callable[[Run], Iterator[Row]]] = {
    part.__name__: part for part in (tests, agreement, em, training, decoding, translation, memory)
}


def run_part(name: str, run: Run, out: Path) -> bool:
    """One part, here: its rows are printed and written as they come, so that what ends early keeps them.

    Returns whether all of it was measured.
    """
    rows: list[Row] = []
    unfinished, is_whole = out / f"{name}.unfinished.csv", True
    for row in PARTS[name](run):
        is_whole &= not row.pop("failed", False)
        rows.append({"part": name, "device": device_name(run.device), "tiny": run.tiny, **row})
        rows[-1]["peak_gb"] = peak_gb(run.device)
        print(in_words(rows[-1]), flush=True)
        out.mkdir(parents=True, exist_ok=True)
        stamped(pd.DataFrame(rows)).to_csv(unfinished, index=False, float_format="%.6g")
    if is_whole:
        unfinished.replace(out / f"{name}.csv")
    return is_whole


def in_words(row: Row) -> str:
    """A line: what, the figure, and the goal beside it."""
    goal = f"   goal {row['goal']:g}" if row.get("goal") is not None else ""
    value = f"{row['value']:.6g} {row.get('unit', '')}" if "value" in row else ""
    return f"  {row['what']}: {value}{goal}   {row.get('note', '')}".rstrip()


def is_done(name: str, run: Run, out: Path) -> bool:
    """Whether the part was measured on this device, at this size."""
    file = out / f"{name}.csv"
    if not file.exists():
        return False
    table = pd.read_csv(file)
    return bool((table["device"] == device_name(run.device)).all() and (table["tiny"] == run.tiny).all())


def in_processes(names: Sequence[str], run: Run, out: Path, options: Sequence[str]) -> dict[str, str]:
    """Each part in its own process; what became of it."""
    outcomes: dict[str, str] = {}
    for name in names:
        if is_done(name, run, out):
            outcomes[name] = "measured before"
            continue
        print(f"{name} (about {MINUTES[name]} minutes)" if not run.tiny else name, flush=True)
        command = [sys.executable, str(Path(__file__)), "--only", name, "--here", *options]
        code = exit_code(command, OVERTIME * 60 * MINUTES[name])
        known = {0: "measured", 3: "missing", 4: "failed in part", None: "ran out of time"}
        outcomes[name] = known.get(code, f"failed ({code})")
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
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here; --device cpu --tiny shows that every part runs")
        return 1
    run = Run(given.device, given.tiny, given.text, given.pairs)
    if given.here:
        try:
            return 0 if run_part(given.only[0], run, given.out) else 4
        except Missing as missing:
            print(f"  missing: {missing}")
            return 3
    outcomes = in_processes(given.only, run, given.out, without_only(arguments))
    print("\n".join(f"{name}: {outcome}" for name, outcome in outcomes.items()))
    return int(any(o.startswith(("failed", "ran out")) for o in outcomes.values()))


def without_only(arguments: Sequence[str]) -> list[str]:
    """The arguments that each process is given too."""
    kept, skip = [], False
    for argument in arguments:
        skip = argument == "--only" or (skip and not argument.startswith("--"))
        if not skip:
            kept.append(argument)
    return kept


if __name__ == "__main__":
    sys.exit(main())
