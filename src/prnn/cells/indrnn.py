"""Independently recurrent network (Li et al. 2018): a vector in place of the recurrent matrix."""

from prnn.cells.cell import cell
from prnn.cells.expr import relu


@cell(states=["h"], gates=["n"], vectors=["u"])
def indrnn(n, h, u):
    return relu(n.input + u * h)
