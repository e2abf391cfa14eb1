"""Two processes that share the work end with the model of one, or with one error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch.distributed as dist
import torch.multiprocessing
from numpy.testing import assert_allclose

from seqmodels import (
    GRU,
    HMM,
    LSTM,
    AlignmentHMM,
    Categorical,
    Columns,
    Dynamic,
    GaussianMixture,
    GenerativeClassifier,
    HMMTagger,
    LinearGaussian,
    MaskedTransformer,
    Mixture,
    NGram,
    Poisson,
    Sequences,
    Transformer,
    TransformerSeq2Seq,
)
from seqmodels.common import distributed
from seqmodels.hmm import HSMM, ChainInputEffects, ChainTraining, ContinuousTimeHMM, MarkovSwitchingAR
from seqmodels.hmm.learning import em
from seqmodels.model import SequenceModel
from seqmodels.neural import MaskedTransformerArchitecture, scoring
from seqmodels.neural import model as neural_model
from seqmodels.training import AdamW, BatchResult, GradientTraining, Schedule, TrainConfig, shards, train
from tests.made import made

processes = pytest.mark.slow  # some forty fits, in two processes and in one
MOST_SECONDS = 5.0  # between an error in one process and the end of the other


def vectors() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    levels = np.tile(np.repeat([[0.0, 3.0], [3.0, 0.0]], 3, 0), (5, 1))  # which come again: a walk would be warned of
    return [levels[:n] + rng.normal(size=(n, 2)) for n in (30, 7, 18, 25, 1)]


def timed() -> Sequences:
    return Sequences(vectors(), times=[np.cumsum(1.0 + x[:, 0] ** 2) for x in vectors()])


def symbols() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 4, size=n) for n in (30, 7, 18, 25, 1)]


def hmm(**options: Any) -> HMM:
    settings = {"observation": GaussianMixture(2), "dtype": "float64", "tol": 0, "n_init": 1}
    return made(HMM, 3, **settings).set_params(**options)


def text() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 4, size=400)


SMALL: dict[str, Any] = {
    "d_model": 8,
    "dropout": 0,
    "training": GradientTraining(precision="float32"),
}  # bfloat16 rounds more


def lstm(**options: Any) -> LSTM:
    """Of one long sequence: parts of it are read side by side, and their states carried on."""
    settings = {"max_steps": 12, "batch_size": 3, "bptt": 12, "training__accumulate": 2, "training__averaging": 0.2}
    return LSTM(**SMALL).set_params(**(settings | options))


def transformer(**options: Any) -> Transformer:
    return Transformer(n_layers=2, max_steps=12, context=16, **SMALL).set_params(**options)


@dataclass(eq=False, repr=False)
class Shaped(Schedule):
    """Of any shape, by a function."""

    shape: Callable[[float], float]

    def at(self, progress: float) -> float:
        return self.shape(progress)


def on_other_cores(fit: Callable[[], SequenceModel]) -> SequenceModel:
    """Each process on one thread more than the one before it, with batches of a few windows for each thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1 + distributed.rank())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scoring, "STEPS_IN_CACHE", 16)
            return fit()
    finally:
        torch.set_num_threads(n_threads)


GIVEN: dict[str, Any] = {"input_effects__transitions": True, "input_effects__emissions": True, "pseudocount": 0.1}


def with_inputs(items: list[np.ndarray] | None = None) -> Sequences:
    """Vectors of a real number and a count, or symbols, with two inputs."""
    rng = np.random.default_rng(3)
    items = [np.stack([x[:, 0], np.floor(np.abs(x[:, 1]))], 1) for x in vectors()] if items is None else items
    return Sequences(items, inputs=[rng.normal(size=(len(x), 2)) for x in items])


WORDS = ["ab", "ba", "a", "bb"] * 4
FITS: dict[str, Callable[[], SequenceModel]] = {
    "em": lambda: hmm(max_iter=8, n_init=2).fit(vectors()),
    "em given inputs": lambda: hmm(
        max_iter=5, n_init=1, observation=Columns([(GaussianMixture(1), 1), (Poisson(0.1), 1)]), **GIVEN
    ).fit(with_inputs()),
    "em of symbols given inputs": lambda: hmm(
        max_iter=5, n_init=1, observation=Categorical(0.1), length="given", **GIVEN
    ).fit(with_inputs(symbols())),
    "em of one": lambda: hmm(max_iter=8, n_init=2).fit(vectors()[:1]),
    "semi-Markov": lambda: HSMM(2, max_duration=9, max_iter=4, n_init=2).fit(vectors(), sample_weight=[1, 2, 1, 2, 3]),
    "semi-Markov, stepwise": lambda: (
        HSMM(2, max_duration=9, algorithm="stepwise", training=ChainTraining(batches=3), max_iter=3)
        .fit(vectors())
        .partial_fit(vectors())
    ),
    "semi-Markov, durations given inputs": lambda: HSMM(
        2, max_duration=9, max_iter=4, n_init=2, left_censored=True, input_effects=ChainInputEffects(durations=True)
    ).fit(with_inputs(vectors()), sample_weight=[1, 2, 1, 2, 3]),
    "semi-Markov, gradient": lambda: HSMM(2, max_duration=9, algorithm="gradient", max_iter=8).fit(vectors()),
    "semi-Markov, variational": lambda: HSMM(
        2, durations="categorical", max_duration=9, algorithm="variational", max_iter=4, n_init=1
    ).fit(vectors(), sample_weight=[1, 2, 1, 2, 3]),
    "continuous time": lambda: ContinuousTimeHMM(2, max_iter=4, n_init=2).fit(timed(), sample_weight=[1, 2, 1, 2, 3]),
    "continuous time, stepwise": lambda: (
        ContinuousTimeHMM(2, algorithm="stepwise", training=ChainTraining(batches=3), max_iter=3)
        .fit(timed())
        .partial_fit(timed())
    ),
    "continuous time, variational": lambda: ContinuousTimeHMM(2, algorithm="variational", max_iter=4, n_init=1).fit(
        timed()
    ),
    "deviations, gradient": lambda: MarkovSwitchingAR(2, 1, algorithm="gradient", max_iter=8).fit(vectors()),
    "system": lambda: LinearGaussian(2, max_iter=4).fit(vectors(), sample_weight=[1, 2, 1, 2, 3]),
    "deviations": lambda: MarkovSwitchingAR(2, 2, max_iter=4, n_init=2).fit(vectors(), sample_weight=[1, 2, 1, 2, 3]),
    "deviations given inputs": lambda: MarkovSwitchingAR(
        2, 1, max_iter=4, n_init=1, input_effects=ChainInputEffects(transitions=True)
    ).fit(with_inputs(vectors())),
    "gradient": lambda: hmm(algorithm="gradient", max_iter=20).fit(vectors(), sample_weight=[1, 2, 1, 2, 3]),
    "stepwise": lambda: hmm(algorithm="stepwise", max_iter=5, training__batches=3).fit(vectors()),
    "partial_fit": lambda: hmm(max_iter=2).fit(vectors()).partial_fit(vectors()).partial_fit(vectors()),
    "alignment": lambda: AlignmentHMM(window=1).fit(WORDS, [word.upper() for word in WORDS]),
    "tagger": lambda: HMMTagger(n_states_per_label=2, max_iter=5, dtype="float64").fit(
        symbols(), [x // 2 for x in symbols()]
    ),
    "dynamic": lambda: Dynamic(GRU(**SMALL, max_steps=4), segment=6, lr=0.01, decay=0.1).fit(symbols()),
    "mixture": lambda: Mixture(
        [NGram(2), hmm(max_iter=3, observation="auto")], held_out=0.3, refit=True, dtype="float64"
    ).fit(symbols() * 2),
    "ngram": lambda: NGram(3).fit(symbols()),
    "network": lambda: lstm().fit([text()]),
    "network in shards": lambda: transformer(training__parallel="shard").fit([text()]),
    "batches of one": lambda: Transformer(**SMALL, n_layers=1, max_steps=6, batch_size=1).fit(symbols()),
    "vectors": lambda: GRU(**SMALL, max_steps=6).fit(vectors(), sample_weight=[1, 2, 1, 2, 0.3]),
    "validation": lambda: GRU(**SMALL, max_steps=4).fit(symbols(), validation=(x for x in symbols()[2:4])),
    "validation on other cores": lambda: on_other_cores(
        lambda: transformer(max_steps=4).fit(symbols(), validation=symbols())
    ),
    "seq2seq": lambda: (
        TransformerSeq2Seq(**SMALL, n_layers=1, max_steps=6)
        .set_params(training__parallel="shard", training__optimizer=AdamW())  # Muon's bfloat16 enlarges rounding
        .fit(WORDS, [word.upper() for word in WORDS])
    ),
    "what no file holds": lambda: (
        GRU(**SMALL, max_steps=3).set_params(training__schedule=Shaped(lambda p: 1 - p)).fit(symbols())
    ),
    "classifier": lambda: (
        GenerativeClassifier(HMM(1, max_iter=3, n_init=2, dtype="float64"), calibrate=False)
        .fit(symbols()[:4], [0, 0, 1, 1])
        .models_[1]
    ),
}
AS_ONE = {
    "em": 1e-10,
    "em given inputs": 1e-8,
    "em of symbols given inputs": 1e-8,
    "em of one": 1e-10,
    "deviations": 1e-10,
    "deviations given inputs": 1e-6,  # the M-step of transitions is a search
    "semi-Markov": 1e-8,  # its M-step of durations is a search
    "semi-Markov, stepwise": 1e-10,
    "semi-Markov, durations given inputs": 1e-10,
    "semi-Markov, gradient": 1e-8,
    "semi-Markov, variational": 1e-10,
    "continuous time": 1e-10,
    "continuous time, stepwise": 1e-10,
    "continuous time, variational": 1e-10,
    "deviations, gradient": 1e-10,
    "system": 1e-10,
    "gradient": 1e-10,
    "stepwise": 1e-10,
    "partial_fit": 1e-10,
    "classifier": 1e-10,
    "tagger": 1e-10,
    "offset": 1e-10,
    "mixture": 1e-10,
    **dict.fromkeys(
        (
            "network",
            "network in shards",
            "batches of one",
            "vectors",
            "validation",
            "validation on other cores",
            "what no file holds",
            "seq2seq",
            "masked",
            "dynamic",
        ),
        1e-5,
    ),
}  # others: exactly


def numbers(model: Any) -> dict[str, np.ndarray]:
    """All that was fitted, and the history but for its seconds, which are those of process 0."""
    kept = {"history": model.history_.drop(columns="seconds", errors="ignore").to_numpy(dtype=float)}
    if not isinstance(model, SequenceModel):
        return kept | leaves(parameters(model))
    for name, member in model._members().items():
        kept |= {f"/members/{name}/{path}": leaf for path, leaf in numbers(member).items()}
    return kept | leaves(model._state())


def parameters(model: MaskedTransformer) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.module_.state_dict().items()}


def leaves(state: Any, path: str = "") -> dict[str, np.ndarray]:
    if not isinstance(state, dict):
        return {path: np.asarray(np.nan if state is None else state)}
    return {name: leaf for key, value in state.items() for name, leaf in leaves(value, f"{path}/{key}").items()}


def bad_input(rank: int) -> None:
    x = vectors()
    if rank == 1:
        x[3][2, 0] = np.inf
    hmm(max_iter=3).fit(x)


def other_data(rank: int) -> None:
    hmm(max_iter=3).fit(vectors()[rank:])


def other_setting(rank: int) -> None:
    hmm(max_iter=3 + rank).fit(vectors())


def other_order(rank: int) -> None:
    hmm(max_iter=3).fit(vectors()[:: 1 - 2 * rank])


def alike_in_all(rank: int) -> None:
    HMM(0).fit(vectors())


def inside(rank: int) -> None:
    """One process runs out of memory in the middle of EM."""
    if rank == 1:
        fail_in_the_middle()
    hmm(max_iter=30).fit(vectors())


def other_words(rank: int) -> None:
    """An error whose message no encoding can hold: of half a surrogate pair."""

    def fail() -> None:
        raise ValueError("no symbol \ud83d")

    if rank == 1:
        at_step(4, fail)
    hmm(max_iter=30).fit(vectors())


def fail_in_the_middle() -> None:
    def no_memory() -> None:
        raise MemoryError("no memory left")

    at_step(4, no_memory)


def at_step(number: int, act: Callable[[], None]) -> None:
    """Do something before an M-step, once."""
    real, calls = em.m_step, list[int]()

    def acting(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            em.m_step = real
            act()
        return real(*arguments)

    em.m_step = acting


def no_memory(*_: Any) -> None:
    raise MemoryError("no memory left")


def in_forward_pass(rank: int) -> None:
    network_fails(lambda result: no_memory() if rank == 1 else None)


def in_backward_pass(rank: int) -> None:
    network_fails(lambda result: result.weighted_log_prob.register_hook(no_memory) if rank == 1 else None)


def network_fails(act: Callable[[BatchResult], Any]) -> None:
    """Fit a network, and do something with the third part of a batch."""
    real, calls = neural_model._Objective.__call__, list[int]()

    def acting(*arguments: Any) -> BatchResult:
        result = real(*arguments)
        calls.append(1)
        if len(calls) == 3:
            act(result)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural_model._Objective, "__call__", acting)
        lstm().fit([text()])


def in_callback(rank: int) -> None:
    """Which process 0 alone calls."""
    lstm(training__callbacks=[no_memory]).fit([text()])


def between_steps_of_shards(rank: int) -> None:
    lstm(training__callbacks=[no_memory], training__parallel="shard").fit([text()])


def in_checkpoint_of_shards(rank: int) -> None:
    """Where its folder is to stand, there is a file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.ckpt.shards").touch()
        transformer(training__checkpoint=f"{folder}/run.ckpt", training__parallel="shard").fit([text()])


FAILURES: dict[str, Callable[[int], None]] = {
    f.__name__: f
    for f in (
        bad_input,
        other_data,
        other_setting,
        other_order,
        alike_in_all,
        inside,
        other_words,
        in_forward_pass,
        in_backward_pass,
        in_callback,
        between_steps_of_shards,
        in_checkpoint_of_shards,
    )
}


def interrupted(rank: int, folder: str) -> dict[str, Any]:
    """A signal to one process alone: during EM, which then goes on; and while it waits for a network."""
    path = f"{folder}/em.ckpt" if rank == 0 else "written by process 0 alone"
    model = hmm(max_iter=20, training__checkpoint=path, training__resume_from="auto")
    if rank == 1:
        at_step(10, lambda: signal.raise_signal(signal.SIGINT))
    em = model.fit(vectors())
    lines, was_interrupted = len(em.history_), em.interrupted_
    model.fit(vectors())
    whole = hmm(max_iter=20).fit(vectors())
    if rank == 1:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.perf_counter()
    network = LSTM(d_model=8, max_steps=None, max_seconds=60).fit(symbols())
    return {
        "em": (was_interrupted, lines),
        "goes on": (len(em.history_), bool((em.means_ == whole.means_).all())),
        "network": (network.interrupted_, time.perf_counter() - began < MOST_SECONDS),
    }


STOPPED: dict[str, Callable[..., SequenceModel]] = {
    "lstm.replicate": lambda **options: lstm(**options),
    "lstm.shard": lambda **options: lstm(**options, training__parallel="shard"),
    "transformer.shard": lambda **options: transformer(**options, training__parallel="shard"),
}  # runs that go on from the middle with another number of processes


def stop(name: str, path: str, **options: Any) -> None:
    """A run that a signal ends half-way, with its checkpoint."""
    rows: list[dict[str, float]] = []

    def interrupt(row: dict[str, float]) -> None:
        rows.append(row)
        if len(rows) == 6:
            signal.raise_signal(signal.SIGINT)

    STOPPED[name](training__checkpoint=path, training__callbacks=[interrupt], **options).fit([text()])


def go_on(name: str, path: str, **options: Any) -> dict[str, np.ndarray]:
    return numbers(STOPPED[name](training__resume_from=path, **options).fit([text()]))


def warnings_of() -> list[str]:
    """What training in shards warns of."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        transformer(max_steps=2, training__parallel="shard").fit([text()])
    return [str(warning.message) for warning in given]


def draws(rank: int) -> list[list[float]]:
    """What an objective draws at each step of two equal runs."""

    def run() -> list[float]:
        generator, module, drawn = torch.Generator().manual_seed(5), torch.nn.Linear(1, 1), list[float]()

        def objective(batch: float) -> BatchResult:
            drawn.append(float(torch.rand((), generator=generator)))
            return BatchResult(batch * module.weight.sum(), 2.0, torch.zeros(()), 1.0, torch.zeros(()))

        config = TrainConfig(4, None, None, 0.01, 0.0, 1)
        train(module, lambda _: [1.0] * 4, objective, None, config, 4, generator=generator, parallel="replicate")
        return drawn

    return [run(), run()]


def started_by_torchrun(rank: int, port: int, life: int) -> None:
    """The environment of a process that has been started again ``life`` times."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": str(life),
    }


def work(rank: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started_by_torchrun(rank, port, life=0)
    distributed.join(timeout=60.0)
    found = {f"{name}{path}": leaf for name, fit in FITS.items() for path, leaf in numbers(fit()).items()}
    masked = MaskedTransformer(
        d_model=8, n_layers=1, max_steps=5, dropout=0, architecture=MaskedTransformerArchitecture(bias=False)
    ).fit(symbols())
    found |= {f"masked{path}": leaf for path, leaf in numbers(masked).items()}
    for name in STOPPED:
        stop(name, f"{folder}/{name}.2")
        for path, leaf in go_on(name, f"{folder}/{name}.1").items():
            found[f"{name} from 1 to 2{path}"] = leaf
        for path, leaf in go_on(name, f"{folder}/{name}.2").items():
            found[f"{name} from 2 to 2{path}"] = leaf
    stop("lstm.replicate", f"{folder}/dropout.2", dropout=0.3)
    for when, model in {
        "again": lstm(dropout=0.3),
        "before": lstm(dropout=0.3),
        "resumed": lstm(dropout=0.3, training__resume_from=f"{folder}/dropout.2"),
    }.items():
        found |= {f"dropout {when}{path}": leaf for path, leaf in numbers(model.fit([text()])).items()}
    np.savez(f"{folder}/{rank}.npz", **cast(dict[str, Any], found))
    errors: dict[str, Any] = {}
    for name, fail in FAILURES.items():
        began = time.perf_counter()
        try:
            fail(rank)
            errors[name] = "none", "", 0.0
        except BaseException as error:
            kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
            errors[name] = kind, str(error), time.perf_counter() - began
    signals = interrupted(rank, folder)
    limited = [hmm(max_iter=10**6, max_seconds=0.3, algorithm=name) for name in ("em", "stepwise", "gradient")]
    clock = time.perf_counter
    if rank == 1:  # a clock that runs ten times as fast
        time.perf_counter = lambda: 10 * clock()
    lengths = [len(model.fit(vectors()).history_) for model in limited]
    time.perf_counter = clock
    told = {"errors": errors, "lengths": lengths, "signals": signals, "draws": draws(rank), "warnings": warnings_of()}
    Path(f"{folder}/{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()
    started_by_torchrun(rank, port, life=1)
    distributed.join(timeout=20.0)
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in STOPPED:
            stop(name, f"{folder}/{name}.1")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(work, (str(folder), store.port), nprocs=2)
    return folder


def told(folder: Path, rank: int) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads((folder / f"{rank}.json").read_text()))


@processes
def test_all_processes_end_with_one_model(ran: Path) -> None:
    first, second = (np.load(ran / f"{rank}.npz") for rank in range(2))
    assert sorted(first) == sorted(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@processes
@pytest.mark.parametrize("name", FITS)
def test_it_is_the_model_of_one_process(ran: Path, name: str) -> None:
    found = np.load(ran / "1.npz")
    tolerance = AS_ONE.get(name, 0.0)
    for path, alone in numbers(FITS[name]()).items():
        if alone.dtype.kind == "U":
            assert found[name + path] == alone, path
        else:
            assert_allclose(found[name + path], alone, rtol=tolerance, atol=tolerance, err_msg=path)


@processes
def test_a_masked_model_is_that_of_one_process(ran: Path) -> None:
    found = np.load(ran / "1.npz")
    alone = numbers(
        MaskedTransformer(
            d_model=8, n_layers=1, max_steps=5, dropout=0, architecture=MaskedTransformerArchitecture(bias=False)
        ).fit(symbols())
    )
    for path, leaf in alone.items():
        assert_allclose(found[f"masked{path}"], leaf, rtol=1e-5, atol=1e-5, err_msg=path)


@processes
@pytest.mark.parametrize("name", STOPPED)
def test_a_network_goes_on_with_another_number_of_processes(ran: Path, name: str) -> None:
    found = np.load(ran / "1.npz")
    alone = numbers(STOPPED[name]().fit([text()]))
    resumed = {way: {path: found[f"{name} from {way}{path}"] for path in alone} for way in ("1 to 2", "2 to 2")}
    resumed["2 to 1"] = go_on(name, str(ran / f"{name}.2"))
    for way, leaves_of in resumed.items():
        for path, leaf in alone.items():
            assert_allclose(leaves_of[path], leaf, rtol=1e-5, atol=1e-5, err_msg=f"{way}{path}")
    assert (ran / f"{name}.2.shards").is_dir() == name.endswith("shard")


@processes
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("harm", ["missing", "short"])
def test_shards_that_are_not_all_there_are_refused(ran: Path, tmp_path: Path, which: int, harm: str) -> None:
    name = "transformer.shard.2"
    shutil.copy(ran / name, tmp_path)
    shutil.copytree(ran / f"{name}.shards", tmp_path / f"{name}.shards")
    file = sorted((tmp_path / f"{name}.shards").rglob("*.safetensors"))[which]
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cannot be read|other hyperparameters"):
        go_on("transformer.shard", str(tmp_path / name))


@processes
def test_processes_draw_their_own_numbers_which_are_those_of_a_run_without_a_break(ran: Path) -> None:
    (first, again), (second, _) = (told(ran, rank)["draws"] for rank in range(2))
    assert first == again
    assert len({*first, *second}) == 8
    found = np.load(ran / "0.npz")
    for name in (name for name in found if name.startswith("dropout before")):
        path = name.removeprefix("dropout before")
        np.testing.assert_allclose(found[f"dropout again{path}"], found[name], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[f"dropout resumed{path}"], found[name], rtol=1e-5, atol=1e-5)


@processes
def test_an_error_in_one_process_stops_all_on_one_message(ran: Path) -> None:
    expected = {
        "bad_input": ("ValueError", "process 1 of 2 failed, so all stop: ValueError: sequence 3 "),
        "other_data": ("ValueError", "the processes differ in the data X"),
        "other_order": ("ValueError", "the processes differ in the data X"),
        "other_setting": ("ValueError", "the processes differ in the setting max_iter: 3 in process 0; 4 in process 1"),
        "inside": ("ProcessError", "process 1 of 2 failed, so all stop: MemoryError: no memory left"),
        "other_words": ("ValueError", "process 1 of 2 failed, so all stop: ValueError: no symbol \\ud83d"),
        "in_forward_pass": ("ProcessError", "process 1 of 2 failed, so all stop: MemoryError: no memory left"),
        "in_backward_pass": ("ProcessError", "process 1 of 2 failed, so all stop: MemoryError: no memory left"),
        "between_steps_of_shards": ("ProcessError", "process 0 of 2 failed, so all stop: MemoryError: no memory left"),
        "in_checkpoint_of_shards": ("ProcessError", "process 0 of 2 failed, so all stop: NotADirectoryError: "),
        "in_callback": ("ProcessError", "process 0 of 2 failed, so all stop: MemoryError: no memory left"),
    }
    for name, (kind, message) in expected.items():
        for rank in range(2):
            found_kind, found, seconds = told(ran, rank)["errors"][name]
            assert found_kind == kind, f"{name}: {found}"
            assert found.startswith(message)
            assert seconds < MOST_SECONDS
        assert told(ran, 0)["errors"][name][1] == told(ran, 1)["errors"][name][1]


def test_an_error_that_leaves_the_others_in_the_middle_of_a_step_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    with pytest.raises(distributed.LostProcessError, match="MemoryError: no memory left"), shards._naming_process():
        no_memory()


@processes
def test_training_in_shards_does_not_warn(ran: Path) -> None:
    assert [told(ran, rank)["warnings"] for rank in range(2)] == [[], []]


@processes
def test_an_error_in_all_processes_is_as_in_one(ran: Path) -> None:
    for rank in range(2):
        kind, text = told(ran, rank)["errors"]["alike_in_all"][:2]
        assert kind == "ValueError"
        assert text.startswith("n_states is 0; pass at least 1")


@processes
def test_a_signal_to_one_process_ends_training_in_all(ran: Path) -> None:
    for rank in range(2):
        found = told(ran, rank)["signals"]
        assert found["em"][0]
        assert 10 <= found["em"][1] <= 12
        assert found["network"] == [True, True]
    assert told(ran, 0)["signals"] == told(ran, 1)["signals"]


@processes
def test_a_job_goes_on_from_the_checkpoint_of_the_first_process(ran: Path) -> None:
    for rank in range(2):
        assert told(ran, rank)["signals"]["goes on"] == [21, True]


@processes
def test_the_clock_of_the_first_process_ends_all(ran: Path) -> None:
    lengths = [told(ran, rank)["lengths"] for rank in range(2)]
    assert lengths[0] == lengths[1]
    assert min(lengths[0]) >= 2


def test_the_first_process_alone_shows_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_first in (True, False):
        monkeypatch.setattr("seqmodels.training.em.is_rank_zero", lambda is_first=is_first: is_first)
        hmm(max_iter=2, verbose=True).fit(vectors())
        assert ("nats per unit" in capsys.readouterr().err) == is_first


def test_one_process_has_all() -> None:
    assert distributed.shard([3, 1, 2]) == [3, 1, 2]
    (total,), numbers = distributed.all_reduce_sum([torch.ones(2, dtype=torch.float64)], [2.5])
    assert total.tolist() == [1.0, 1.0]
    assert numbers == [2.5]


def test_a_job_that_is_started_again_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "em.ckpt")
    half = hmm(max_iter=4, training__checkpoint=path, training__resume_from="auto").fit(vectors())
    again = hmm(max_iter=4, training__checkpoint=path, training__resume_from="auto").fit(vectors())
    assert again.history_["seconds"].tolist() == half.history_["seconds"].tolist(), "it was there already"
    with pytest.raises(ValueError, match="resume_from is 'auto'"):
        hmm(training__resume_from="auto").fit(vectors())


def test_processes_that_are_started_again_do_not_find_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    server, stores = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), list[Any]()
    monkeypatch.setattr(dist, "init_process_group", lambda *_, store, **__: stores.append(store))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for life in range(2):
        started_by_torchrun(0, server.port, life)
        distributed.join()
    stores[0].set("address", "of the process before")
    assert stores[0].check(["address"])
    assert not stores[1].check(["address"])


def test_a_process_that_torchrun_did_not_start_joins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    distributed.join()
    assert not dist.is_initialized()
    assert not distributed.is_distributed()


def test_work_of_one_process_ends_when_another_is_lost_also_where_sigint_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise distributed.LostProcessError("process 1 of 2 stopped answering")

    def train() -> None:
        with distributed._heartbeats():
            end = time.monotonic() + 10
            while not distributed.stop_agreed() and time.monotonic() < end:
                time.sleep(0.01)
            assert distributed.stop_agreed(), "a training loop would go on"

    monkeypatch.setattr(distributed, "_exchange", lost)
    monkeypatch.setattr(distributed, "HEARTBEAT", 0.01)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job that a shell starts in the background
    try:
        with pytest.raises(distributed.LostProcessError, match="stopped answering"):
            train()
    finally:
        signal.signal(signal.SIGINT, before)
        distributed.clear_stop_requests()
