"""Check a cell or an engine against the slow truth. For the tests of this package, and for whoever writes a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prnn import engine, reference
from prnn.cells import Cell
from prnn.packing import pack
from prnn.problem import Problem
from prnn.specs import LayerWeights

Array = Any


@dataclass
class LayerCase:
    """A layer's inputs and the gradients that arrive at its outputs, drawn from `seed`; reset draws a boundary in 3 of 10 places.

    Attributes:
        lengths: valid steps of each sequence; T by default.
        reset: bool [T, B] or None.
    """

    problem: Problem
    steps: int = 5
    batch: int = 3
    lengths: Sequence[int] | None = None
    with_reset: bool = False
    reset_to_initial: bool = False
    reverse: bool = False
    seed: int = 0
    x: Array = field(init=False)
    states: list[Array] = field(init=False)
    weights: LayerWeights = field(init=False)
    reset: Array | None = field(init=False)
    d_y: Array = field(init=False)
    d_finals: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        problem, steps, batch = self.problem, self.steps, self.batch

        def draw(*shape: int, scale: float = 1.0) -> Array:
            return (rng.standard_normal(shape) * scale).astype(problem.dtype)

        self.x = draw(steps, batch, problem.input_size)
        self.states = [draw(batch, width) for width in problem.state_sizes]
        scale = problem.hidden_size**-0.5
        named = {name: draw(*shape, scale=scale) for name, shape in problem.weight_shapes.items()}
        matrices = (named.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"))
        self.weights = _weights((*matrices, *(named[name] for name in problem.cell.vectors)))
        self.reset = rng.random((steps, batch)) < 0.3 if self.with_reset else None
        self.d_y = draw(steps, batch, problem.output_size)
        self.d_finals = [draw(batch, width) for width in problem.state_sizes]


@dataclass(frozen=True)
class Results:
    """Outputs of a layer and, by name, its gradients; padding is zero."""

    y: Array
    finals: list[Array]
    gradients: dict[str, Array]


def run_engine(case: LayerCase, backend: str = "auto") -> Results:
    """Forward and backward of a case by the engine. Every output array is filled with NaN beforehand."""
    problem, batch = case.problem, case.batch
    lengths = None if case.lengths is None else np.asarray(case.lengths)
    packing = pack(case.steps, batch, (case.reverse,), lengths, case.reset, case.reset_to_initial)
    (rows,) = packing.rows
    index = np.arange(case.steps * batch) if packing.index is None else packing.index
    order = np.arange(batch) if packing.order is None else packing.order
    executable = engine.prepare(problem, batch, case.steps, backend)

    def packed(padded: Array) -> Array:
        return np.ascontiguousarray(padded.reshape(case.steps * batch, padded.shape[2])[index])

    def padded(part: Array) -> Array:
        whole = np.zeros((case.steps * batch, part.shape[1]), part.dtype)
        whole[index] = part
        return whole.reshape(case.steps, batch, part.shape[1])

    def ordered(states: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(np.ascontiguousarray(state[order]) for state in states)

    def unordered(states: Sequence[Array]) -> list[Array]:
        result = [np.empty_like(state) for state in states]
        for to, state in zip(result, states):
            to[order] = state
        return result

    def unwritten(arrays: Sequence[Array | None]) -> list[Any]:
        return [None if array is None else np.full_like(array, np.nan) for array in arrays]

    x, states = packed(case.x), ordered(case.states)
    y = np.full((rows.num_rows, problem.output_size), np.nan, problem.dtype)
    finals = tuple(unwritten(states))
    saved = np.full(executable.saved_size(rows.num_rows), np.nan, problem.dtype)
    executable.forward(x, states, case.weights, rows, y, finals, saved)
    (d_x,), d_states = unwritten([x]), tuple(unwritten(states))
    d_weights = _weights(unwritten((*case.weights[:5], *case.weights.vectors)))
    executable.backward(
        x, case.weights, rows, saved, packed(case.d_y), ordered(case.d_finals), d_x, d_states, d_weights
    )
    gradients = {
        "x": padded(d_x),
        **_named(problem.cell.states, unordered(d_states)),
        **_weights_by_name(problem.cell, d_weights),
    }
    return Results(padded(y), unordered(finals), gradients)


def run_reference(case: LayerCase) -> Results:
    """Forward of a case in float64 by reference.py, and its gradients by PyTorch's autograd through it."""
    import torch

    def leaf(array: Array | None) -> Any:
        return None if array is None else torch.tensor(array, dtype=torch.float64, requires_grad=True)

    x, states = leaf(case.x), [leaf(state) for state in case.states]
    weights = _weights([leaf(array) for array in (*case.weights[:5], *case.weights.vectors)])
    y, finals = reference.layer(
        case.problem.cell,
        x,
        weights,
        states,
        lengths=case.lengths,
        reset=case.reset,
        reset_to_initial=case.reset_to_initial,
        reverse=case.reverse,
        xp=torch,
    )
    loss = (y * torch.tensor(case.d_y)).sum()
    loss = loss + sum((final * torch.tensor(d_final)).sum() for final, d_final in zip(finals, case.d_finals))
    cell = case.problem.cell
    leaves = {"x": x, **_named(cell.states, states), **_weights_by_name(cell, weights)}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    gradients = {
        name: np.zeros(tuple(value.shape)) if gradient is None else gradient.numpy()
        for (name, value), gradient in zip(leaves.items(), found)
    }
    return Results(y.detach().numpy(), [final.detach().numpy() for final in finals], gradients)


def check_cell(cell: Cell, backend: str = "auto", hidden_size: int = 11) -> None:
    """Compare a cell's native forward and derived backward with the reference, plain, with lengths, reset and reversed.

    Needs PyTorch for the reference's gradients.

    Raises:
        AssertionError: an output or a gradient is off by more than 1e-9 of its largest value.
    """
    variants: tuple[dict[str, Any], ...] = (
        {},
        {"lengths": [5, 2, 0]},
        {"with_reset": True},
        {"reverse": True, "lengths": [1, 5, 3]},
    )
    for options in variants:
        case = LayerCase(Problem(cell, 4, hidden_size, dtype="float64", training=True), **options)
        assert_same(run_engine(case, backend), run_reference(case), 1e-9)


def assert_same(results: Results, expected: Results, tolerance: float) -> None:
    """Every output and gradient within `tolerance` of the expected array's largest value.

    Raises:
        AssertionError: names the array, the difference and the tolerance.
    """
    pairs = {"y": (results.y, expected.y)}
    pairs |= {f"final state {s}": pair for s, pair in enumerate(zip(results.finals, expected.finals))}
    pairs |= {f"gradient of {name}": (results.gradients[name], value) for name, value in expected.gradients.items()}
    for name, (got, wanted) in pairs.items():
        scale = np.abs(wanted).max(initial=0) or 1.0
        difference = np.abs(got - wanted).max(initial=0) / scale
        if not difference <= tolerance:  # also when NaN
            raise AssertionError(
                f"{name} is off by {difference:.2e} of its largest value {scale:.2e}; allowed {tolerance:.0e}"
            )


def _weights(arrays: Sequence[Array | None]) -> LayerWeights:
    w_ih, w_hh, b_ih, b_hh, w_hr, *vectors = arrays
    return LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr, tuple(vectors))


def _named(names: Sequence[str], arrays: Sequence[Array]) -> dict[str, Array]:
    return dict(zip(names, arrays))


def _weights_by_name(cell: Cell, weights: LayerWeights) -> dict[str, Array]:
    named = dict(zip(LayerWeights._fields[:5], weights[:5])) | dict(zip(cell.vectors, weights.vectors))
    return {name: array for name, array in named.items() if array is not None}
