"""Gated recurrent units (Cho et al. 2014), with the reset gate after or before the recurrent product."""

from prnn.cells.cell import cell
from prnn.cells.expr import sigmoid, tanh


@cell(states=["h"], gates=["r", "z", "n"])
def gru(r, z, n, h):
    """Reset after the product, as cuDNN and torch.nn.GRU have it: one product a step."""
    n = tanh(n.input + sigmoid(r) * n.recurrent)
    return n + sigmoid(z) * (h - n)


@cell(states=["h"], gates=["r", "z", "n"])
def gru_reset_before(r, z, n, h):
    """Reset before the product, as in the original paper: two dependent products a step."""
    n = tanh(n.input + n.recurrent_of(sigmoid(r) * h))
    return n + sigmoid(z) * (h - n)
