"""Minimal gated unit (Zhou et al. 2016): a GRU with one gate."""

from prnn.cells.cell import cell
from prnn.cells.expr import sigmoid, tanh


@cell(states=["h"], gates=["f", "n"])
def mgu(f, n, h):
    f = sigmoid(f)
    n = tanh(n.input + n.recurrent_of(f * h))
    return h + f * (n - h)
