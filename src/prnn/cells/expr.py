"""Expressions: the closed set of operations that a cell's step may use.

An `Expr` is an immutable node of a graph; equal nodes are one object, so common subexpressions are shared by construction.
Python operators and the functions below build nodes; nothing is computed here (see interp.py and emit_c.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Union

UNARY = ("neg", "exp", "log", "sqrt", "sigmoid", "tanh", "relu")
BINARY = ("add", "sub", "mul", "div", "maximum", "greater")
# Worth saving for the backward pass rather than recomputing; everything else costs about one instruction.
EXPENSIVE = ("exp", "log", "sqrt", "sigmoid", "tanh", "div")

Number = Union[int, float]
Operand = Union["Arithmetic", int, float]

_nodes: weakref.WeakValueDictionary[tuple[Any, ...], Expr] = weakref.WeakValueDictionary()


class Arithmetic:
    """The Python operators, for expressions and for gates."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        """The node that stands for this operand."""
        raise NotImplementedError

    def __add__(self, other: Operand) -> Expr:
        return add(self, other)

    def __radd__(self, other: Number) -> Expr:
        return add(other, self)

    def __sub__(self, other: Operand) -> Expr:
        return sub(self, other)

    def __rsub__(self, other: Number) -> Expr:
        return sub(other, self)

    def __mul__(self, other: Operand) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: Number) -> Expr:
        return mul(other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return div(self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return div(other, self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a cell's step is traced once, without data, so it cannot branch on a value; "
            "use prnn.cells.maximum, minimum or relu instead of `if`"
        )


class Expr(Arithmetic):
    """A node: an operation of `UNARY` or `BINARY`, a ``const`` (`value` is a float) or a ``leaf`` (`value` is its key)."""

    __slots__ = ("op", "args", "value", "__weakref__")
    op: str
    args: tuple[Expr, ...]
    value: Any

    def __new__(cls, op: str, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
        # repr keeps 0.0 and -0.0 apart, which compare equal
        key = (op, tuple(map(id, args)), repr(value) if op == "const" else value)
        node = _nodes.get(key)
        if node is None:
            node = object.__new__(cls)
            node.op, node.args, node.value = op, args, value
            _nodes[key] = node
        return node

    def as_expr(self) -> Expr:
        return self

    def __repr__(self) -> str:
        if self.op == "const":
            return repr(self.value)
        if self.op == "leaf":
            return ".".join(str(part) for part in self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})"


def const(value: Number) -> Expr:
    """A number, the same for every unit and step."""
    return Expr("const", (), float(value))


def leaf(*key: Any) -> Expr:
    """A value that comes from outside the expression, known by `key`."""
    return Expr("leaf", (), key)


def lift(value: Operand) -> Expr:
    """Turn a Python number into a node; leave nodes alone; refuse anything else."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Arithmetic):
        return value.as_expr()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return const(value)
    raise TypeError(f"a cell's step works on traced values and numbers, not on {type(value).__name__}")


def _is(value: Expr, number: float) -> bool:
    return value.op == "const" and bool(value.value == number)


def add(a: Operand, b: Operand) -> Expr:
    """a + b; adding a constant zero is dropped, which keeps derived gradients short."""
    a, b = lift(a), lift(b)
    if _is(a, 0.0):
        return b
    return a if _is(b, 0.0) else Expr("add", (a, b))


def sub(a: Operand, b: Operand) -> Expr:
    """a - b."""
    a, b = lift(a), lift(b)
    return a if _is(b, 0.0) else Expr("sub", (a, b))


def mul(a: Operand, b: Operand) -> Expr:
    """a * b; multiplying by a constant one is dropped."""
    a, b = lift(a), lift(b)
    if _is(a, 1.0):
        return b
    return a if _is(b, 1.0) else Expr("mul", (a, b))


def div(a: Operand, b: Operand) -> Expr:
    """a / b."""
    return Expr("div", (lift(a), lift(b)))


def neg(a: Operand) -> Expr:
    """-a."""
    return Expr("neg", (lift(a),))


def exp(a: Operand) -> Expr:
    """e to the power of a."""
    return Expr("exp", (lift(a),))


def log(a: Operand) -> Expr:
    """Natural logarithm of a."""
    return Expr("log", (lift(a),))


def sqrt(a: Operand) -> Expr:
    """Square root of a."""
    return Expr("sqrt", (lift(a),))


def sigmoid(a: Operand) -> Expr:
    """1 / (1 + exp(-a))."""
    return Expr("sigmoid", (lift(a),))


def tanh(a: Operand) -> Expr:
    """Hyperbolic tangent of a."""
    return Expr("tanh", (lift(a),))


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of a and b; NaN if either is NaN. A tie gives half the gradient to each, as in torch.maximum."""
    return Expr("maximum", (lift(a), lift(b)))


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of a and b; NaN if either is NaN."""
    return neg(maximum(neg(a), neg(b)))


def relu(a: Operand) -> Expr:
    """max(a, 0), NaN kept; the gradient at 0 is 0, as in torch.relu."""
    return Expr("relu", (lift(a),))


def clip(a: Operand, low: Operand, high: Operand) -> Expr:
    """a limited to [low, high]."""
    return minimum(maximum(a, low), high)


def greater(a: Operand, b: Operand) -> Expr:
    """1 where a > b, else 0 (also for NaN); its gradient is zero everywhere."""
    return Expr("greater", (lift(a), lift(b)))


def topological(roots: Iterable[Expr]) -> list[Expr]:
    """Every node that the roots need, each after its arguments, in an order that does not depend on the run."""
    order: dict[Expr, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))
    return list(order)


def rebuild(roots: Iterable[Expr], change: Callable[[Expr, tuple[Expr, ...]], Expr | None]) -> list[Expr]:
    """Rebuild the roots bottom-up: change(node, new arguments) gives the node to put in its place, or None to keep it."""
    roots = list(roots)
    new: dict[Expr, Expr] = {}
    for node in topological(roots):
        args = tuple(new[arg] for arg in node.args)
        changed = change(node, args)
        new[node] = Expr(node.op, args, node.value) if changed is None else changed
    return [new[root] for root in roots]
