"""Elman's simple recurrent network (1990), as torch.nn.RNN has it."""

from prnn.cells.cell import cell
from prnn.cells.expr import relu, tanh


@cell(states=["h"], gates=["n"])
def rnn_tanh(n):
    return tanh(n)


@cell(states=["h"], gates=["n"])
def rnn_relu(n):
    return relu(n)
