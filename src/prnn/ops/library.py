"""The operators `prnn::layer` and `prnn::layer_backward`: schemas, kernels, and the call that picks the shortest way to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prnn.ops import autograd, cpu, cuda
from prnn.ops.arguments import ARITHMETIC, Layer, plan_of, zero_states

# x [T, B, input_size], or [num_rows, input_size] with batch_sizes; states [directions, B, width], one for each state of the cell;
# weights: those of one direction after the other, in the order of LayerWeights. batch_sizes, lengths (int64) and reset (bool
# [T, B]) lie on the CPU. Returns y like x, the final states, and what backward needs (empty unless save).
_SCALARS = "str cell, int input_size, int hidden_size, int proj_size, bool bias, str direction, bool reset_to_initial"
_TENSORS = "Tensor x, Tensor[] states, Tensor[] weights, Tensor? batch_sizes, Tensor? lengths, Tensor? reset"

_library = torch.library.Library("prnn", "DEF")
_library.define(f"layer({_TENSORS}, {_SCALARS}, bool save) -> (Tensor, Tensor[], Tensor)")
_library.define(
    f"layer_backward({_TENSORS}, Tensor saved, Tensor d_y, Tensor[] d_finals, {_SCALARS}, bool needs_x, bool needs_weights)"
    " -> (Tensor, Tensor[], Tensor[])"
)
_library.impl("layer", cpu.forward, "CPU")
_library.impl("layer_backward", cpu.backward, "CPU")
_library.impl("layer", cuda.forward, "CUDA")


@torch.library.register_fake("prnn::layer", lib=_library)
def _layer_fake(
    x: Tensor, states: list[Tensor], weights: list[Tensor], batch_sizes: Any, lengths: Any, reset: Any, *scalars: Any
) -> Any:
    layer, save = Layer(*scalars[:-1]), scalars[-1]
    if any(each.device != x.device for each in (*states, *weights)):
        raise RuntimeError(f"weights and states must be on {x.device} like the input")
    plan = plan_of(layer, x.dtype, save)
    num_rows = x.shape[0] if x.dim() == 2 else x.shape[0] * x.shape[1]
    y = x.new_empty((*x.shape[:-1], layer.output_size * len(plan.reverse)))
    saved = x.new_empty(num_rows * plan.saved_per_row * len(plan.reverse), dtype=ARITHMETIC[x.dtype])
    return y, [state.new_empty(state.shape) for state in states], saved


@torch.library.register_fake("prnn::layer_backward", lib=_library)
def _layer_backward_fake(
    x: Tensor, states: list[Tensor], weights: list[Tensor], batch_sizes: Any, lengths: Any, reset: Any,
    saved: Tensor, d_y: Tensor, d_finals: list[Tensor], *scalars: Any,
) -> Any:  # fmt: skip
    needs_x, needs_weights = scalars[-2:]
    return (
        x.new_empty(x.shape if needs_x else 0),
        [state.new_empty(state.shape) for state in states],
        [weight.new_empty(weight.shape if needs_weights else 0) for weight in weights],
    )


def _layer_autograd(x: Tensor, states: list[Tensor], weights: list[Tensor], *rest: Any) -> Any:
    """For those who call the operator itself; `layer` below goes through the Function before it comes here."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in (x, *states, *weights)):
        batch_sizes, lengths, reset = rest[:3]
        y, *finals, saved = autograd.apply(x, states, weights, batch_sizes, lengths, reset, Layer(*rest[3:-1]))
        return y, finals, saved if rest[-1] else saved.new_empty(0)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.prnn.layer.default(x, states, weights, *rest)


def _layer_backward_autograd(x: Tensor, states: list[Tensor], weights: list[Tensor], *rest: Any) -> Any:
    batch_sizes, lengths, reset, saved, d_y, d_finals, *config, needs_x, needs_weights = rest
    if torch.is_grad_enabled() and any(each.requires_grad for each in (x, *states, *weights, d_y, *d_finals)):
        return autograd.apply_backward(
            x,
            states,
            weights,
            batch_sizes,
            lengths,
            reset,
            saved,
            d_y,
            d_finals,
            Layer(*config),
            needs_x,
            needs_weights,
        )
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.prnn.layer_backward.default(x, states, weights, *rest)


_library.impl("layer", _layer_autograd, "Autograd")
_library.impl("layer_backward", _layer_backward_autograd, "Autograd")


def observed() -> bool:
    """True where a compiler or a tracer wants to see the operators."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def layer(
    x: Tensor,
    states: Sequence[Tensor] | None,
    weights: Sequence[Tensor],
    config: Layer,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
    reset: Tensor | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Run one layer, all its directions; differentiable.

    Args:
        x: [T, B, input_size], or [num_rows, input_size] with batch_sizes.
        states: [directions, B, width], one for each state of the cell; None: zero, where x is not packed.
        weights: those of one direction after the other.
        batch_sizes: int64 [T] on the CPU, as in a PackedSequence.
        lengths: int64 [B] on the CPU.
        reset: bool [T, B] on the CPU.

    Returns:
        y, shaped like x, zero past each end; the final states, shaped like `states`.

    Raises:
        RuntimeError, ValueError: an argument does not fit the others.
        UnsupportedProblem: nothing can run it on this device.
    """
    # compilers and tracers take the operator, which has its derivative registered; torch.func takes the Function around it
    if x.is_cuda and not observed():
        needs_gradient = autograd.transformed() or (
            torch.is_grad_enabled() and any(each.requires_grad for each in (x, *(states or ()), *weights))
        )
        return cuda.layer(x, states, weights, config, batch_sizes, lengths, reset, needs_gradient)
    if states is None:
        states = zero_states(plan_of(config, x.dtype, False), x)
    if observed():
        y, finals, _ = torch.ops.prnn.layer.default(x, states, weights, batch_sizes, lengths, reset, *config, False)
        return y, finals
    if autograd.transformed() or torch.is_grad_enabled() and any(each.requires_grad for each in (x, *states, *weights)):
        y, *finals, _ = autograd.apply(x, states, weights, batch_sizes, lengths, reset, config)
        return y, finals
    y, finals, _ = autograd.run(x, states, weights, batch_sizes, lengths, reset, config, False)
    return y, finals


def step(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], config: Layer) -> Sequence[Tensor]:
    """Run one timestep forward; differentiable.

    Args:
        x: [B, input_size].
        states: [B, width], one for each state of the cell.

    Returns:
        The next states, shaped like `states`.

    Raises:
        RuntimeError: an argument does not fit the others.
    """
    differentiated = torch.is_grad_enabled() and any(each.requires_grad for each in (x, *states, *weights))
    if not differentiated and not observed() and autograd.unobserved(x, *states, *weights):
        return cpu.step(x, states, weights, config)
    _, finals = layer(x.unsqueeze(0), [state.unsqueeze(0) for state in states], weights, config)
    return [state.squeeze(0) for state in finals]
