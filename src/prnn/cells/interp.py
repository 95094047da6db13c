"""Run a cell's expressions over arrays of any namespace: numpy gives the reference, torch a differentiable slow path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prnn.cells.expr import Expr, topological

Array = Any


def evaluate(
    roots: Iterable[Expr], leaves: Mapping[Any, Array], xp: Any, product: Callable[[str, Array], Array] | None = None
) -> list[Array]:
    """The values of `roots`.

    Args:
        leaves: the value of every leaf, by its key (a tuple).
        xp: numpy, torch, or a namespace with exp, log, sqrt, tanh, maximum, where and zeros_like.
        product: product(gate, vector) for ``recurrent_of`` nodes; not needed for the expressions of a `Program`.
    """
    roots = list(roots)
    values: dict[Expr, Array] = {}
    for node in topological(roots):
        args = [values[arg] for arg in node.args]
        if node.op == "const":
            values[node] = node.value
        elif node.op == "leaf":
            values[node] = leaves[node.value]
        elif node.op == "product":
            assert product is not None
            values[node] = product(node.value, args[0])
        else:
            values[node] = OPERATIONS[node.op](xp, *args)
    return [values[root] for root in roots]


def _sigmoid(xp: Any, a: Array) -> Array:
    native = getattr(xp, "sigmoid", None)
    if native is not None:
        return native(a)
    # exp of a negative number only: no overflow at either end
    small = xp.exp(-abs(a))
    return xp.where(a >= 0, 1 / (1 + small), small / (1 + small))


def _maximum(xp: Any, a: Array, b: Array) -> Array:
    return xp.maximum(_array(xp, a, b), _array(xp, b, a))


def _array(xp: Any, a: Array, like: Array) -> Array:
    """A number becomes an array like the other operand: torch.maximum takes no numbers."""
    return xp.zeros_like(like) + a if isinstance(a, float) else a


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": lambda xp, a, b: a + b,
    "sub": lambda xp, a, b: a - b,
    "mul": lambda xp, a, b: a * b,
    "div": lambda xp, a, b: a / b,
    "neg": lambda xp, a: -a,
    "exp": lambda xp, a: xp.exp(a),
    "log": lambda xp, a: xp.log(a),
    "sqrt": lambda xp, a: xp.sqrt(a),
    "sigmoid": _sigmoid,
    "tanh": lambda xp, a: xp.tanh(a),
    "relu": lambda xp, a: xp.where(a <= 0, xp.zeros_like(a), a),
    "maximum": _maximum,
    "greater": lambda xp, a, b: xp.where(a > b, _array(xp, 1.0, a + b), _array(xp, 0.0, a + b)),
}
