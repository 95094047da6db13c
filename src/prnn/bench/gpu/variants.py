"""Ways to compute a workload on the GPU: this library, torch.nn, cuDNN's algorithms, and a product launched for every step."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import prnn.nn
from prnn import engine
from prnn.bench.gpu import cudnn, suites
from prnn.bench.gpu.timing import captured
from prnn.bench.gpu.workload import GpuWorkload
from prnn.bench.variants import OURS
from prnn.bench.variants.modules import KINDS
from prnn.errors import PrnnFallbackWarning
from prnn.ops import torch_layer

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Data:
    """What all variants compute from, on the device.

    Attributes:
        x: [T, B, I].
        weights: in the order of torch.nn's parameters.
    """

    x: Tensor
    weights: tuple[Tensor, ...]


@dataclass(frozen=True)
class Variant:
    """A workload made ready.

    Attributes:
        call: enqueues the whole sequence; y, final h, and for an LSTM final c. What is returned may be overwritten by the next call.
        close: releases what Python does not.
        family, plan: this library's choice; empty for peers.
    """

    call: Callable[[], tuple[Tensor, ...]]
    close: Callable[[], None] = lambda: None
    family: str = ""
    plan: str = ""


def draw(workload: GpuWorkload, device: str = "cuda") -> Data:
    """Inputs from a normal distribution and weights as torch.nn initialises them, in the workload's dtype."""
    torch.manual_seed(0)
    x = torch.randn(workload.steps, workload.batch, workload.input, device=device).to(DTYPES[workload.dtype])
    return Data(x, tuple(each.detach() for each in _module(torch.nn, workload, device).parameters()))


def _module(room: Any, workload: GpuWorkload, device: Any) -> torch.nn.Module:
    w = workload
    options = {"proj_size": w.projection} if w.projection else {}
    module: torch.nn.Module = getattr(room, KINDS[w.cell])(
        w.input, w.hidden, w.layers, bidirectional=w.directions == 2, device=device, dtype=DTYPES[w.dtype], **options
    )
    return module.eval()


@contextlib.contextmanager
def float32_math(math: str) -> Iterator[None]:
    """PyTorch's settings for float32: TF32 in cuDNN and in products where `math` is ``tf32``, nowhere where it is ``ieee``."""
    rooms: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [room.allow_tf32 for room in rooms]
    try:
        for room in rooms:
            room.allow_tf32 = math == "tf32"
        yield
    finally:
        for room, value in zip(rooms, before):
            room.allow_tf32 = value


def prepare(name: str, workload: GpuWorkload, data: Data) -> Variant:
    """Make a variant ready.

    Raises:
        CudnnError: cuDNN's algorithm does not do the workload.
    """
    if name.startswith(suites.CUDNN):
        algorithm = name.removeprefix(suites.CUDNN)
        layer = cudnn.Layer(cudnn.load(), workload, algorithm, data.x, data.weights)
        return Variant(layer.forward, layer.close)
    if name in (suites.GEMM, suites.GEMM_LAUNCHED):
        call = gemm_layer(data)
        return Variant(captured(call) if name == suites.GEMM else call)
    call = eager(name, workload, data)
    family, plan = plan_of(call) if name == OURS else ("", "")
    return Variant(captured(call) if workload.timing == "graph" else call, family=family, plan=plan)


def eager(name: str, workload: GpuWorkload, data: Data) -> Callable[[], tuple[Tensor, ...]]:
    """The layers of prnn.nn or torch.nn as their users call them."""
    module = _module(prnn.nn if name == OURS else torch.nn, workload, data.x.device)
    for parameter, weight in zip(module.parameters(), data.weights):
        parameter.data.copy_(weight)

    def call() -> tuple[Tensor, ...]:
        y, state = module(data.x)
        return (y, *state) if isinstance(state, tuple) else (y, state)

    return call


def gemm_layer(data: Data) -> Callable[[], tuple[Tensor, ...]]:
    """A layer of RNN tanh as it is written without a library of recurrent layers: one product and one tanh a step."""
    x, (w_ih, w_hh, b_ih, b_hh) = data.x, data.weights
    steps, batch, hidden = x.shape[0], x.shape[1], w_hh.shape[0]
    bias, transposed = b_ih + b_hh, w_hh.t()

    def call() -> tuple[Tensor, ...]:
        gates = torch.addmm(bias, x.view(-1, x.shape[-1]), w_ih.t()).view(steps, batch, hidden)
        y, h = torch.empty_like(gates), gates.new_zeros(batch, hidden)
        for t in range(steps):
            h = torch.addmm(gates[t], h, transposed, out=y[t]).tanh_()
        return y, h.unsqueeze(0)

    return call


def plan_of(call: Callable[[], object]) -> tuple[str, str]:
    """Family and plan of what `call`, this library's, runs, with a ``;`` between those of different layers.

    Where any layer ran in PyTorch's own implementation the family is suites.FALLBACK, and the plan says why.
    """
    with warnings.catch_warnings(record=True) as caught, _recording(torch_layer, "run") as fallbacks:
        warnings.simplefilter("always", PrnnFallbackWarning)
        with _recording(engine, "prepare_gpu") as executables:
            call()
    if fallbacks:
        reasons = [str(each.message) for each in caught if issubclass(each.category, PrnnFallbackWarning)]
        return suites.FALLBACK, "; ".join(reasons) or "PyTorch's own implementation"
    plans = [each.plan for each in executables]
    return _joined(each.family for each in plans), _joined(str(each) for each in plans)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


@contextlib.contextmanager
def _recording(module: Any, name: str) -> Iterator[list[Any]]:
    """What a function of a module returns, call by call."""
    function, results = getattr(module, name), list[Any]()

    def record(*arguments: Any, **options: Any) -> Any:
        results.append(function(*arguments, **options))
        return results[-1]

    setattr(module, name, record)
    try:
        yield results
    finally:
        setattr(module, name, function)
