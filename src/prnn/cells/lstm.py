"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000) and two of its relatives."""

from prnn.cells.cell import cell
from prnn.cells.expr import sigmoid, tanh


@cell(states=["h", "c"], gates=["i", "f", "g", "o"])
def lstm(i, f, g, o, h, c):
    """As torch.nn.LSTM has it."""
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


@cell(states=["h", "c"], gates=["i", "f", "g", "o"], vectors=["p_i", "p_f", "p_o"])
def lstm_peephole(i, f, g, o, h, c, p_i, p_f, p_o):
    """The gates see the cell state (Gers and Schmidhuber 2000); p_o sees the new one, as in ONNX."""
    new_c = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * tanh(g)
    return sigmoid(o + p_o * new_c) * tanh(new_c), new_c


@cell(states=["h", "c"], gates=["f", "g", "o"])
def lstm_coupled(f, g, o, h, c):
    """Coupled input and forget gate: i = 1 - f (Greff et al. 2017, CIFG)."""
    f = sigmoid(f)
    c = f * c + (1 - f) * tanh(g)
    return sigmoid(o) * tanh(c), c
