"""Steps on buffers of full length are those of a growing cache; what is replayed is here the computation itself."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.incremental import TransformerStepper
from seqmodels.neural.transformer.network import TransformerNetwork
from seqmodels.neural.transformer.static_step import GraphedStepper, Replay, capture_cuda_graph

V, N, T = 5, 3, 9
OPTIONS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary", "activation": "relu2", "bias": False},
    "learned": {"positions": "learned", "activation": "gelu"},
    "shared keys, normalised": {"n_heads": 4, "n_kv_heads": 2, "qk_norm": True},
}


@dataclass
class Called:
    """Stands for a graph: a replay calls the computation."""

    replay: Callable[[], None]


@dataclass
class CountedCapture:
    count: int = 0

    def __call__(self, compute: Callable[[], None], device: torch.device) -> Replay:
        assert device.type == "cpu"
        self.count += 1
        return Called(compute)


def steppers(name: str = "rotary") -> tuple[TransformerNetwork, TransformerStepper, GraphedStepper]:
    """Of random weights in float64."""
    config = TransformerConfig(**({"d_model": 8, "n_layers": 2, "n_heads": 2, "dropout": 0.0} | OPTIONS[name]))
    network = TransformerNetwork(config, max_length=T, convolution_lags=2)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4, generator=generator)
    plain = network.double().eval().stepper()
    assert isinstance(plain, TransformerStepper)
    return network, plain, GraphedStepper(plain, CountedCapture())


def projected(length: int, n: int = N) -> Tensor:
    """What inputs of random symbols add to steps, ``(length, n, 3 · 8)``."""
    table = torch.randn(V, 24, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return table[torch.randint(V, (length, n), generator=torch.Generator().manual_seed(1))]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("inference", [False, True])
def test_static_buffers_give_the_steps_of_a_growing_cache(name: str, inference: bool) -> None:
    network, plain, graphed = steppers(name)
    with torch.inference_mode(inference), torch.no_grad():
        expected, state = (each.converted(network.start(N)) for each in (plain, graphed))
        for step in projected(T):
            expected_hidden, expected = plain.step(step.clone(), expected)
            hidden, state = graphed.step(step.clone(), state)
            torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=1e-12)
    assert graphed.capture.count == 1


@torch.no_grad()
def test_states_are_values() -> None:
    """A state that another has gone on from goes on in buffers of its own, and what was said before stays."""
    network, plain, graphed = steppers()
    start, expected_start = graphed.converted(network.start(N)), plain.converted(network.start(N))
    x = projected(6)
    first, state = graphed.step(x[0].clone(), start)
    _, expected = plain.step(x[0].clone(), expected_start)
    kept, branches = first.clone(), []
    for step in (x[1], x[2], x[1]):
        hidden, after = graphed.step(step.clone(), state)
        branches.append(after)
        torch.testing.assert_close(hidden, plain.step(step.clone(), expected)[0], rtol=0, atol=1e-12)
    for branch, step in zip(branches, (x[1], x[2], x[1]), strict=True):
        expected_hidden = plain.step(x[3].clone(), plain.step(step.clone(), expected)[1])[0]
        torch.testing.assert_close(graphed.step(x[3].clone(), branch)[0], expected_hidden, rtol=0, atol=1e-12)
    assert torch.equal(first, kept)
    index = torch.tensor([2, 0])
    selected, expected_selected = graphed.select(state, index), plain.select(expected, index)
    hidden, expected_hidden = (
        graphed.step(x[4, :2].clone(), selected)[0],
        plain.step(x[4, :2].clone(), expected_selected)[0],
    )
    torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=1e-12)


@torch.no_grad()
def test_buffers_are_used_again() -> None:
    network, _, graphed = steppers()
    for _ in range(3):
        state = graphed.converted(network.start(N))
        for step in projected(4):
            _, state = graphed.step(step.clone(), state)
        del state
        gc.collect()
    assert graphed.capture.count == 1


@torch.no_grad()
def test_steps_past_the_longest_length_are_those_of_torch() -> None:
    network, plain, graphed = steppers()
    expected, state = plain.converted(network.start(1)), graphed.converted(network.start(1))
    for step in projected(T + 3, 1):
        expected_hidden, expected = plain.step(step.clone(), expected)
        hidden, state = graphed.step(step.clone(), state)
        torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=1e-12)


def test_a_capture_is_on_the_device_and_the_stream_that_are_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is called of ``torch.cuda``, which stands for a device here."""
    current: list[str] = ["default"]
    computed_on: list[tuple[str, ...]] = []

    class Stream:
        def wait_stream(self, other: Stream) -> None:
            pass

    @contextmanager
    def entered(name: str) -> Iterator[None]:
        current.append(name)
        yield
        current.pop()

    def graph(graph: object, *, stream: Stream, capture_error_mode: str) -> Any:
        assert capture_error_mode == "thread_local"
        return entered(f"capture on {id(stream)}")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "device", lambda device: entered(str(device)))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered(f"{id(stream)}"))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    capture_cuda_graph(lambda: computed_on.append(tuple(current)), torch.device("cuda:1"))
    stream = computed_on[0][-1]
    assert computed_on == [("default", "cuda:1", stream)] * 2 + [("default", "cuda:1", f"capture on {stream}")]


def refuse(compute: Callable[[], None], device: torch.device) -> Replay:
    raise RuntimeError("operation not permitted when stream is capturing")


@torch.no_grad()
@pytest.mark.parametrize(
    ("capture", "reason"), [(refuse, "not permitted"), (lambda *_: Called(lambda: None), "a replay did not compute")]
)
def test_a_failed_capture_is_said_once_and_steps_go_on(capture: Any, reason: str) -> None:
    network, plain, _ = steppers()
    graphed = GraphedStepper(plain, capture)
    state = expected = plain.converted(network.start(N))
    with pytest.warns(UserWarning, match=f"could not be captured as a graph: .*{reason}"):
        hidden, state = graphed.step(projected(1)[0].clone(), state)
    for step in projected(3)[1:]:
        hidden, state = graphed.step(step.clone(), state)
    for step in [projected(1)[0], *projected(3)[1:]]:
        expected_hidden, expected = plain.step(step.clone(), expected)
    torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=1e-12)
