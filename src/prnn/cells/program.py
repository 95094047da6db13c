"""Program: a cell's step and its derivative, ordered for execution.

A step needs more than one *stage* when a gate is applied to a vector that the step itself computes (``recurrent_of``): stage 0
reads the products with x and h and yields the *operands*; between stages the engine multiplies the operands; the last stage
yields the next states. The backward pass walks the stages in reverse.

The values that the products deliver live in *slots*. Slots are ordered so that the input product fills a contiguous range and so
does the recurrent product: input-only first, then sums, then recurrent-only, then the products with operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prnn.cells.expr import EXPENSIVE, Expr, add, const, leaf, rebuild, topological
from prnn.cells.grad import gradients
from prnn.errors import CellError


@dataclass(frozen=True)
class Slot:
    """Where one product lands: `kind` is input, sum, recurrent or product."""

    kind: str
    gate: str


@dataclass(frozen=True)
class Output:
    """One value that a stage yields.

    `kind` and `index`: ``operand`` k (vector for product k), ``next`` s (state), ``saved`` j (kept for backward); in backward
    ``d_slot`` s, ``d_state`` s (the part that does not pass through a matrix), ``d_vector`` v (summed over steps and batch).
    """

    kind: str
    index: int
    value: Expr


@dataclass(frozen=True)
class Program:
    """See the module's text.

    Attributes:
        products: slot index of the product with operand k, in stage order.
        product_stage: the stage after which operand k is ready; its product is read from the next stage on.
        forward: for each stage its outputs.
        saved: the forward values that backward reads, keyed leaf ("saved", j) in backward's expressions.
        backward: for each stage, last stage first, its outputs. Leaves: saved, vector, ("d_next", s), ("d_operand", k) and
            ("state", 0): the engine keeps the recurrent state of every step anyway, for the weight gradient.
    """

    states: tuple[str, ...]
    vectors: tuple[str, ...]
    slots: tuple[Slot, ...]
    input_gates: tuple[str, ...]
    recurrent_gates: tuple[str, ...]
    num_input_only: int
    num_sums: int
    num_recurrent_only: int
    products: tuple[int, ...]
    product_stage: tuple[int, ...]
    forward: tuple[tuple[Output, ...], ...]
    saved: tuple[Expr, ...]
    backward: tuple[tuple[Output, ...], ...]

    @property
    def num_stages(self) -> int:
        return len(self.forward)

    @property
    def num_input_slots(self) -> int:
        """The input product fills slots [0, num_input_slots)."""
        return self.num_input_only + self.num_sums

    @property
    def num_recurrent_slots(self) -> int:
        """The recurrent product fills slots [num_input_only, num_input_only + num_recurrent_slots)."""
        return self.num_sums + self.num_recurrent_only

    @property
    def backward_reads_output(self) -> bool:
        """True if backward uses the recurrent state elementwise."""
        roots = [output.value for stage in self.backward for output in stage]
        return leaf("state", 0) in topological(roots)


def build_program(
    name: str, states: tuple[str, ...], gates: tuple[str, ...], vectors: tuple[str, ...], next_states: tuple[Expr, ...]
) -> Program:
    """Order a step for execution and derive its backward pass.

    Raises:
        CellError: a declared name is not used, or a recurrent matrix is asked for more than one product.
    """
    next_states = _split_mixed_gates(next_states)
    nodes = topological(next_states)
    uses = {gate: {node.value[0] for node in nodes if node.op == "leaf" and node.value[1] == gate} for gate in gates}
    products = {gate: [node for node in nodes if node.op == "product" and node.value == gate] for gate in gates}
    for gate in gates:
        if not uses[gate] and not products[gate]:
            raise CellError(
                f"cell {name!r} declares gate {gate!r} but never uses it; remove it from gates={list(gates)}"
            )
        if len(products[gate]) + ("recurrent" in uses[gate] or "sum" in uses[gate]) > 1:
            raise CellError(
                f"cell {name!r} multiplies the recurrent matrix of gate {gate!r} more than once a step "
                "(the gate as a number, .recurrent and each .recurrent_of count); declare a second gate for the second product"
            )
    for vector in vectors:
        if leaf("vector", vector) not in nodes:
            raise CellError(
                f"cell {name!r} declares vector {vector!r} but never uses it; remove it from vectors={list(vectors)}"
            )

    level: dict[Expr, int] = {}
    for node in nodes:
        level[node] = max((level[arg] for arg in node.args), default=0) + (node.op == "product")
    num_stages = max((level[node] for node in next_states), default=0) + 1
    ordered = sorted((node for each in products.values() for node in each), key=lambda node: level[node])

    def of_kind(kind: str) -> list[Slot]:
        return [Slot(kind, gate) for gate in gates if kind in uses[gate]]

    input_only, sums, recurrent_only = of_kind("input"), of_kind("sum"), of_kind("recurrent")
    slots = (*input_only, *sums, *recurrent_only, *(Slot("product", node.value) for node in ordered))
    slot_node = [leaf(slot.kind, slot.gate) if slot.kind != "product" else products[slot.gate][0] for slot in slots]
    rename: dict[Expr, Expr] = {node: leaf("slot", index) for index, node in enumerate(slot_node)}
    rename.update({leaf("state", each): leaf("state", index) for index, each in enumerate(states)})
    rename.update({leaf("vector", each): leaf("vector", index) for index, each in enumerate(vectors)})

    seeds: dict[Expr, Expr] = {}
    for index, node in enumerate(next_states):
        seeds[node] = add(seeds.get(node, const(0.0)), leaf("d_next", index))
    gradient = gradients(seeds)
    backward_stages = []
    for stage in reversed(range(num_stages)):
        outputs = [
            Output("d_slot", index, gradient.get(node, const(0.0)))
            for index, node in enumerate(slot_node)
            if level[node] == stage
        ]
        if stage == 0:
            outputs += [Output("d_state", i, gradient.get(leaf("state", s), const(0.0))) for i, s in enumerate(states)]
            outputs += [
                Output("d_vector", i, gradient.get(leaf("vector", v), const(0.0))) for i, v in enumerate(vectors)
            ]
        backward_stages.append(outputs)

    saved = _choose_saved(nodes, [output.value for stage in backward_stages for output in stage], states[0])
    as_saved = {node: leaf("saved", index) for index, node in enumerate(saved)}

    operand_index = {node: index for index, node in enumerate(ordered)}
    forward_stages = []
    for stage in range(num_stages):
        outputs = [Output("operand", operand_index[node], node.args[0]) for node in ordered if level[node] == stage + 1]
        if stage == num_stages - 1:
            outputs += [Output("next", index, node) for index, node in enumerate(next_states)]
            outputs += [Output("saved", index, node) for index, node in enumerate(saved)]
        forward_stages.append(outputs)

    gate_operand = {node.value: leaf("d_operand", index) for node, index in operand_index.items()}

    def for_forward(node: Expr, args: tuple[Expr, ...]) -> Expr | None:
        return rename.get(node)

    def for_backward(node: Expr, args: tuple[Expr, ...]) -> Expr | None:
        if node.op == "leaf" and node.value[0] == "d_operand":
            return gate_operand[node.value[1]]
        return as_saved.get(node, rename.get(node))

    return Program(
        states=states,
        vectors=vectors,
        slots=slots,
        input_gates=tuple(gate for gate in gates if uses[gate] & {"input", "sum"}),
        recurrent_gates=tuple(gate for gate in gates if uses[gate] & {"recurrent", "sum"} or products[gate]),
        num_input_only=len(input_only),
        num_sums=len(sums),
        num_recurrent_only=len(recurrent_only),
        products=tuple(slots.index(Slot("product", node.value)) for node in ordered),
        product_stage=tuple(level[node] - 1 for node in ordered),
        forward=_rewrite(forward_stages, for_forward),
        saved=tuple(rebuild(saved, for_forward)),
        backward=_rewrite(backward_stages, for_backward),
    )


def _split_mixed_gates(next_states: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """A gate read both as a sum and apart keeps only its parts."""
    apart = {
        node.value[1]
        for node in topological(next_states)
        if node.op == "leaf" and node.value[0] in ("input", "recurrent")
    }

    def split(node: Expr, args: tuple[Expr, ...]) -> Expr | None:
        if node.op == "leaf" and node.value[0] == "sum" and node.value[1] in apart:
            return leaf("input", node.value[1]) + leaf("recurrent", node.value[1])
        return None

    return tuple(rebuild(next_states, split))


def _choose_saved(forward: list[Expr], backward: list[Expr], output_state: str) -> list[Expr]:
    """The forward values to keep for backward: products, states and expensive results; cheap ones are computed again."""
    of_forward = set(forward)
    saved: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(reversed(backward))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        keep = node.op in ("product", *EXPENSIVE) or (
            node.op == "leaf" and node.value[0] != "vector" and node != leaf("state", output_state)
        )
        if node in of_forward and keep:
            saved[node] = None
        else:
            stack.extend(reversed(node.args))
    return list(saved)


def _rewrite(
    stages: list[list[Output]], change: Callable[[Expr, tuple[Expr, ...]], Expr | None]
) -> tuple[tuple[Output, ...], ...]:
    return tuple(
        tuple(
            Output(output.kind, output.index, value)
            for output, value in zip(outputs, rebuild([output.value for output in outputs], change))
        )
        for outputs in stages
    )
