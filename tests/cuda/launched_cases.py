"""Problems that only the family `launched` runs, or that are hard for it."""

import torch

from prnn import cells


@cells.cell(states=["h", "c"], gates=["a", "p", "b", "q", "d"], vectors=["u"])
def two_products(a, p, b, q, d, h, c, u):
    """Three stages; the rows of the products lie among those that meet h, and d takes the input alone."""
    first = p.input + p.recurrent_of(cells.sigmoid(a) * h)
    second = q.recurrent_of(cells.tanh(first) + u * c)
    c = cells.sigmoid(b) * c + 0.5 * cells.tanh(second + d.input)
    return 0.5 * cells.tanh(c) + 0.25 * h, c


@cells.cell(states=["h"], gates=["a", "p", "q"])
def side_by_side(a, p, q, h):
    """Two products after one stage."""
    one, two = p.recurrent_of(cells.sigmoid(a) * h), q.recurrent_of(cells.relu(a) * h)
    return cells.tanh(one + two + p.input)


EVERY = [*cells.BUILTIN.values(), two_products, side_by_side]
# cell, dtype, hidden, projection
MIXED = [
    (cells.gru_reset_before, torch.float16, 20, 0),
    (cells.mgu, torch.bfloat16, 7, 0),
    (cells.lstm, torch.float16, 20, 6),
    (cells.lstm, torch.float64, 9, 1),
    (cells.rnn_tanh, torch.float32, 12, 5),
    (two_products, torch.float64, 11, 0),
    (two_products, torch.bfloat16, 16, 0),
    (cells.gru, torch.float32, 17, 0),
    (cells.lstm_peephole, torch.float64, 1, 0),
]


def name(value):
    """For the ids of a test."""
    return getattr(value, "name", str(value))
