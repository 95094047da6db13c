"""Print a cell's program as C++: the same text for the CPU engine (V is a vector of units) and for CUDA (V is a float).

The text needs, from whatever includes it: sigmoid, tanh, relu, exp, log, sqrt, maximum and greater for V; ``Stage<k>``, an empty
template that picks an overload; and PRNN_CELL, the function qualifiers (inline, __device__).
"""

from __future__ import annotations

from collections.abc import Sequence

from prnn.cells.cell import Cell
from prnn.cells.expr import Expr, topological
from prnn.cells.program import Output

_INFINITE = {float("inf"): "1.0 / 0.0", float("-inf"): "-1.0 / 0.0"}  # C++ has no literal
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def emit_cell(cell: Cell, struct_name: str = "Cell") -> str:
    """The cell as a C++ struct of constants and one static function for each stage.

    forward(Stage<k>, slot, state, vector, operand, next, saved) and backward(Stage<k>, saved, state, vector, d_next, d_operand,
    d_slot, d_state, d_vector) read and write arrays of V: ``V slot[num_slots]`` and so on, one unit (or one vector of units) at a
    time.
    """
    program = cell.program
    numbers = {
        "num_states": len(program.states),
        "num_vectors": len(program.vectors),
        "num_slots": len(program.slots),
        "num_products": len(program.products),
        "num_stages": program.num_stages,
        "num_saved": len(program.saved),
        "num_input_slots": program.num_input_slots,
        "first_recurrent_slot": program.num_input_only,
        "num_recurrent_slots": program.num_recurrent_slots,
        "backward_reads_output": int(program.backward_reads_output),
    }
    lines = [
        f"// {cell.name}({', '.join(cell.gates)}; {', '.join(cell.states)}): printed from its definition, do not edit.",
        f"struct {struct_name} {{",
        f'  static constexpr const char* name = "{cell.name}";',
        *(f"  static constexpr int {key} = {value};" for key, value in numbers.items()),
        _table(
            "slot_input_gate",
            [_gate_row(program.input_gates, s.gate, s.kind in ("input", "sum")) for s in program.slots],
        ),
        _table(
            "slot_recurrent_gate",
            [_gate_row(program.recurrent_gates, s.gate, s.kind != "input") for s in program.slots],
        ),
        _table("product_slot", program.products),
        _table("product_stage", program.product_stage),
    ]
    for stage, outputs in enumerate(program.forward):
        parameters = "const V* slot, const V* state, const V* vector, V* operand, V* next, V* saved"
        lines += _function(f"forward(Stage<{stage}>", parameters, outputs)
    for stage, outputs in enumerate(program.backward):
        parameters = (
            "const V* saved, const V* state, const V* vector, const V* d_next, const V* d_operand, "
            "V* d_slot, V* d_state, V* d_vector"
        )
        lines += _function(f"backward(Stage<{stage}>", parameters, outputs)
    return "\n".join([*lines, "};", ""])


def _gate_row(gates: Sequence[str], gate: str, takes: bool) -> int:
    """The row block of a gate in a weight matrix; -1 if the slot does not take that product."""
    return gates.index(gate) if takes else -1


def _table(name: str, values: Sequence[int]) -> str:
    entries = ", ".join(map(str, values or (-1,)))  # C++ has no empty array
    return f"  static constexpr int32_t {name}[] = {{{entries}}};"


def _function(head: str, parameters: str, outputs: Sequence[Output]) -> list[str]:
    lines = [f"  template <class V> static PRNN_CELL void {head}, {parameters}) {{"]
    names: dict[Expr, str] = {}
    for node in topological([output.value for output in outputs]):
        if node.op == "const":
            names[node] = f"V({_INFINITE.get(node.value, repr(node.value))})"
        elif node.op == "leaf":
            names[node] = f"{node.value[0]}[{node.value[1]}]"
        else:
            text = _operation(node, [names[arg] for arg in node.args])
            names[node] = f"t{len(lines) - 1}"
            lines.append(f"    const V {names[node]} = {text};")
    lines += [f"    {output.kind}[{output.index}] = {names[output.value]};" for output in outputs]
    return [*lines, "  }"]


def _operation(node: Expr, args: Sequence[str]) -> str:
    if node.op in _INFIX:
        return f"{args[0]} {_INFIX[node.op]} {args[1]}"
    return f"-{args[0]}" if node.op == "neg" else f"{node.op}({', '.join(args)})"
