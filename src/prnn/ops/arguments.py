"""What the two operators share: how their flat arguments map to weights, rows and executables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prnn import engine
from prnn.cells import Cell
from prnn.ops.registry import cell_of
from prnn.packing import Packing, check_batch_sizes, pack
from prnn.problem import Problem
from prnn.specs import LayerWeights, Rows

# Key of `direction` -> for each direction of the layer whether it is the reverse one.
DIRECTIONS = {"forward": (False,), "reverse": (True,), "both": (False, True)}
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16}
ARITHMETIC = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


class Layer(NamedTuple):
    """The scalar arguments of the operators, in the order of their schema."""

    cell: str
    input_size: int
    hidden_size: int
    proj_size: int
    bias: bool
    direction: str
    reset_to_initial: bool

    @property
    def output_size(self) -> int:
        """Width of one direction's output."""
        return self.proj_size or self.hidden_size


class Plan(NamedTuple):
    """What depends on the scalar arguments alone."""

    cell: Cell
    problem: Problem
    state_sizes: tuple[int, ...]
    saved_per_row: int  # elements kept for backward, one direction
    names: tuple[str, ...]
    shapes: list[tuple[int, ...]]  # of the flat weights, all directions
    reverse: tuple[bool, ...]
    # Picks the members of LayerWeights but the vectors from one direction's weights with None behind them.
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]

    def split(self, flat: Sequence[Any]) -> list[LayerWeights]:
        """The flat weights as one `LayerWeights` for each direction."""
        count = len(self.names)
        first_vector = count - len(self.cell.vectors)
        result = []
        for start in range(0, len(flat), count):
            vectors = tuple(flat[start + first_vector : start + count])
            w_ih, w_hh, b_ih, b_hh, w_hr = self.pick((*flat[start : start + count], None))
            result.append(LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr, vectors))
        return result


@cache
def plan_of(layer: Layer, dtype: torch.dtype, training: bool) -> Plan:
    """Resolve the scalar arguments once."""
    cell = cell_of(layer.cell)
    problem = Problem(cell, *layer[1:5], str(ARITHMETIC[dtype]).removeprefix("torch."), training)
    names = tuple(problem.weight_shapes)
    fields = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    reverse = DIRECTIONS[layer.direction]
    return Plan(
        cell,
        problem,
        problem.state_sizes,
        engine.prepare(problem).saved_size(1) if training else 0,
        names,
        list(problem.weight_shapes.values()) * len(reverse),
        reverse,
        itemgetter(*(names.index(field) if field in names else -1 for field in fields)),
    )


def check(
    layer: Layer,
    plan: Plan,
    x: Tensor,
    states: Sequence[Tensor] | None,
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
) -> int:
    """Refuse tensors that the engine would read out of bounds; the number of sequences. Without states x is padded.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """
    dtype, shape = x.dtype, x.shape
    if len(shape) != (3 if batch_sizes is None else 2) or shape[-1] != layer.input_size:
        expected = f"(steps, batch, {layer.input_size})" if batch_sizes is None else f"(rows, {layer.input_size})"
        raise RuntimeError(f"Expected input size {expected}, got {list(shape)}")
    check_weights(plan, weights, dtype)
    if states is None:
        return shape[1]
    if len(states) != len(plan.state_sizes):
        raise RuntimeError(f"cell {plan.cell.name!r} has {len(plan.state_sizes)} states, got {len(states)}")
    batch = shape[1] if batch_sizes is None else states[0].shape[1]
    directions = len(plan.reverse)
    for place, (state, width) in enumerate(zip(states, plan.state_sizes)):
        if state.shape != (directions, batch, width):
            name = "hidden" if len(states) == 1 else f"hidden[{place}]"
            raise RuntimeError(f"Expected {name} size {(directions, batch, width)}, got {list(state.shape)}")
        if state.dtype is not dtype:
            raise RuntimeError(f"states must be {dtype} like the input, got {state.dtype}")
    return batch


def check_weights(plan: Plan, weights: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Refuse weights that the engine would read out of bounds.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """
    if [weight.shape for weight in weights] != plan.shapes:
        got = [tuple(weight.shape) for weight in weights]
        raise RuntimeError(f"the weights {plan.names} must have shapes {plan.shapes}, got {got}")
    for weight in weights:
        if weight.dtype is not dtype:
            raise RuntimeError(f"weights must be {dtype} like the input, got {weight.dtype}")


@lru_cache(maxsize=256)
def _padded(steps: int, batch: int, reverse: tuple[bool, ...]) -> Packing:
    return pack(steps, batch, reverse)


@lru_cache(maxsize=8)  # one input for the layers and for both passes; checking it costs as much as a short sequence
def _packed(batch_sizes: bytes, num_rows: int, batch: int, reverse: tuple[bool, ...]) -> Packing:
    sizes = np.frombuffer(batch_sizes, np.int64)
    check_batch_sizes(sizes, num_rows, batch)
    return Packing(tuple(Rows(len(sizes), batch, sizes, reverse=each) for each in reverse))


def packing_of(
    layer: Layer,
    reverse: tuple[bool, ...],
    x: Tensor,
    batch: int,
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> Packing:
    """How the rows of x [T, B, I] (or [num_rows, I] with batch_sizes) map to time and batch.

    Raises:
        ValueError: lengths, reset or batch_sizes do not fit x.
    """
    if batch_sizes is not None:
        return _packed(batch_sizes.numpy().tobytes(), int(x.shape[0]), int(batch), reverse)
    if lengths is None and reset is None:
        return _padded(int(x.shape[0]), int(batch), reverse)  # int: the slow path may be traced with symbolic sizes
    return pack(
        x.shape[0],
        batch,
        reverse,
        None if lengths is None else lengths.numpy(),
        None if reset is None else reset.numpy(),
        layer.reset_to_initial,
    )


def zeros(shape: Sequence[int], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Zeros on the device of `like`; without torch's threads where torch would not mind (see cpu.py)."""
    # first: a compiler cannot look into what follows, and a tracer would take the sizes for constants
    if not torch.compiler.is_compiling() and torch._C._get_tracing_state() is None:
        plain = type(like) in (Tensor, torch.nn.Parameter) and like.is_cpu and dtype in _NUMPY
        if plain and torch._C._len_torch_dispatch_stack() == 0:
            return torch.from_numpy(np.zeros(shape, _NUMPY[dtype]))
    return torch.zeros(shape, dtype=dtype, device=like.device)


def zero_states(plan: Plan, x: Tensor) -> list[Tensor]:
    """Initial states of padded x [T, B, I]."""
    return [zeros((len(plan.reverse), x.shape[1], size), x.dtype, x) for size in plan.state_sizes]


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros in the shape of `tensor`; see `zeros`."""
    return zeros(tensor.shape, tensor.dtype, tensor)
