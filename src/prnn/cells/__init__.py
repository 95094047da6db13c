"""What a recurrent layer computes: cells, and the operations to write your own. Standard library only."""

from prnn.cells.cell import Cell, cell, find
from prnn.cells.elman import rnn_relu, rnn_tanh
from prnn.cells.expr import clip, exp, log, maximum, minimum, relu, sigmoid, sqrt, tanh
from prnn.cells.gru import gru, gru_reset_before
from prnn.cells.indrnn import indrnn
from prnn.cells.lstm import lstm, lstm_coupled, lstm_peephole
from prnn.cells.mgu import mgu

BUILTIN: dict[str, Cell] = {
    each.name: each
    for each in (rnn_tanh, rnn_relu, lstm, lstm_peephole, lstm_coupled, gru, gru_reset_before, mgu, indrnn)
}

__all__ = [
    "BUILTIN",
    "Cell",
    "cell",
    "clip",
    "exp",
    "find",
    "gru",
    "gru_reset_before",
    "indrnn",
    "log",
    "lstm",
    "lstm_coupled",
    "lstm_peephole",
    "maximum",
    "mgu",
    "minimum",
    "relu",
    "rnn_relu",
    "rnn_tanh",
    "sigmoid",
    "sqrt",
    "tanh",
]
