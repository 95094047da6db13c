"""RNNCell, LSTMCell, GRUCell: one timestep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.rnn import RNNCellBase

from prnn import cells
from prnn.cells import Cell
from prnn.nn.arguments import check_input, check_states, split_states, under_autocast
from prnn.ops import key_of, step
from prnn.ops.arguments import Layer, zeros

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class CellBase(RNNCellBase):
    cell: Cell

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """One timestep.

        Args:
            input: [B, input_size] or [input_size].
            hx: the states, [B, hidden_size] or [hidden_size] each: a tensor if the cell has one, else a tuple. Zeros by
                default.

        Returns:
            The next states, in the form of hx.

        Raises:
            ValueError, RuntimeError, TypeError: as torch.nn raises them.
        """
        label = type(self).__name__.removeprefix("Parametrized")
        if input.dim() not in (1, 2):
            raise ValueError(f"{label}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        is_batched = input.dim() == 2
        x = input if is_batched else input.unsqueeze(0)
        cell = self.cell
        names = _WEIGHTS if self.bias else _WEIGHTS[:2]
        # the dictionary where it can be: a module's __getattr__ takes a microsecond; not so a parametrized or pruned weight
        weights: list[Any] = [self._parameters[n] if n in self._parameters else getattr(self, n) for n in names]
        states = None
        if hx is not None:
            states = split_states(hx, cell.states, label)
            for i, state in enumerate(states):
                if state.dim() not in (1, 2):
                    name = "hidden" if len(states) == 1 else f"hx[{i}]"
                    raise ValueError(f"{label}: Expected {name} to be 1D or 2D, got {state.dim()}D instead")
            if not is_batched:
                states = [state.unsqueeze(0) for state in states]
        if torch._C._is_any_autocast_enabled():
            x, *rest = under_autocast([x, *(states or ())])
            states = rest if states is not None else None
            weights = under_autocast(weights)
        check_input(x, self.input_size, weights[0])
        shape = (x.shape[0], self.hidden_size)
        if states is None:
            states = [zeros(shape, x.dtype, x)] * len(cell.states)
        check_states(states, [shape] * len(states), x, [f"hidden[{i}]" for i in range(len(states))])
        config = Layer(key_of(cell), self.input_size, self.hidden_size, 0, self.bias, "forward", False)
        finals = step(x, states, weights, config)
        if not is_batched:
            finals = [state.squeeze(0) for state in finals]
        return finals[0] if len(finals) == 1 else tuple(finals)


class RNNCell(CellBase):
    """torch.nn.RNNCell."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return cells.rnn_tanh if self.nonlinearity == "tanh" else cells.rnn_relu


class LSTMCell(CellBase):
    """torch.nn.LSTMCell."""

    cell = cells.lstm

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)


class GRUCell(CellBase):
    """torch.nn.GRUCell."""

    cell = cells.gru

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)
