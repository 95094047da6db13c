"""The operator `prnn::narrow_layer`: one layer whose matrices are narrow, for inference on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from prnn import engine
from prnn.errors import UnsupportedProblem
from prnn.ops import autograd, cpu
from prnn.ops.arguments import Layer, Plan, packing_of, plan_of
from prnn.ops.library import _SCALARS, _TENSORS
from prnn.problem import Problem
from prnn.specs import LayerWeights

# Arguments as those of prnn::layer, float32. weights, scales: as narrow.py makes them, those of one direction after the other. packed: of
# each direction, what `pack` returned.
_library = torch.library.Library("prnn", "FRAGMENT")
_library.define(
    f"narrow_layer({_TENSORS}, Tensor[] scales, Tensor[] packed, {_SCALARS}, str kind) -> (Tensor, Tensor[])"
)


@cache
def _plan(config: Layer, kind: str) -> tuple[Plan, Problem]:
    plan = plan_of(config, torch.float32, False)
    return plan, replace(plan.problem, weights=kind)


def split(weights: Sequence[Tensor], scales: Sequence[Tensor], config: Layer, kind: str) -> list[LayerWeights]:
    """The weights of a layer as one `LayerWeights` for each direction."""
    result = []
    given = iter(scales)
    for each in _plan(config, kind)[0].split(weights):
        own = tuple(None if matrix is None else next(given) for matrix in (each.w_hh, each.w_hr)) if scales else ()
        result.append(each._replace(scales=own))
    return result


def pack(weights: Sequence[Tensor], scales: Sequence[Tensor], config: Layer, kind: str) -> list[Tensor]:
    """Of each direction, the bytes that the engine reads in every step; empty where it reads the weights as they are.

    They are for this process's machine: another instruction set reads them in another order.
    """
    executable = engine.prepare(_plan(config, kind)[1], held=True)
    packed = [executable.snapshot(each) for each in split(weights, scales, config, kind)]
    return [torch.empty(0, dtype=torch.uint8) if each is None else torch.from_numpy(each) for each in packed]


def _run(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    scales: Sequence[Tensor],
    packed: Sequence[Tensor],
    *rest: Any,
) -> tuple[Tensor, Sequence[Tensor]]:
    config, kind = Layer(*rest[:-1]), rest[-1]
    plan, problem = _plan(config, kind)
    batch = x.shape[1] if batch_sizes is None else states[0].shape[1]
    packing = packing_of(config, plan.reverse, x, batch, batch_sizes, lengths, reset)
    index, order, num_rows, width = packing.index, packing.order, packing.rows[0].num_rows, config.output_size
    rows, initial = cpu._rows(x, index, x.dtype), cpu._ordered(states, order, x.dtype)
    y = rows.new_empty(num_rows, width * len(plan.reverse))
    finals = [state.clone() for state in initial]
    if num_rows:
        executable = engine.prepare(problem, batch, packing.rows[0].steps, held=True)
        for d, each in enumerate(split(weights, scales, config, kind)):
            executable.bind(
                rows,
                tuple(state[d] for state in initial),
                each,
                packing.rows[d],
                y[:, d * width : (d + 1) * width],
                tuple(state[d] for state in finals),
                packed[d],
            )()
    shape = (*x.shape[:-1], y.shape[1])
    return cpu._padded(y, index, shape, x.dtype), cpu._unordered(finals, order, x.dtype)


def _refuse_gradients(x: Tensor, states: Sequence[Tensor], *rest: Any) -> Any:
    if torch.is_grad_enabled() and any(each.requires_grad for each in (x, *states)):
        raise UnsupportedProblem(
            "a layer with narrow weights is for inference and has no gradient, but its input requires one; run it under "
            "torch.no_grad(), detach the input, or train the layer before prnn.quantize"
        )
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.prnn.narrow_layer.default(x, states, *rest)


_library.impl("narrow_layer", _run, "CPU")
_library.impl("narrow_layer", _refuse_gradients, "Autograd")


@torch.library.register_fake("prnn::narrow_layer", lib=_library)
def _fake(x: Tensor, states: list[Tensor], *rest: Any) -> Any:
    config = Layer(*rest[-1 - len(Layer._fields) : -1])
    width = config.output_size * states[0].shape[0]
    return x.new_empty((*x.shape[:-1], width)), [state.new_empty(state.shape) for state in states]


def narrow_layer(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    packed: Sequence[Tensor],
    config: Layer,
    kind: str,
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Run one layer, all its directions; the arguments as `prnn.ops.layer` takes them, checked by the caller.

    Args:
        weights, scales: as narrow.py makes them, in the order of `LayerWeights`.
        packed: what `pack` returned for these weights.

    Raises:
        UnsupportedProblem: a gradient is asked for.
    """
    arguments = (x, states, weights, batch_sizes, lengths, reset, scales, packed, *config, kind)
    if not torch.is_grad_enabled() and not torch.compiler.is_compiling():  # past the dispatcher, as autograd.run
        if torch._C._get_tracing_state() is None and autograd.unobserved(x, *states):
            return _run(*arguments)
    result: tuple[Tensor, list[Tensor]] = torch.ops.prnn.narrow_layer.default(*arguments)
    return result
