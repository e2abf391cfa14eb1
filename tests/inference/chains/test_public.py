"""``seqmodels.inference.chains`` as a user imports it: by its names, on arrays alone."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM
from seqmodels.inference import chains
from seqmodels.inference.chains import filter, forward_backward, log_prob, sample_states, smooth, viterbi
from tests.inference.chains.enumeration import path_probabilities, random_model

pytestmark = pytest.mark.usefixtures("recursions")

F64 = torch.float64


def test_it_imports_nothing_else_of_the_library() -> None:
    """But for what compiles loops of any kind, and multiplies matrices."""
    allowed = (chains.__name__, "seqmodels.common.compiled", "seqmodels.common.onednn")
    for file in Path(chains.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            others = [name for name in names if name.startswith("seqmodels") and not name.startswith(allowed)]
            assert others == [], f"{file.name} imports {others}"


def test_the_textbook_is_there_without_an_import_of_its_own() -> None:
    assert "textbook" in chains.__all__
    assert chains.textbook.__doc__


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_has_what_the_functions_say(dtype: str) -> None:
    rng = np.random.default_rng(0)
    initial, transition, final = random_model(rng, 3, with_final=True, sparse=False)
    emission, x = rng.dirichlet(np.ones(4), 3), [rng.integers(4, size=n) for n in (7, 1, 12)]
    model = HMM.from_parameters(initial, transition, final, emission=emission, dtype=dtype)
    lengths = [len(each) for each in x]
    log_b = torch.as_tensor(np.log(emission.T)[np.concatenate(x)]).to(getattr(torch, dtype))
    chain = (torch.as_tensor(initial), torch.as_tensor(transition), log_b, torch.as_tensor(final))
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    assert_allclose(log_prob(*chain, lengths=lengths), model.log_prob(x), rtol=tolerance)
    assert_allclose(smooth(*chain, lengths=lengths), np.concatenate(model.posterior(x)), atol=tolerance)
    filtered, paths = filter(*chain, lengths=lengths), viterbi(*chain, lengths=lengths)[0]
    assert_allclose(filtered.alpha, np.concatenate(model.filter(x)), atol=tolerance)
    assert paths.tolist() == np.concatenate(model.decode(x)).tolist()
    counts = forward_backward(*chain, lengths=lengths)
    assert_allclose(counts.xi.sum() + len(x), sum(lengths), rtol=1e-6)


def test_drawn_paths_are_as_frequent_as_they_are_probable() -> None:
    rng, n, lengths = np.random.default_rng(1), 20_000, [3, 2]
    initial, transition, _ = random_model(rng, 2, with_final=False, sparse=False)
    b = rng.gamma(0.5, size=(5, 2))
    chain = (torch.as_tensor(initial), torch.as_tensor(transition), torch.as_tensor(b).log())
    drawn = sample_states(*chain, n=n, lengths=lengths, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (5, n)
    for paths, part in zip(drawn.split(lengths), np.split(b, [3]), strict=True):
        joint = path_probabilities(initial, transition, part)
        for path, p in joint.items():
            share = float((torch.tensor(path) == paths.T).all(1).double().mean())
            p /= sum(joint.values())
            assert abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12


def test_an_impossible_sequence_has_no_paths() -> None:
    even, log_b = torch.full((2, 2), 0.5), torch.zeros(3, 2)
    log_b[2] = -torch.inf
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        sample_states(even[0], even, log_b, lengths=[1, 2], generator=torch.Generator())


def test_the_lengths_of_a_padded_batch() -> None:
    """``log_b[mask]`` of (B, T, K) is what the functions take, and a gradient comes back through it."""
    generator = torch.Generator().manual_seed(0)
    padded, lengths = torch.randn(3, 6, 2, generator=generator, dtype=F64).requires_grad_(), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    even = torch.full((2, 2), 0.5, dtype=F64)
    log_prob(even[0], even, padded[mask], lengths=lengths).sum().backward()
    assert padded.grad is not None
    assert_allclose(padded.grad.sum(-1), mask.double(), atol=1e-12)
