"""Compiles the kernels for a device that need not be there: ``python compile_kernels.py CAPABILITY MEMORY``.

A line of JSON each: its name, states, whether the transition matrix is in shared memory, that memory in bytes, and the
bytes a thread spills from registers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from seqmodels.hmm.emissions import triton_mixtures
from seqmodels.inference.chains import triton_kernels
from seqmodels.neural.ops import triton_softmax

POINTERS = {
    **dict.fromkeys(("offsets", "sizes", "lengths", "steps", "target"), "*i64"),
    **{"drifted": "*i32", "logits": "*bf16"},
}
NUMBERS = {
    **dict.fromkeys(("K", "M", "n", "stride", "stride_row"), "i32"),
    **dict.fromkeys(("flush", "drift", "smallest"), "fp32"),
}
TOOLS = Path(triton.backends.nvidia.__path__[0]) / "bin"


def recursion(kernel: Any, n_states: int, capability: int, memory: int) -> dict[str, Any]:
    """What became of a kernel where the states of a frame lie beside each other."""
    options = triton_kernels.options(n_states, memory)
    launch = {name: options.pop(name) for name in ("num_warps", "num_stages")}
    found = compiled(kernel, {**options, "stride_state": 1}, launch, capability)
    return {**found, "states": n_states, "is_shared": options["SHARED"]}


def compiled(kernel: Any, constants: dict[str, Any], launch: dict[str, Any], capability: int) -> dict[str, Any]:
    """What became of a kernel with these constants."""
    signature = {
        name: "constexpr" if name in constants else NUMBERS.get(name, POINTERS.get(name, "*fp32"))
        for name in kernel.arg_names
    }
    position = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    aligned = [["tt.divisibility", 16]]  # as torch allocates
    source = ASTSource(
        kernel,
        signature,
        {position[name]: value for name, value in constants.items()},
        {position[name]: aligned for name, kind in signature.items() if kind.startswith("*")},
    )
    result = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(result.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    stack = re.search(r"STACK:(\d+)", usage)
    assert stack is not None, usage
    return {
        "kernel": kernel.__name__,
        "memory": result.metadata.shared,
        "spilled": int(stack[1]),
    }


if __name__ == "__main__":
    capability, memory = map(int, sys.argv[1:])
    for n_states in (16, 64, 128, 256):
        for kernel in (triton_kernels._forward, triton_kernels._backward):
            print(json.dumps(recursion(kernel, n_states, capability, memory)))
    tile = {"COMPONENTS": 8, "FRAMES": triton_mixtures.TILE // 8}
    print(json.dumps(compiled(triton_mixtures._sum_up, tile, {"num_warps": triton_mixtures.WARPS}, capability)))
    vocabulary = {"V": 50_257, "P": 50_304, "COLUMNS": triton_softmax.COLUMNS}
    launch = {"num_warps": triton_softmax.WARPS}
    print(json.dumps(compiled(triton_softmax._softmax_rows, vocabulary, launch, capability)))
