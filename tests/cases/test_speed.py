"""Packed input costs what padded input costs (46)."""

import time

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import prnn

LIMIT = 1.5


def best(functions, repeats):
    """Seconds of each function: the least of several runs that take turns."""
    least = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            least[i] = min(least[i], time.perf_counter() - start)
    return least


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("steps", [10, 100, 1000, 4000])
def test_packed_input_is_as_fast_as_padded(steps, backward):
    layer = prnn.nn.LSTM(16, 32)
    x = torch.randn(steps, 8, 16)
    mixed = torch.linspace(1, steps, 8).round().long().flip(0)
    inputs = [x, *(pack_padded_sequence(x, lengths) for lengths in (torch.full((8,), steps), mixed))]

    def call(data):
        with torch.set_grad_enabled(backward):
            y, (h_n, _) = layer(data)
            if backward:
                h_n.sum().backward()

    repeats = max(5, 1000 // steps)
    for attempt in range(5):  # a busy machine may slow one of them down: a fault slows it down every time
        padded, equal, unequal = best([lambda data=data: call(data) for data in inputs], repeats)
        if max(equal, unequal) <= LIMIT * padded:
            return
        time.sleep(0.1 * attempt)
    raise AssertionError(
        f"padded {padded * 1e6:.0f} us, packed {equal * 1e6:.0f} us, of mixed lengths {unequal * 1e6:.0f} us"
    )
