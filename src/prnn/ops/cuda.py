"""The operators on CUDA tensors: the input product, the launches of the GPU's kernels, and PyTorch's own layers where they cannot run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prnn import engine
from prnn.errors import BuildError, MissingDependency, PrnnFallbackWarning, UnsupportedProblem
from prnn.kernels import gpu, launched
from prnn.kernels.gpu import Features
from prnn.ops import torch_layer
from prnn.ops.arguments import ARITHMETIC, Layer, Plan, check, plan_of, zero_states
from prnn.ops.launched import Loop, loop
from prnn.packing import check_batch_sizes, check_lengths, restart_rows
from prnn.problem import Problem

# Of the input product: beyond it, time is cut into chunks whose launches carry the states.
WORKSPACE_BYTES = 256 << 20
NO_BACKWARD = "a gradient is asked for, and the GPU's kernels have no backward pass yet"


def layer(
    x: Tensor,
    states: Sequence[Tensor] | None,
    weights: Sequence[Tensor],
    config: Layer,
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    needs_gradient: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """`library.layer` on CUDA tensors.

    Raises:
        UnsupportedProblem: neither a kernel nor PyTorch's own implementation can run it.
    """
    if needs_gradient:
        reason = NO_BACKWARD
    else:
        try:
            return run(x, states, weights, batch_sizes, lengths, reset, config)
        except (UnsupportedProblem, BuildError, MissingDependency) as error:
            reason = str(error)
    plan = plan_of(config, x.dtype, False)
    refusal = torch_layer.refuse(plan.cell, reset is not None)
    if lengths is not None and lengths.is_cuda:
        refusal = "it needs the lengths on the host, from where nothing comes while a CUDA graph is captured"
    if refusal is not None:
        raise UnsupportedProblem(
            f"prnn cannot run {plan.cell.name} {config.input_size} -> {config.hidden_size}, {x.dtype}, on {x.device}.\n"
            f"The GPU's kernels: {reason}\nPyTorch's own implementation: {refusal}\nThe CPU runs it: move the layer and its input there."
        )
    _warn(f"{plan.cell.name} in {x.dtype} on the GPU runs in PyTorch's own implementation: {reason}")
    if states is None:
        states = zero_states(plan, x)
    check(config, plan, x, states, weights, batch_sizes)
    return torch_layer.run(plan.cell, x, states, weights, config, batch_sizes, lengths)


@cache
def _warn(text: str) -> None:
    """Once for each text."""
    warnings.warn(text, PrnnFallbackWarning, stacklevel=4)


@cache
def _problem(config: Layer, dtype: torch.dtype, math: str) -> Problem:
    return Problem(plan_of(config, dtype, False).cell, *config[1:5], str(dtype).removeprefix("torch."), math=math)


def allows_tf32() -> bool:
    """True if float32 layers may round their products to TF32: what PyTorch says of its own RNNs, not of plain matrix products."""
    if _HAS_PRECISION:  # the older switch sets it too
        return torch._C._get_fp32_precision_getter("cuda", "rnn") == "tf32"
    return bool(torch.backends.cudnn.allow_tf32)


def float32_products(tf32: bool) -> AbstractContextManager[None]:
    """PyTorch's products of float32 matrices are rounded to TF32, or are not, whatever was said of them. Other threads see it too, so it
    is set around few calls, and only where it makes a difference."""
    matmul: Any = torch.backends.cuda.matmul
    name, wanted = ("fp32_precision", "tf32" if tf32 else "ieee") if _HAS_PRECISION else ("allow_tf32", tf32)
    before = getattr(matmul, name)
    if before == wanted:  # and not "none", which is what a wider switch says
        return _NOTHING
    return _setting(matmul, name, wanted, before)


@contextmanager
def _setting(room: Any, name: str, value: Any, before: Any) -> Iterator[None]:
    setattr(room, name, value)
    try:
        yield
    finally:
        setattr(room, name, before)


def _on(index: int) -> AbstractContextManager[Any]:
    """The device `index` is the current one."""
    return _NOTHING if torch._C._cuda_getDevice() == index else torch.cuda.device(index)


class _Map(NamedTuple):
    """Where the rows of a sequence lie and which of them are valid; arrays on the device."""

    offsets: Sequence[int]  # of every step's first row, and the number of rows; on the host
    row_of_step: Tensor | None
    lengths: Tensor | None
    restarts: tuple[Tensor | None, ...]  # of each direction


def _map(
    x: Tensor, batch: int, plan: Plan, batch_sizes: Tensor | None, lengths: Tensor | None, reset: Tensor | None
) -> _Map:
    """The map of x [T, B, I], or of [num_rows, I] with batch_sizes.

    Raises:
        ValueError: lengths, reset or batch_sizes do not fit x.
    """
    steps = x.shape[0]
    places: Sequence[int] = range(0, (steps + 1) * batch, batch) if batch else [0] * (steps + 1)
    plain = _Map(places, None, None, (None,) * len(plan.reverse))
    if batch_sizes is None and lengths is None and reset is None:
        return plain
    if torch.cuda.is_current_stream_capturing():
        if batch_sizes is not None:
            raise RuntimeError(
                "a PackedSequence cannot be captured in a CUDA graph, for its sizes are on the host; pass padded input, and lengths= on "
                "the device"
            )
        return _captured_map(x, plain, plan, lengths, reset)
    if batch_sizes is not None:
        sizes = np.ascontiguousarray(batch_sizes.numpy())
        check_batch_sizes(sizes, x.shape[0], batch)
        offsets = np.concatenate([[0], sizes.cumsum()])
        each = (sizes[:, None] > np.arange(batch)).sum(0) if len(sizes) else np.zeros(batch, np.int64)
        starts = _to(offsets[:-1], np.int64, x)
        return _Map(offsets.tolist(), starts, _to(each, np.int32, x), plain.restarts)
    ends = None if lengths is None else check_lengths(lengths.numpy(), steps, batch)
    restarts: list[Tensor | None] = []
    for reverse in plan.reverse:
        rows = None if reset is None else restart_rows(reset.numpy(), ends, reverse)
        restarts.append(None if rows is None else _to(rows, np.uint8, x))
    return _Map(places, None, None if ends is None else _to(ends, np.int32, x), tuple(restarts))


def _captured_map(x: Tensor, plain: _Map, plan: Plan, lengths: Tensor | None, reset: Tensor | None) -> _Map:
    """The map of padded x while a CUDA graph is captured: made on the device, anew in every replay. Lengths, whose values nobody can
    look at, are brought between 0 and T.

    Raises:
        RuntimeError: lengths or reset are not on the device.
    """
    for name, tensor in (("lengths", lengths), ("reset", reset)):
        if tensor is not None and tensor.device != x.device:
            raise RuntimeError(
                f"{name} cannot be copied from the host while a CUDA graph is captured; pass {name}= as a tensor on {x.device}, and "
                "change its values in place between replays"
            )
    steps = x.shape[0]
    ends = None if lengths is None else lengths.clamp(0, steps)
    restarts: list[Tensor | None] = []
    for reverse in plan.reverse:
        rows = reset
        if rows is not None and reverse:  # as packing.restart_rows
            rows = torch.cat([rows[1:], torch.zeros_like(rows[:1])])
            if ends is not None:
                rows = rows & (torch.arange(1, steps + 1, device=x.device)[:, None] != ends)
        restarts.append(None if rows is None else rows.to(torch.uint8).contiguous())
    return plain._replace(lengths=None if ends is None else ends.to(torch.int32), restarts=tuple(restarts))


def _to(array: Any, dtype: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype)).to(like.device)


def run(
    x: Tensor,
    states: Sequence[Tensor] | None,
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    config: Layer,
    backend: str = "auto",
) -> tuple[Tensor, list[Tensor]]:
    """Forward without gradient in a kernel of ours; states as for `library.layer`.

    Raises:
        UnsupportedProblem, BuildError, MissingDependency: no kernel can run it here.
        RuntimeError, ValueError: an argument does not fit the others.
    """
    plan = plan_of(config, x.dtype, False)
    batch = check(config, plan, x, states, weights, batch_sizes)
    index = x.get_device()
    if {*map(Tensor.get_device, weights), *map(Tensor.get_device, states or ())} != {index}:
        raise RuntimeError(f"weights and states must be on {x.device} like the input")
    width, count = config.output_size, len(plan.reverse)
    where = _map(x, batch, plan, batch_sizes, lengths, reset)
    steps, num_rows = len(where.offsets) - 1, where.offsets[-1]
    features = _MASKED if where.lengths is not None or reset is not None else _PLAIN
    y = x.new_empty((*x.shape[:-1], width * count))
    if num_rows == 0:
        return y, zero_states(plan, x) if states is None else [each.clone() for each in states]
    begin = None if states is None else [each.contiguous() for each in states]
    is_single = x.dtype is torch.float32
    math = "tf32" if is_single and allows_tf32() else "ieee"
    with _on(index), float32_products(math == "tf32") if is_single else _NOTHING:
        executable = engine.prepare_gpu(_problem(config, x.dtype, math), index, features, batch, steps, count, backend)
        end = [x.new_empty((count, batch, size)) for size in plan.state_sizes]
        whole = [each.contiguous() for each in weights]
        aligned = [each if each.data_ptr() % 16 == 0 else each.clone() for each in whole]
        call = _Call(config, plan, where, batch, aligned, begin, end, y)
        rows = x.reshape(num_rows, config.input_size)
        if executable.plan.family == launched.NAME:
            with loop(executable, call.per_direction, batch, x, math == "tf32") as over_time:
                call.run(over_time, rows, 0)
        else:
            call.run(executable, rows, executable.workspace_bytes(batch))
    return y, end


_NOTHING = nullcontext()
_PLAIN, _MASKED = Features(is_masked=False), Features(is_masked=True)
_HAS_OUT_DTYPE = "dtype" in torch.ops.aten.mm.overloads()  # torch 2.8 and newer
_HAS_PRECISION = hasattr(torch._C, "_get_fp32_precision_getter")  # torch 2.9 and newer


class _Call:
    """One call: its launches, chunk after chunk."""

    def __init__(
        self,
        config: Layer,
        plan: Plan,
        where: _Map,
        batch: int,
        weights: list[Tensor],
        begin: list[Tensor] | None,
        end: list[Tensor],
        y: Tensor,
    ) -> None:
        self.config, self.plan, self.where, self.batch = config, plan, where, batch
        self.begin, self.end, self.y = begin, end, y
        self.weights = weights
        self.per_direction = plan.split(weights)

    def run(self, executable: engine.GpuExecutable | Loop, rows: Tensor, workspace_bytes: int) -> None:
        offsets, batch = self.where.offsets, self.batch
        steps, count = len(offsets) - 1, len(self.plan.reverse)
        wide = ARITHMETIC[rows.dtype]
        row_bytes = len(self.plan.cell.input_gates) * self.config.hidden_size * wide.itemsize * count
        chunk = min(steps, max(1, WORKSPACE_BYTES // max(row_bytes * batch, 1)))
        starts = range(0, steps, chunk)
        # Two sets, since a launch reads the one while it writes the other.
        carried = [
            [torch.empty(each.shape, dtype=wide, device=rows.device) for each in self.end]
            for _ in range(min(2, len(starts) - 1))
        ]
        stream = torch._C._cuda_getCurrentRawStream(rows.get_device())
        for number, start in enumerate(starts):
            exchange = rows.new_zeros(workspace_bytes, dtype=torch.uint8) if workspace_bytes else None
            arguments = gpu.Arguments(
                lengths=_address(self.where.lengths),
                row_of_step=_address(self.where.row_of_step),
                y_pitch=self.y.shape[-1],
                num_steps=min(chunk, steps - start),
                batch=batch,
                zero_padding=int(self.where.row_of_step is None),
                exchange=_address(exchange),
            )
            alive = []  # until all is enqueued; the allocator orders what follows on this stream
            for d, reverse in enumerate(self.plan.reverse):
                first = steps - 1 - start if reverse else start
                low = first - arguments.num_steps + 1 if reverse else first
                low_row, high_row = offsets[low], offsets[low + arguments.num_steps]
                to, here = arguments.directions[d], self.per_direction[d]
                if here.w_ih is not None:
                    part = rows if chunk == steps else rows[low_row:high_row]
                    gates = _input_product(part, here.w_ih)
                    alive.append(gates)
                    to.gates = gates.data_ptr()
                to.weight_hh, to.bias_ih, to.bias_hh = map(_address, (here.w_hh, here.b_ih, here.b_hh))
                if here.vectors:
                    gpu.fill(to.vectors, [each.data_ptr() for each in here.vectors if each is not None])
                is_first, is_last = number == 0, number == len(starts) - 1
                begin = self.begin if is_first else carried[(number - 1) % 2]
                if begin is not None:  # else zero
                    gpu.fill(to.begin, _states(begin, d))
                gpu.fill(to.end, _states(self.end if is_last else carried[number % 2], d))
                if self.config.reset_to_initial and self.begin is not None:
                    gpu.fill(to.initial, _states(self.begin, d))
                to.begin_is_float, to.end_is_float = int(not is_first), int(not is_last)
                to.y = self.y.data_ptr() + self.y.element_size() * d * self.config.output_size
                to.restart = _address(self.where.restarts[d])
                to.first_gate_row, to.first_step, to.reverse = low_row, first, int(reverse)
            executable.launch(arguments, stream)


def _input_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in float32: rounded to 16 bits, its errors add up over the thousands of steps that a forget gate near 1 remembers."""
    if x.dtype is ARITHMETIC[x.dtype]:
        return torch.mm(x, weight.t())
    if x.is_cuda and _HAS_OUT_DTYPE:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return torch.mm(x.float(), weight.float().t())


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _states(states: Sequence[Tensor], direction: int) -> list[int]:
    return [
        each.data_ptr() + direction * each.stride(0) * each.element_size() if direction else each.data_ptr()
        for each in states
    ]


def forward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    *scalars: Any,
) -> tuple[Tensor, Sequence[Tensor], Tensor]:
    """A kernel of the operator, for compilers and tracers; see the schema in library.py.

    Raises:
        UnsupportedProblem: `save` is asked for: there is no backward pass.
    """
    config, save = Layer(*scalars[:-1]), scalars[-1]
    if save:
        raise UnsupportedProblem(
            f"the operator prnn::layer cannot run on {x.device}: {NO_BACKWARD}; call it under torch.no_grad()"
        )
    y, finals = layer(x, states, weights, config, batch_sizes, lengths, reset, needs_gradient=False)
    return y, finals, x.new_empty(0, dtype=ARITHMETIC[x.dtype])
