"""What the layers share: parameters, forward, state_dict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter
from torch.nn.utils.rnn import PackedSequence

from prnn.cells import Cell
from prnn.nn.arguments import check_input, check_states, lengths_tensor, reset_tensor, split_states, under_autocast
from prnn.ops import key_of, layer, observed
from prnn.ops.arguments import Layer, plan_of, zeros
from prnn.problem import Problem
from prnn.specs import LayerWeights

_EXTRA_STATE = "_extra_state"


class RecurrentBase(torch.nn.RNNBase):
    """What the layers share.

    It derives from RNNBase and not from torch.nn.LSTM: torch.compile refuses every instance of torch.nn.RNN, LSTM and GRU.
    """

    cell: Cell
    # Defaults live in the class: an instance that prnn.accelerate took over from torch.nn has no attributes of ours.
    reverse: bool = False

    def __init__(
        self,
        cell: Cell,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        reverse: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        # RNNBase checks the arguments, in its own words; the parameters it makes are replaced, so they take no memory
        super().__init__(
            "RNN_TANH",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            "meta",
            dtype,
        )
        if reverse and bidirectional:
            raise ValueError("reverse=True is one direction of a bidirectional layer; use one or the other")
        self.mode = mode
        if reverse:
            self.reverse = True
        self._parameters.clear()
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        width = (proj_size or hidden_size) * (2 if bidirectional else 1)
        for k in range(num_layers):
            shapes = Problem(cell, input_size if k == 0 else width, hidden_size, proj_size, bias).weight_shapes
            for suffix in ("", "_reverse") if bidirectional else ("",):
                names = []
                for prefix, shape in shapes.items():
                    names.append(f"{prefix}_l{k}{suffix}")
                    self.register_parameter(names[-1], Parameter(torch.empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self._init_flat_weights()
        self.reset_parameters()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        reset: Tensor | None = None,
        reset_to: str = "zero",
    ) -> tuple[Any, Any]:
        """Run the layers over a sequence.

        Args:
            input: [T, B, input_size], or [B, T, input_size] with batch_first, or [T, input_size], or a PackedSequence.
            hx: initial states, [num_layers * directions, B, width] each (without B for unbatched input): a tensor if the cell
                has one state, else a tuple. Zeros by default.
            lengths: valid steps of each sequence, integers or an int64 tensor [B]. What lies beyond is never read, and the
                output is zero there. While a CUDA graph is captured they must be on the device, as must `reset`; every replay reads them
                again, and values beyond 0 and T count as these.
            reset: bool, [T, B] ([B, T] with batch_first, [T] unbatched). True puts a boundary between t-1 and t: the result
                is that of the segments run apart.
            reset_to: where a segment starts: "zero" or "initial" (hx).

        Returns:
            The output, in the form of the input and as wide as all directions together, and the final states, in the form of
            hx.

        Raises:
            ValueError, RuntimeError, TypeError: as torch.nn raises them; also for lengths and reset that do not fit.
            UnsupportedProblem: a device or dtype that prnn has no engine for.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None or reset is not None:
                raise ValueError("lengths and reset go with padded input; a PackedSequence holds its lengths itself")
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._label}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        is_batched = input.dim() == 3
        if not is_batched:
            x = input.unsqueeze(1)
        else:
            x = input.transpose(0, 1) if self.batch_first else input
        steps, batch = x.shape[0], x.shape[1]
        if lengths is not None:
            if not is_batched:
                raise ValueError("lengths needs batched 3-D input; cut an unbatched sequence to its length")
            lengths = lengths_tensor(lengths, batch)
        if reset is not None:
            reset = reset_tensor(reset, is_batched, self.batch_first, steps, batch)
        if reset_to not in ("zero", "initial"):
            raise ValueError(f'reset_to must be "zero" or "initial", got {reset_to!r}')
        states = None
        if hx is not None:
            states = split_states(hx, self.cell.states, self._label)
            for state in states:
                if state.dim() != input.dim():
                    form = "batched 3-D" if is_batched else "unbatched 2-D"
                    raise RuntimeError(
                        f"For {form} input, hx should also be {input.dim()}-D but got {state.dim()}-D tensor"
                    )
            if not is_batched:
                states = [state.unsqueeze(1) for state in states]
        y, finals = self._run(x, states, batch, None, lengths, reset, reset_to == "initial")
        if not is_batched:
            return y.squeeze(1), self._joined([state.squeeze(1) for state in finals])
        return (y.transpose(0, 1) if self.batch_first else y), self._joined(finals)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        x, batch_sizes, sorted_indices, unsorted_indices = input
        if x.dim() != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {x.dim()}")
        states = None if hx is None else split_states(hx, self.cell.states, self._label)
        if states is None or not torch.compiler.is_compiling():
            batch = int(batch_sizes[0])
        else:  # a compiled graph does not know the value
            batch = states[0].shape[1]
        if states is not None and sorted_indices is not None:  # one of another shape is refused below as it came
            fits = all(state.dim() == 3 and state.shape[1] == batch for state in states)
            states = [state.index_select(1, sorted_indices) for state in states] if fits else states
        y, finals = self._run(x, states, batch, batch_sizes, None, None, False)
        if unsorted_indices is not None:
            finals = [state.index_select(1, unsorted_indices) for state in finals]
        return PackedSequence(y, batch_sizes, sorted_indices, unsorted_indices), self._joined(finals)

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
        """All layers over time-major x; states are [num_layers * directions, B, width]."""
        cell, num_layers, hidden_size, proj_size = self.cell, self.num_layers, self.hidden_size, self.proj_size
        weights = self._weights()
        if torch._C._is_any_autocast_enabled():
            x, *states_cast = under_autocast([x, *(states or ())])
            states = states_cast if states is not None else None
            weights = [under_autocast(each) for each in weights]
        check_input(x, self.input_size, weights[0][0])
        directions = 2 if self.bidirectional else 1
        width = proj_size or hidden_size
        count = num_layers * directions
        shapes = [(count, batch, width), *[(count, batch, hidden_size)] * (len(cell.states) - 1)]
        per_layer: Sequence[Sequence[Tensor] | None]
        if states is None and x.is_cuda and batch_sizes is None and not observed():  # kernels start from zero unasked
            per_layer = [None] * num_layers
        elif states is None:  # they are only read, so one tensor serves all
            first = zeros((directions, batch, width), x.dtype, x)
            other = first if width == hidden_size else zeros((directions, batch, hidden_size), x.dtype, x)
            per_layer = [[first, *[other] * (len(shapes) - 1)]] * num_layers
        else:
            names = ["hidden"] if len(shapes) == 1 else [f"hidden[{i}]" for i in range(len(shapes))]
            check_states(states, shapes, x, names)
            spans = [slice(k * directions, (k + 1) * directions) for k in range(num_layers)]
            per_layer = [states] if num_layers == 1 else [[each[span] for each in states] for span in spans]
        direction = "both" if self.bidirectional else "reverse" if self.reverse else "forward"
        key, input_size = key_of(cell), self.input_size
        finals: list[Sequence[Tensor]] = []
        for k in range(num_layers):
            config = Layer(key, input_size, hidden_size, proj_size, self.bias, direction, to_initial)
            x, last = layer(x, per_layer[k], weights[k], config, batch_sizes, lengths, reset)
            if self.dropout and self.training and k + 1 < num_layers:
                x = torch.dropout(x, self.dropout, True)
            finals.append(last)
            input_size = width * directions
        if num_layers == 1:
            return x, finals[0]
        return x, [torch.cat(each) for each in zip(*finals)]

    def flatten_parameters(self) -> None:
        """Nothing: the kernels read the parameters where they lie, and PyTorch's would ask cuDNN, which knows few cells, for room."""

    def _weights(self) -> list[list[Tensor]]:
        """The weights of each layer as they are now, whether parameters or computed by a parametrization or a hook."""
        parameters = self._parameters
        directions = 2 if self.bidirectional else 1
        return [
            [
                parameters[name] if name in parameters else getattr(self, name)  # type: ignore[misc]
                for names in self._all_weights[k : k + directions]
                for name in names
            ]
            for k in range(0, len(self._all_weights), directions)
        ]

    def layer_weights(self) -> tuple[LayerWeights, ...]:
        """The weights of each layer as they are now; what prnn.Stream reads.

        Raises:
            ValueError: the layer has two directions or the reverse one, so it cannot run as its input arrives.
        """
        self._refuse_to_stream()
        first = self._weights()[0][0]
        if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"a stream runs in float32 or float64 on the CPU; the layer is {first.dtype} on {first.device}"
            )
        width, layers = self.proj_size or self.hidden_size, []
        for k, flat in enumerate(self._weights()):
            input_size = width if k else self.input_size
            config = Layer(key_of(self.cell), input_size, self.hidden_size, self.proj_size, self.bias, "forward", False)
            layers += plan_of(config, first.dtype, False).split(flat)
        return tuple(layers)

    def _refuse_to_stream(self) -> None:
        if self.bidirectional or self.reverse:
            which = "bidirectional" if self.bidirectional else "reversed"
            raise ValueError(f"a {which} layer needs its whole input at once; it cannot run step by step")

    def _joined(self, states: Sequence[Tensor]) -> Any:
        return states[0] if len(states) == 1 else tuple(states)

    @property
    def _label(self) -> str:
        return type(self).__name__.removeprefix("Parametrized")

    def _options(self) -> dict[str, Any]:
        """The options beyond torch.nn's that are not at their default: they travel with the state_dict."""
        return {"reverse": True} if self.reverse else {}

    def extra_repr(self) -> str:
        return ", ".join([super().extra_repr(), *(f"{name}={value!r}" for name, value in self._options().items())])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if options := self._options():
            destination[prefix + _EXTRA_STATE] = options

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
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + _EXTRA_STATE
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        if key in state_dict and state_dict[key] != self._options():
            error_msgs.append(
                f"{prefix}: the weights are of a layer with {state_dict[key]}, this one has {self._options()}"
            )
