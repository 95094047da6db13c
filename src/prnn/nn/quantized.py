"""A recurrent layer with narrow weights: what prnn.quantize makes of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prnn.errors import UnsupportedProblem
from prnn.nn.arguments import check_input, check_states
from prnn.nn.base import RecurrentBase
from prnn.ops import key_of
from prnn.ops.arguments import Layer, zeros
from prnn.ops.narrow import narrow_layer, pack, split
from prnn.specs import LayerWeights

SCALE = "_scale"  # of a matrix: the buffer of its name and this
_PACKED = "_packed"  # of a layer and direction: the buffer of its first matrix's name and this; not in state_dict
_LIKE = torch.empty(0)  # float32 on the CPU
_DTYPES = (torch.int8, torch.int16, torch.uint8, torch.float32)


class Quantized(RecurrentBase):
    """A layer of any cell whose matrices are narrow; for inference in float32 on the CPU.

    Made by `prnn.quantize`; called as the layer was. What were parameters are buffers of the same names: matrices are int16, which holds
    the bits of bfloat16, or int8 beside ``{name}_scale``, float32 [rows, ceil(columns / 32)], of which the 32 neighbours of a group are
    multiples. Biases and vectors are float32. A second copy of the matrices, in the order in which this machine reads them, is made
    beside them.

    Attributes:
        weights: "int8" or "bfloat16".
    """

    weights: str

    def _layers(self) -> list[tuple[Layer, list[Tensor], list[Tensor], list[str]]]:
        """Of each layer: its scalars, weights and scales, and the names of its packed buffers."""
        buffers: dict[str, Any] = self._buffers
        count = 2 if self.bidirectional else 1
        direction = "both" if self.bidirectional else "reverse" if self.reverse else "forward"
        key, input_size, result = key_of(self.cell), self.input_size, []
        for k in range(self.num_layers):
            per_direction = self._all_weights[k * count : (k + 1) * count]
            names = [name for each in per_direction for name in each]
            config = Layer(key, input_size, self.hidden_size, self.proj_size, self.bias, direction, False)
            scales = [buffers[name + SCALE] for name in names if name + SCALE in buffers]
            result.append(
                (config, [buffers[name] for name in names], scales, [each[0] + _PACKED for each in per_direction])
            )
            input_size = (self.proj_size or self.hidden_size) * count
        return result

    def pack(self) -> None:
        """Make the copy of the matrices that this machine reads."""
        for config, weights, scales, names in self._layers():
            for name, packed in zip(names, pack(weights, scales, config, self.weights)):
                self.register_buffer(name, packed, persistent=False)

    def _run(
        self,
        x: Tensor,
        states: list[Tensor] | None,
        batch: int,
        batch_sizes: Tensor | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        to_initial: bool,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        for name, buffer in self._buffers.items():
            if buffer is not None and (buffer.device.type != "cpu" or buffer.dtype not in _DTYPES):
                raise UnsupportedProblem(
                    f"a layer with {self.weights} weights runs in float32 on the CPU, but its {name} is now {buffer.dtype} on "
                    f"{buffer.device}; move it back, or quantize the original layer again"
                )
        if self.training and self.dropout:
            raise UnsupportedProblem(
                f"a layer with {self.weights} weights is for inference, and dropout {self.dropout} would act in training mode; "
                "call eval() first"
            )
        width, count = self.proj_size or self.hidden_size, self.num_layers * (2 if self.bidirectional else 1)
        check_input(x, self.input_size, _LIKE)
        shapes = [(count, batch, width), *[(count, batch, self.hidden_size)] * (len(self.cell.states) - 1)]
        if states is None:
            states = [zeros(shape, x.dtype, x) for shape in shapes]
        else:
            names = ["hidden"] if len(shapes) == 1 else [f"hidden[{i}]" for i in range(len(shapes))]
            check_states(states, shapes, x, names)
        finals: list[Sequence[Tensor]] = []
        directions = count // self.num_layers
        for k, (config, weights, scales, names) in enumerate(self._layers()):
            x, last = narrow_layer(
                x,
                [state[k * directions : (k + 1) * directions] for state in states],
                weights,
                scales,
                [self._buffers[name] for name in names],  # type: ignore[misc]
                config._replace(reset_to_initial=to_initial),
                self.weights,
                batch_sizes,
                lengths,
                reset,
            )
            finals.append(last)
        return x, finals[0] if len(finals) == 1 else [torch.cat(each) for each in zip(*finals)]

    def layer_weights(self) -> tuple[LayerWeights, ...]:
        """The narrow weights of each layer; what prnn.Stream reads.

        Raises:
            ValueError: the layer has two directions or the reverse one, so it cannot run as its input arrives.
        """
        self._refuse_to_stream()
        return tuple(split(weights, scales, config, self.weights)[0] for config, weights, scales, _ in self._layers())

    def _options(self) -> dict[str, Any]:
        cell = {"cell": self.cell.name, "digest": self.cell.digest}
        return {"weights": self.weights} | cell | super()._options()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        for name, buffer in self._buffers.items():
            given = state_dict.get(prefix + name)
            if isinstance(given, Tensor) and buffer is not None and given.dtype is not buffer.dtype:
                error_msgs.append(
                    f"{prefix}{name} is {given.dtype}, and this layer has {self.weights} weights, which are {buffer.dtype}; "
                    "load the float32 weights into a float32 layer and call prnn.quantize on it"
                )
                return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self.pack()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for this machine."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        kept = {name: buffer for name, buffer in self._buffers.items() if not name.endswith(_PACKED)}
        return {**state, "_buffers": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.pack()
