"""RNN, LSTM, GRU and the layer for any cell."""

from __future__ import annotations

from typing import Any

from prnn import cells
from prnn.cells import Cell
from prnn.nn.base import RecurrentBase
from prnn.ops import key_of


class Recurrent(RecurrentBase):
    """A recurrent layer of any cell: a built-in of prnn.cells, or one made with `prnn.cell`.

    The arguments are those of torch.nn.LSTM, after the cell.

    Args:
        cell: what one timestep computes.
        reverse: run from the last step to the first; the output stays in input order.

    Parameters are ``weight_ih_l{k}``, ``weight_hh_l{k}``, ``bias_ih_l{k}``, ``bias_hh_l{k}`` with blocks of hidden_size rows in
    the order of the cell's gates, ``weight_hr_l{k}`` with a projection, and ``{vector}_l{k}`` [hidden_size] for each of its
    vectors; ``_reverse`` follows for the second direction.

    Raises:
        TypeError, ValueError: as torch.nn.LSTM; ValueError for a projection of a cell that uses its output unit by unit.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        reverse: bool = False,
    ) -> None:
        if not isinstance(cell, Cell):
            raise TypeError(f"cell should be a prnn.cells.Cell, got: {type(cell).__name__}")
        super().__init__(
            cell, cell.name, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, reverse,
            device, dtype,
        )  # fmt: skip
        self.cell = cell
        key_of(cell)  # known to the operators from here on: torch.compile must not be the first to meet it

    def _options(self) -> dict[str, Any]:
        return {"cell": self.cell.name, "digest": self.cell.digest} | super()._options()


class RNN(RecurrentBase):
    """torch.nn.RNN, with `reverse` and the call arguments of `forward` beyond it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        reverse: bool = False,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = "RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU"
        super().__init__(
            cells.BUILTIN[mode.lower()], mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            reverse, device, dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        return cells.rnn_tanh if self.mode == "RNN_TANH" else cells.rnn_relu


class LSTM(RecurrentBase):
    """torch.nn.LSTM, with `reverse` and the call arguments of `forward` beyond it."""

    cell = cells.lstm

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        reverse: bool = False,
    ) -> None:
        super().__init__(
            self.cell, "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, reverse,
            device, dtype,
        )  # fmt: skip


class GRU(RecurrentBase):
    """torch.nn.GRU, with `reset_after`, `reverse` and the call arguments of `forward` beyond it.

    Args:
        reset_after: the reset gate acts after the recurrent product, as in torch.nn and cuDNN; False: before it, as in the
            original paper, ONNX's default and Keras's reset_after=False.
    """

    reset_after: bool = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        reset_after: bool = True,
        reverse: bool = False,
    ) -> None:
        cell = cells.gru if reset_after else cells.gru_reset_before
        super().__init__(
            cell,
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            reverse,
            device,
            dtype,
        )
        if not reset_after:
            self.reset_after = False

    @property
    def cell(self) -> Cell:  # type: ignore[override]
        return cells.gru if self.reset_after else cells.gru_reset_before

    def _options(self) -> dict[str, Any]:
        return ({} if self.reset_after else {"reset_after": False}) | super()._options()
