"""A loop over time in NumPy as a careful user writes it: one product a step for all gates, no temporaries beyond NumPy's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prnn.bench.variants import Array, CannotRun, Variant
from prnn.bench.workload import Data, Workload

Cell = Callable[[Array, Array, list[Array]], list[Array]]


def prepare(workload: Workload, data: Data) -> Variant:
    """See Variant."""
    if workload.mode == "training":
        raise CannotRun("no gradients")
    w_ih, w_hh, b_ih, b_hh = (np.asarray(each) for each in data.weights[:4])
    w_x, w_h = np.ascontiguousarray(w_ih.T), np.ascontiguousarray(w_hh.T)
    # A bias that is not inside the reset gate's product can join the other one before the loop.
    gru = workload.cell == "gru"
    bias, bias_h = (b_ih, b_hh) if gru else (b_ih + b_hh, np.zeros_like(b_hh))
    cell: Cell = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn}[workload.cell]
    zero = np.zeros((workload.batch, workload.hidden), np.float32)
    num_states = len(workload.problem.cell.states)

    def advance(x_product: Array, states: list[Array]) -> list[Array]:
        h_product = states[0] @ w_h
        if gru:
            h_product += bias_h
        return cell(x_product, h_product, states)

    def sequence() -> dict[str, Array]:
        x = data.x.reshape(-1, workload.input) @ w_x
        x += bias
        states, outputs = [zero] * num_states, np.empty((*data.x.shape[:2], workload.hidden), np.float32)
        for t, x_product in enumerate(x.reshape(*data.x.shape[:2], -1)):
            states = advance(x_product, states)
            outputs[t] = states[0]
        return {"y": outputs} | dict(zip(("h_n", "c_n"), states))

    if not workload.streaming:
        return Variant(sequence, sequence)
    states = [zero] * num_states

    def step(x: Array) -> Array:
        nonlocal states
        x_product = x @ w_x
        x_product += bias
        states = advance(x_product, states)
        return states[0]

    def steps() -> dict[str, Array]:
        nonlocal states
        states = [zero] * num_states
        return {"y": np.stack([step(x) for x in data.x])}

    first = data.x[0].copy()
    return Variant(steps, lambda: step(first))


def _sigmoid(x: Array) -> Array:
    """In place; tanh is faster than a quotient with exp, and never overflows."""
    x *= 0.5
    np.tanh(x, out=x)
    x += 1
    x *= 0.5
    return x


def _rnn(x_product: Array, h_product: Array, states: list[Array]) -> list[Array]:
    h_product += x_product
    return [np.tanh(h_product, out=h_product)]


def _lstm(x_product: Array, h_product: Array, states: list[Array]) -> list[Array]:
    h_product += x_product
    size = states[0].shape[1]
    # i, f, g, o: one call for the neighbours i and f
    input_forget, g, o = h_product[:, : 2 * size], h_product[:, 2 * size : 3 * size], h_product[:, 3 * size :]
    _sigmoid(input_forget)
    np.tanh(g, out=g)
    _sigmoid(o)
    c = input_forget[:, size:] * states[1]
    g *= input_forget[:, :size]
    c += g
    h = np.tanh(c)
    h *= o
    return [h, c]


def _gru(x_product: Array, h_product: Array, states: list[Array]) -> list[Array]:
    (h,), size = states, states[0].shape[1]
    gates = h_product[:, : 2 * size]
    gates += x_product[:, : 2 * size]
    _sigmoid(gates)  # r, z
    n = h_product[:, 2 * size :]
    n *= gates[:, :size]
    n += x_product[:, 2 * size :]
    np.tanh(n, out=n)
    following = h - n
    following *= gates[:, size:]
    following += n
    return [following]
