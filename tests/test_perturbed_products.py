"""The plugin that rounds products otherwise: what it changes, what it keeps, and that it waits to be started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERTURBED = """
import threading
import torch
from tests import perturbed_products

torch.manual_seed(0)
a, x = torch.rand(40, 40, dtype=torch.float64), torch.rand(40, dtype=torch.float64)
kept = torch.tensor([[0.0, torch.inf, torch.nan]])
weights = torch.rand(40, 40, requires_grad=True)
lstm, sequences = torch.nn.LSTM(4, 4), torch.rand(2, 5, 4)

def products():
    weights.grad = None
    (weights @ weights).sum().backward()
    stacked = a.expand(3, 40, 40)
    yield from (a @ a, a @ x, x @ x, torch.addmm(a, a, a), torch.addmv(x, a, x), stacked @ stacked)
    yield from (torch.baddbmm(stacked, stacked, stacked), torch.einsum("ij,kj->ik", a, a), a.clone().addmm_(a, a))
    yield from (torch.nn.functional.linear(a, a, x), torch.mm(a, a, out=torch.empty_like(a)), a.float() @ a.float())
    yield from (a.bfloat16() @ a.bfloat16(), lstm(sequences)[0], weights.grad)
    with torch.inference_mode():
        yield torch.nn.functional.linear(a, a)
    thread = threading.Thread(target=lambda: found.append(a @ a))
    found = []
    thread.start()
    thread.join()
    yield found[0]

with torch.random.fork_rng():
    before = [x.detach().clone() for x in products()]
state = torch.get_rng_state()
print(torch.equal(a @ a, a @ a))
perturbed_products.start()
perturbed_products.SIGNS.manual_seed(0)
for one, other in zip(before, products(), strict=True):
    change = ((other.double() - one.double()) / one.double()).abs().max() / torch.finfo(one.dtype).eps
    print("changed" if 0.4 < change < 20 else (one.shape, float(change)))
print(torch.equal(a @ a, a @ a))
print((torch.ones(1, 1) @ kept).tolist(), (torch.full((1, 1), 3) @ torch.full((1, 1), 3)).tolist())
print(torch.equal(state, torch.get_rng_state()))
"""


def test_it_changes_the_last_digit_of_products_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", PERTURBED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = ["True", *["changed"] * 17, "False", "[[0.0, inf, nan]] [[9]]", "True"]
    assert done.stdout.splitlines() == lines
