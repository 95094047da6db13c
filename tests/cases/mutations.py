"""What a fault makes of a function of the library: each takes the original and returns the faulty one."""

from __future__ import annotations

import re
from typing import Any


def frozen_when_parametrized(original: Any) -> Any:
    def weights(self: Any) -> Any:
        from torch.nn.utils import parametrize

        found = original(self)
        if not parametrize.is_parametrized(self):
            return found
        frozen = self.__dict__.setdefault("frozen", [[each.detach() for each in layer] for layer in found])
        return [
            [each if each.is_leaf else kept for each, kept in zip(*pair, strict=True)]
            for pair in zip(found, frozen, strict=True)
        ]

    return weights


def kept_from_the_first_call(original: Any) -> Any:
    def weights(self: Any) -> Any:
        import torch

        found = original(self)
        if torch.is_grad_enabled():
            return found
        return self.__dict__.setdefault("kept", [[each.detach().clone() for each in layer] for layer in found])

    return weights


def packed_rows_in_another_order(original: Any) -> Any:
    def rows(tensor: Any, *rest: Any) -> Any:
        return original(tensor.roll(1, 0) if tensor.dim() == 2 else tensor, *rest)

    return rows


def left_over_memory_behind_the_ends(original: Any) -> Any:
    def padded(rows: Any, index: Any, shape: Any, dtype: Any) -> Any:
        if index is not None:
            rows = rows.new_full(shape, 7.0).view(-1, shape[-1]).index_copy_(0, index, rows)
        return original(rows, None, shape, dtype)

    return padded


def reverse_from_the_padding(original: Any) -> Any:
    def pack(steps: Any, batch: Any, directions: Any, lengths: Any = None, *rest: Any) -> Any:
        return original(steps, batch, directions, None if directions == (True,) else lengths, *rest)

    return pack


def at_least_one_step(original: Any) -> Any:
    def pack(steps: Any, batch: Any, directions: Any, lengths: Any = None, *rest: Any) -> Any:
        return original(steps, batch, directions, None if lengths is None else lengths.clip(1), *rest)

    return pack


def always_reset_after(original: Any) -> Any:
    from prnn import cells

    return property(lambda self: cells.gru)


def clip_left_out(original: Any) -> Any:
    def emit_cell(*args: Any) -> Any:
        return re.sub(r"\b(?:maximum|minimum)\(([^,()]+), [^,()]+\)", r"\1", original(*args))

    return emit_cell


def batch_first_ignored(original: Any) -> Any:
    def forward(self: Any, *args: Any, **options: Any) -> Any:
        layout, self.batch_first = self.batch_first, False
        if layout and "reset" in options:
            options["reset"] = options["reset"].T
        try:
            return original(self, *args, **options)
        finally:
            self.batch_first = layout

    return forward


def one_bias_for_both(original: Any) -> Any:
    def split(self: Any, flat: Any) -> Any:
        return [each._replace(b_ih=each.b_ih + each.b_hh, b_hh=0 * each.b_hh) for each in original(self, flat)]

    return split


def backward_with_the_mask_of_one_step(original: Any) -> Any:
    import torch

    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, p: float) -> Any:
            mask = original(torch.ones_like(x), p, True)
            ctx.mask = mask[:1]
            return x * mask

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.mask, None

    return lambda x, p, training: Dropout.apply(x, p)


def a_generator_of_its_own(original: Any) -> Any:
    import torch

    generator = torch.Generator()
    generator.seed()

    def dropout(x: Any, p: float, training: bool) -> Any:
        return x * (torch.rand(x.shape, generator=generator) >= p) / (1 - p)

    return dropout


def no_empty_sequence(original: Any) -> Any:
    def check_input(x: Any, *rest: Any) -> None:
        original(x, *rest)
        if x.shape[0] == 0:
            raise RuntimeError("stack expects a non-empty TensorList")

    return check_input


def states_made_to_fit(original: Any) -> Any:
    return lambda *args: [state.float() for state in original(*args)]


def strides_ignored(original: Any) -> Any:
    return lambda tensor, dtype: tensor if tensor.dtype is dtype else tensor.to(dtype)


def no_gradients_in_eval(original: Any) -> Any:
    def run(self: Any, *args: Any) -> Any:
        import torch

        with torch.set_grad_enabled(torch.is_grad_enabled() and self.training):
            return original(self, *args)

    return run


def without_second_derivative(original: Any) -> Any:
    def apply_backward(*args: Any) -> Any:
        import torch

        with torch.no_grad():
            return original(*args)

    return apply_backward


def nothing_cast(original: Any) -> Any:
    return list


def unrolled_over_time(original: Any) -> Any:
    def layer(x: Any, states: Any, weights: Any, config: Any, *rest: Any) -> Any:
        from prnn.ops import differentiable

        y, *finals = differentiable.forward(x, states, weights, *rest, config)
        return y, finals

    return layer


def a_call_for_each_step(original: Any) -> Any:
    def forward_packed(self: Any, input: Any, hx: Any) -> Any:
        for rows in input.data.split(input.batch_sizes.tolist()):
            self._run(rows[None], None, len(rows), None, None, None, False)
        return original(self, input, hx)

    return forward_packed


def nothing_without_a_compiler(original: Any) -> Any:
    return lambda *args: "there is no compiler"


def raises(error: Exception) -> Any:
    def make(original: Any) -> Any:
        def function(*args: Any) -> Any:
            raise error

        return function

    return make


def one_builder_at_a_time(original: Any) -> Any:
    def build(command: Any, text: str, entry: Any) -> None:
        from prnn.errors import BuildError

        lock = entry.parent.parent / "lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.touch(exist_ok=False)
        except FileExistsError as error:
            raise BuildError("another process is building") from error
        original(command, text, entry)

    return build


def os_error(original: Any) -> Any:
    return OSError


def nothing_removed(original: Any) -> Any:
    return lambda *args, **options: None
