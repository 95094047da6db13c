"""Cell: what one timestep of a recurrent layer computes, written once.

A cell is a Python function over traced values. For every gate g the layer forms two products,

    input      W_g x + b_ih_g        and        recurrent      R_g h + b_hh_g

and the function says what becomes of them. A gate used as a number is their sum; ``g.input`` and ``g.recurrent`` keep them
apart (the candidate of cuDNN's GRU); ``g.recurrent_of(v)`` is ``R_g v + b_hh_g`` for another vector than h (the original GRU).
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prnn.cells.expr import Arithmetic, Expr, Operand, leaf, lift, rebuild, topological
from prnn.cells.program import Program, build_program
from prnn.errors import CellError


class Gate(Arithmetic):
    """A gate as the step function sees it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def input(self) -> Expr:
        """W_g x + b_ih_g."""
        return leaf("input", self.name)

    @property
    def recurrent(self) -> Expr:
        """R_g h + b_hh_g."""
        return leaf("recurrent", self.name)

    def recurrent_of(self, vector: Operand) -> Expr:
        """R_g v + b_hh_g for a vector v that this step computes: a second, dependent product."""
        return Expr("product", (lift(vector),), self.name)

    def as_expr(self) -> Expr:
        return leaf("sum", self.name)


@dataclass(frozen=True, eq=False)
class Cell:
    """A recurrent cell. Make one with `cell`; compare, hash and pickle it like a value.

    Attributes:
        name: for messages and file names.
        states: state names; the first is the recurrent one, which meets the recurrent matrix and is the layer's output.
        gates: gate names in the order of their rows in ``weight_ih`` and ``weight_hh``.
        vectors: names of parameters with one number per unit (peepholes).
        next_states: the step, one expression for each state.
        path: ``module:name`` under which the cell is found again when it is unpickled.
    """

    name: str
    states: tuple[str, ...]
    gates: tuple[str, ...]
    vectors: tuple[str, ...]
    next_states: tuple[Expr, ...] = field(repr=False)
    path: str = field(default="", repr=False)

    @cached_property
    def program(self) -> Program:
        """The step, its derivative and what to keep between them, ordered for execution."""
        return build_program(self.name, self.states, self.gates, self.vectors, self.next_states)

    @cached_property
    def input_gates(self) -> tuple[str, ...]:
        """The gates that take the input product, in order: the row blocks of ``weight_ih`` and ``bias_ih``."""
        return self.program.input_gates

    @cached_property
    def recurrent_gates(self) -> tuple[str, ...]:
        """The gates that take the recurrent product, in order: the row blocks of ``weight_hh`` and ``bias_hh``."""
        return self.program.recurrent_gates

    @cached_property
    def reads_output_elementwise(self) -> bool:
        """True if the step uses the recurrent state other than through the recurrent matrix; forbids a projection."""
        return leaf("state", self.states[0]) in topological(self.next_states)

    @cached_property
    def digest(self) -> str:
        """A hexadecimal digest of what the cell computes; equal cells have equal digests whatever their names."""
        index = {node: k for k, node in enumerate(topological(self.next_states))}
        # Nodes by number: written out in full, a formula that uses its values again grows without bound.
        nodes = [(node.op, [index[arg] for arg in node.args], node.value) for node in index]
        identity = (self.states, self.gates, self.vectors, nodes, [index[node] for node in self.next_states])
        return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cell:
        return self  # a value: copying a layer of a cell made in a local scope must not need the import path

    def __reduce__(self) -> Any:
        if not self.path or "<locals>" in self.path:
            raise CellError(
                f"cell {self.name!r} cannot be pickled: it is not reachable by import ({self.path or 'no path'}); "
                "define it at the top level of a module"
            )
        return find, (self.path,)

    def linear_twin(self) -> Cell:
        """The same cell with linear activations, so that saturation cannot hide an indexing error in a test.

        sigmoid(a) becomes 0.5 + 0.25 a, tanh(a) and relu(a) become 0.5 a.
        """

        def linear(node: Expr, args: tuple[Expr, ...]) -> Expr | None:
            if node.op == "sigmoid":
                return 0.5 + 0.25 * args[0]
            return 0.5 * args[0] if node.op in ("tanh", "relu") else None

        twin = tuple(rebuild(self.next_states, linear))
        return Cell(f"{self.name}_linear", self.states, self.gates, self.vectors, twin)


def find(path: str) -> Cell:
    """The cell at ``module:name``.

    Raises:
        CellError: there is no cell.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CellError(f"no cell at {path!r}: {error}; expected an importable 'module:name'") from error
    if not isinstance(found, Cell):
        raise CellError(f"{path!r} is a {type(found).__name__}, not a cell; decorate the step with @prnn.cell")
    return found


def cell(
    *, states: Sequence[str], gates: Sequence[str], vectors: Sequence[str] = (), name: str | None = None
) -> Callable[[Callable[..., Any]], Cell]:
    """Decorator: make a `Cell` of a step function.

    The function's parameters are the names of gates, states and vectors, in any order; it returns the next states in the order
    of `states` (a bare value if there is one). It is called once, with traced values, when it is decorated.

    Args:
        states: the first is the recurrent state and the layer's output.
        gates: in the order of their rows in the weights.
        vectors: parameters with one number per unit.
        name: the function's name by default.

    Raises:
        CellError: a name is unknown, used twice, or the function returns something else than one value per state.

    Example (LSTM; see docs/add_a_cell.md)::

        @prnn.cell(states=["h", "c"], gates=["i", "f", "g", "o"])
        def lstm(i, f, g, o, h, c):
            c = sigmoid(f) * c + sigmoid(i) * tanh(g)
            return sigmoid(o) * tanh(c), c
    """
    for kind, names in (("states", states), ("gates", gates), ("vectors", vectors)):
        if isinstance(names, str):
            raise CellError(f"{kind}={names!r} is a string; pass a list of names, for example {kind}={[names]!r}")

    def decorate(step: Callable[..., Any]) -> Cell:
        label = name or step.__name__
        values: dict[str, Arithmetic] = {}
        for kind, names in (("state", states), ("gate", gates), ("vector", vectors)):
            for each in names:
                if not each.isidentifier():
                    raise CellError(f"cell {label!r}: {kind} name {each!r} is not a Python identifier")
                if each in values:
                    raise CellError(f"cell {label!r}: the name {each!r} is declared twice")
                values[each] = Gate(each) if kind == "gate" else leaf(kind, each)
        if not states:
            raise CellError(f"cell {label!r} declares no state; the first state is the layer's output")
        unknown = [each for each in inspect.signature(step).parameters if each not in values]
        if unknown:
            raise CellError(
                f"cell {label!r}: parameter {unknown[0]!r} is neither a state {list(states)}, "
                f"a gate {list(gates)} nor a vector {list(vectors)}"
            )
        result = step(**{each: values[each] for each in inspect.signature(step).parameters})
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(outputs) != len(states):
            raise CellError(
                f"cell {label!r} returns {len(outputs)} values for {len(states)} states {list(states)}; "
                "return the next value of every state, in this order"
            )
        path = f"{step.__module__}:{step.__qualname__}"
        made = Cell(label, tuple(states), tuple(gates), tuple(vectors), tuple(map(lift, outputs)), path)
        made.program  # noqa: B018 - validate now, where the definition stands in the traceback
        return made

    return decorate
