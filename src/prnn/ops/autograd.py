"""First and second derivatives of the operators.

`torch.library.register_autograd` fails under torch.func.grad; an autograd.Function with setup_context around the operators does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from prnn.ops import cpu, differentiable
from prnn.ops.arguments import Layer, zeros

_ORDINARY = frozenset((Tensor, torch.nn.Parameter))
_IS_CPU = attrgetter("is_cpu")
_NUM_SCALARS = len(Layer._fields) + 2  # and the numbers of states and of weights


def transformed() -> bool:
    """True inside torch.func.grad, vmap and their like, which see Functions but not our operators."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def unobserved(*tensors: Tensor) -> bool:
    """True if neither a mode, a transform, a subclass of Tensor nor another device could want to see an operator's call."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and not transformed()
        and _ORDINARY.issuperset(map(type, tensors))
        and all(map(_IS_CPU, tensors))
    )


def run(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    config: Layer,
    save: bool,
) -> tuple[Tensor, Sequence[Tensor], Tensor | None]:
    """The forward operator, without derivative: past the dispatcher (10 us) where nothing could want to see the call."""
    if unobserved(x, *states, *weights):
        return cpu.run(x, states, weights, batch_sizes, lengths, reset, config, save)
    result: tuple[Tensor, list[Tensor], Tensor] = torch.ops.prnn.layer.default(
        x, states, weights, batch_sizes, lengths, reset, *config, save
    )
    return result


def apply(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    config: Layer,
) -> tuple[Tensor, ...]:
    """The differentiable forward: (y, *final states, saved)."""
    result: tuple[Tensor, ...] = _Forward.apply(  # type: ignore[no-untyped-call]
        *config, len(states), len(weights), batch_sizes, lengths, reset, x, *states, *weights
    )
    return result


def apply_backward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    saved: Tensor,
    d_y: Tensor,
    d_finals: Sequence[Tensor],
    config: Layer,
    needs_x: bool,
    needs_weights: bool,
) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The backward, differentiable in grad mode: (d_x, d_states, d_weights); what is not needed is empty."""
    if not torch.is_grad_enabled() and not transformed():
        result: tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]] = torch.ops.prnn.layer_backward.default(
            x, states, weights, batch_sizes, lengths, reset, saved, d_y, d_finals, *config, needs_x, needs_weights
        )
        return result
    d_x, *rest = _Backward.apply(  # type: ignore[no-untyped-call]
        *config, len(states), len(weights), needs_x, needs_weights, batch_sizes, lengths, reset,
        saved, x, *states, *weights, d_y, *d_finals,
    )  # fmt: skip
    return d_x, tuple(rest[: len(states)]), tuple(rest[len(states) :])


class _Looped(torch.autograd.Function):
    """vmap as a loop: with one set of weights for each element there is nothing to batch."""

    @classmethod
    def _loop(cls, info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> Any:
        results = [
            cls.apply(*(arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims)))  # type: ignore[no-untyped-call]
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(each) for each in zip(*results))
        return stacked, (0,) * len(stacked)


class _Forward(_Looped):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        scalars, (batch_sizes, lengths, reset, x, *tensors) = args[:_NUM_SCALARS], args[_NUM_SCALARS:]
        num_states = scalars[-2]
        y, finals, saved = run(
            x, tensors[:num_states], tensors[num_states:], batch_sizes, lengths, reset, Layer(*scalars[:-2]), True
        )
        assert saved is not None
        return y, *finals, saved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.scalars = inputs[:_NUM_SCALARS]
        saved = output[-1]
        ctx.mark_non_differentiable(saved)
        ctx.set_materialize_grads(False)  # or autograd would fill a gradient for `saved` with zeros
        ctx.save_for_backward(*inputs[_NUM_SCALARS:], saved)
        ctx.outputs = [(each.shape, each.dtype) for each in output[:-1]]

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Any, ...]:
        scalars, num_states = ctx.scalars, ctx.scalars[-2]
        batch_sizes, lengths, reset, x, *tensors, saved = ctx.saved_tensors
        gradients = [
            zeros(shape, dtype, x) if each is None else each for each, (shape, dtype) in zip(d_outputs, ctx.outputs)
        ]
        needs = ctx.needs_input_grad[_NUM_SCALARS + 3 :]
        d_x, d_states, d_weights = apply_backward(
            x, tensors[:num_states], tensors[num_states:], batch_sizes, lengths, reset, saved, gradients[0], gradients[1:],
            Layer(*scalars[:-2]), needs[0], any(needs[1 + num_states :]),
        )  # fmt: skip
        wanted = [each if need else None for each, need in zip((d_x, *d_states, *d_weights), needs)]
        return (*[None] * (_NUM_SCALARS + 3), *wanted)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _Forward._loop(info, in_dims, args)


class _Backward(_Looped):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        *config, num_states, num_weights, needs_x, needs_weights = args[: _NUM_SCALARS + 2]
        batch_sizes, lengths, reset, saved, x, *tensors = args[_NUM_SCALARS + 2 :]
        weights = tensors[num_states : num_states + num_weights]
        d_y, *d_finals = tensors[num_states + num_weights :]
        d_x, d_states, d_weights = torch.ops.prnn.layer_backward.default(
            x,
            tensors[:num_states],
            weights,
            batch_sizes,
            lengths,
            reset,
            saved,
            d_y,
            d_finals,
            *config,
            needs_x,
            needs_weights,
        )
        return d_x, *d_states, *d_weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.scalars = inputs[: _NUM_SCALARS + 2]
        batch_sizes, lengths, reset, _, *tensors = inputs[_NUM_SCALARS + 2 :]
        ctx.save_for_backward(batch_sizes, lengths, reset, *tensors)

    @staticmethod
    def backward(ctx: Any, *d_gradients: Tensor) -> tuple[Any, ...]:
        *config, num_states, num_weights, needs_x, needs_weights = ctx.scalars
        batch_sizes, lengths, reset, *tensors = ctx.saved_tensors
        layer = Layer(*config)
        num_inputs = 1 + num_states + num_weights

        def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
            x, *rest = inputs
            return differentiable.forward(x, rest[:num_states], rest[num_states:], batch_sizes, lengths, reset, layer)

        def gradients(*all_inputs: Tensor) -> tuple[Tensor, ...]:
            pullback = torch.func.vjp(outputs, *all_inputs[:num_inputs])[1]
            found: tuple[Tensor, ...] = pullback(all_inputs[num_inputs:])
            return found

        seeds = [
            seed if needed else torch.zeros_like(tensor)
            for seed, tensor, needed in zip(
                d_gradients, tensors, [needs_x, *[True] * num_states, *[needs_weights] * num_weights]
            )
        ]
        pullback = torch.func.vjp(gradients, *tensors)[1]
        return (*[None] * (_NUM_SCALARS + 6), *pullback(tuple(seeds)))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _Backward._loop(info, in_dims, args)
