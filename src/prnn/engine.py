"""prepare(problem) -> Executable: the only file that knows both plan and runtime."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from prnn import env, facts
from prnn.kernels import interpreted
from prnn.plan import Plan, choose
from prnn.problem import Problem
from prnn.specs import Available, LayerWeights, Rows

Array = Any


class Executable:
    """A problem bound to the family that runs it. Calling it plans nothing.

    Arrays are numpy arrays or CPU torch tensors of the problem's dtype that need no gradient. x, states, weights, saved and all
    gradients are contiguous; y and d_y may have a larger row stride (they may be one direction's columns of a wider array).
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.plan = plan

    def saved_size(self, num_rows: int) -> int:
        """Elements of the `saved` array of a training forward over `num_rows` rows."""
        return interpreted.saved_size(self.problem, num_rows)

    def forward(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
        saved: Array | None = None,
    ) -> None:
        """Run a sequence through the layer.

        Args:
            x: [num_rows, I].
            states: initial states, [B, P] for the first and [B, H] for the others.
            y: [num_rows, P]; written.
            final_states: like `states`; written: each sequence's state after its last processed step. May not alias `states`.
            saved: [saved_size(num_rows)]; written: what `backward` needs.
        """
        raise NotImplementedError

    def backward(
        self,
        x: Array,
        weights: LayerWeights,
        rows: Rows,
        saved: Array,
        d_y: Array,
        d_final_states: tuple[Array, ...],
        d_x: Array | None,
        d_states: tuple[Array, ...],
        d_weights: LayerWeights,
    ) -> None:
        """Gradients of a sequence that `forward` ran with `saved`.

        Args:
            d_y: [num_rows, P], gradient that arrives at y.
            d_final_states: like the states; gradient that arrives at the final states.
            d_x, d_states, d_weights: overwritten with the gradients; d_x and members of d_weights may be None (not wanted).
        """
        raise NotImplementedError


class _Interpreted(Executable):
    def forward(self, x, states, weights, rows, y, final_states, saved=None):  # type: ignore[no-untyped-def]
        interpreted.forward(
            self.problem, _view(x), _views(states), _weights(weights), rows, _view(y), _views(final_states), _view(saved)
        )

    def backward(self, x, weights, rows, saved, d_y, d_final_states, d_x, d_states, d_weights):  # type: ignore[no-untyped-def]
        interpreted.backward(
            self.problem, _view(x), _weights(weights), rows, _view(saved), _view(d_y), _views(d_final_states),
            _view(d_x), _views(d_states), _weights(d_weights),
        )


def _view(array: Array) -> Array:
    """The same memory as a numpy array."""
    return array.numpy() if hasattr(array, "data_ptr") else array


def _views(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(map(_view, arrays))


def _weights(weights: LayerWeights) -> LayerWeights:
    w_ih, w_hh, b_ih, b_hh, w_hr = map(_view, weights[:5])
    return LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr, _views(weights.vectors))


def available() -> Available:
    """What this installation can run; nothing is loaded or compiled."""
    cores = facts.probe_cpu().cores
    return Available(
        threads=env.num_threads() or cores,
        no_library="this build of prnn has no native engine; install prnn from a wheel or build it with a C++ compiler",
        no_compiler="this build of prnn has no native engine",
    )


@lru_cache(maxsize=1024)
def prepare(problem: Problem, batch: int = 1, steps: int = 1, backend: str = "auto") -> Executable:
    """Choose how to run `problem`; `batch` and `steps` are the sizes to choose for, any others still run.

    Raises:
        ValueError: no family is called `backend`.
        UnsupportedProblem: the family that `backend` names cannot run it.
    """
    return _Interpreted(problem, choose(problem, facts.probe_cpu(), batch, steps, available(), backend))
