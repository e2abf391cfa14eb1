"""A GPU simulated on the CPU: tensors that say they are on another device, and refuse to meet those of the CPU.

    python -m pytest -p tests.simulated_gpu --one-row tests/test_contract.py

As a plugin of pytest it makes ``device="auto"`` stand for that device, so that every test runs on it as it stands. What
a real one refuses is refused: operations on tensors of both devices, a CPU's generator for draws on the device,
``numpy()`` of its tensors, saving them as they are. It computes on the CPU, in Python for each operation: nothing is
said of speed, of kernels made for CUDA, nor of autocast, which is left out.

The device is torch's ``privateuse1`` under the name ``gpu``; its tensors hold one of the CPU, which their operations
are done on (as in ``torch.testing._internal.two_tensor``).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten
CPUGenerator = torch.Generator
MOVES = (aten._to_copy.default, aten.copy_.default, aten._local_scalar_dense.default)
# A tensor of the GPU may be indexed by one of the CPU.
INDEXES = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)


class DeviceMismatchError(RuntimeError):
    """An operation that a GPU would refuse."""


class Backend(_DummyBackendModule):
    """What ``torch.gpu`` has."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


_setup_privateuseone_for_python_backend(rename="gpu", backend_module=Backend())
GPU = torch.device("gpu", 0)
LIBRARY = torch.library.Library("_", "IMPL")
LIBRARY.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")


class GPUTensor(Tensor):
    """``held``, a tensor of the CPU, as one of the device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> GPUTensor:
        result: GPUTensor = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=GPU,
        )
        result.held = held
        return result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"GPUTensor({self.held!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("a tensor of the GPU is saved as it is; move it to the CPU first")

    def __deepcopy__(self, memo: dict[int, Any]) -> GPUTensor:
        if id(self) not in memo:
            result = GPUTensor(self.held.detach().clone()).requires_grad_(self.requires_grad)
            for name, value in vars(self).items():
                if name != "held":  # as that it is a parameter
                    setattr(result, name, value)
            memo[id(self)] = result
        copied: GPUTensor = memo[id(self)]
        return copied

    # Of subclasses torch has these not.

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: GPUTensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.held = value.held

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor.__getitem__(self, without_lists(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        Tensor.__setitem__(self, without_lists(index), value)

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or GPU)


def without_lists(index: Any) -> Any:
    """Lists as tensors, which torch would make on the device."""
    if isinstance(index, tuple):
        return tuple(map(without_lists, index))
    return torch.tensor(index) if isinstance(index, list) else index


class GPUMode(TorchDispatchMode):
    """Within, ``device="gpu"`` makes such tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


# -- operations ------------------------------------------------------------------------------------------------


def call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on what the tensors hold, its results on the device where the operands or ``device`` are."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    on_gpu = any(isinstance(x, GPUTensor) for x in tensors)
    device = kwargs.get("device")
    makes_gpu = on_gpu if device is None else is_gpu(device)
    if on_gpu and func not in MOVES:
        refuse_mixture(func, tensors)
    for generator in tree_leaves((args, kwargs)):
        if isinstance(generator, CPUGenerator) and makes_gpu != is_of_gpu(generator):
            raise DeviceMismatchError(f"{func}: the generator and what is drawn are on two devices")
    if func is aten.copy_.default:
        makes_gpu = isinstance(args[0], GPUTensor)
    if func is aten.is_pinned.default:
        return False
    if func in (aten._pin_memory.default, aten.pin_memory.default):
        return args[0]
    changed = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if device is not None:
        changed["device"] = torch.device("cpu")
    held_args, held_kwargs = tree_map_only(GPUTensor, lambda x: x.held, (args, changed))
    out = FUSED_CELLS.get(func, func)(*held_args, **held_kwargs)
    if not makes_gpu:
        return out
    out = tree_map_only(Tensor, GPUTensor, out)
    is_new = func is aten._to_copy.default or func in FUSED_CELLS or not on_gpu
    return out if is_new else return_and_correct_aliasing(func, args, kwargs, out)


def refuse_mixture(func: Any, tensors: list[Tensor]) -> None:
    """Raise ``DeviceMismatchError`` where a tensor of the CPU is more than a number or an index."""
    for i, x in enumerate(tensors):
        is_index = func in INDEXES and i > 0 and x.dtype in (torch.int64, torch.bool)
        is_written = func._schema.is_mutable and i == 0
        if not isinstance(x, GPUTensor) and (is_written or (x.dim() > 0 and not is_index)):
            raise DeviceMismatchError(f"{func}: a tensor {tuple(x.shape)} of the CPU meets one of the GPU")


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, bias_x: Tensor | None = None, bias_h: Tensor | None = None) -> Any:
    """The fused step of a GPU's LSTM, which a CPU has not."""
    gates = x + h if bias_x is None else x + h + bias_x + bias_h
    i, f, z, o = gates.chunk(4, 1)
    i, f, z, o = i.sigmoid(), f.sigmoid(), z.tanh(), o.sigmoid()
    after = f * c + i * z
    return o * after.tanh(), after, torch.cat([i, f, z, o], 1)


def lstm_cell_backward(
    grad_h: Tensor | None, grad_c: Tensor | None, c: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> Any:
    """Its gradients."""
    i, f, z, o = gates.chunk(4, 1)
    grad_h, t = torch.zeros_like(o) if grad_h is None else grad_h, after.tanh()
    d = grad_h * o * (1 - t * t) + (0 if grad_c is None else grad_c)
    grads = [d * z * i * (1 - i), d * c * f * (1 - f), d * i * (1 - z * z), grad_h * t * o * (1 - o)]
    grad = torch.cat(grads, 1)
    return grad, d * f, grad.sum(0) if has_bias else None


def gru_cell(x: Tensor, h: Tensor, before: Tensor, bias_x: Tensor | None = None, bias_h: Tensor | None = None) -> Any:
    """The fused step of a GPU's GRU."""
    if bias_x is not None and bias_h is not None:
        x, h = x + bias_x, h + bias_h
    x_r, x_z, x_n = x.chunk(3, 1)
    h_r, h_z, h_n = h.chunk(3, 1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * h_n).tanh()
    return (1 - z) * n + z * before, torch.cat([r, z, n, before, h_n], 1)


def gru_cell_backward(grad: Tensor, saved: Tensor, has_bias: bool) -> Any:
    """Its gradients."""
    r, z, n, before, h_n = saved.chunk(5, 1)
    grad_n, grad_z = grad * (1 - z) * (1 - n * n), grad * (before - n) * z * (1 - z)
    grad_r = grad_n * h_n * r * (1 - r)
    grad_x, grad_h = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    return grad_x, grad_h, grad * z, grad_x.sum(0) if has_bias else None, grad_h.sum(0) if has_bias else None


FUSED_CELLS: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}


# -- generators ------------------------------------------------------------------------------------------------

OF_GPU: dict[int, CPUGenerator] = {}  # by address, for torch hands them on as other objects


def is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "gpu"


def is_of_gpu(generator: CPUGenerator) -> bool:
    return generator._cdata in OF_GPU


class GPUGenerator(CPUGenerator):
    device = GPU


class _IsGenerator(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, CPUGenerator)


class Generator(metaclass=_IsGenerator):
    """``torch.Generator``, also of the device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if not is_gpu(device):
            return CPUGenerator(device)
        generator = GPUGenerator()
        OF_GPU[generator._cdata] = generator
        return generator


# -- the plugin ------------------------------------------------------------------------------------------------


def _on_any_device(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def made(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        return make(data, **options).to(device) if is_gpu(device) else make(data, device=device, **options)

    return made


# Before anything of seqmodels is imported, whose functions are made with them.
torch.Generator = Generator  # type: ignore[misc,assignment]
torch.inference_mode = lambda mode=True: torch.no_grad() if mode else torch.enable_grad()  # type: ignore
for name in ("tensor", "as_tensor"):
    setattr(torch, name, _on_any_device(getattr(torch, name)))
torch.__future__.set_overwrite_module_params_on_conversion(True)


def pytest_sessionstart() -> None:
    """Let ``"auto"`` stand for the device, in all of the process."""
    GPUMode().__enter__()
    run = threading.Thread.run

    def run_with_device(thread: threading.Thread) -> None:
        with GPUMode():  # modes are of a thread
            run(thread)

    threading.Thread.run = run_with_device  # type: ignore[method-assign]
    _use_for_auto()


def _use_for_auto() -> None:
    from seqmodels import MaskedTransformer, SequenceModel
    from seqmodels.neural.ops import precision

    def device_of(model: Any) -> torch.device:
        return GPU if model.device == "auto" else torch.device(model.device)

    def without_autocast(name: str, device: torch.device) -> torch.dtype | None:
        return None if is_gpu(device) else original(name, device)

    SequenceModel._device = MaskedTransformer._device = device_of  # type: ignore[method-assign]
    original = precision.autocast_dtype
    for module in list(sys.modules.values()):
        if getattr(module, "autocast_dtype", None) is original:
            module.autocast_dtype = without_autocast  # type: ignore[attr-defined]
