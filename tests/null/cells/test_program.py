"""Programs: stages, slots and what forward keeps for backward."""

import pytest

from prnn.cells import BUILTIN, cell, gru_reset_before, lstm, tanh
from prnn.cells.expr import EXPENSIVE, topological

# Vectors of H numbers kept a row: more would cost memory traffic, fewer would recompute something expensive.
NUM_SAVED = {
    "rnn_tanh": 1,
    "rnn_relu": 1,
    "lstm": 6,
    "lstm_peephole": 6,
    "lstm_coupled": 5,
    "gru": 4,
    "gru_reset_before": 3,
    "mgu": 2,
    "indrnn": 1,
}


@pytest.mark.parametrize("each", BUILTIN.values(), ids=BUILTIN)
def test_saved_values(each):
    program = each.program
    assert len(program.saved) == NUM_SAVED[each.name]
    assert len(set(program.saved)) == len(program.saved)
    for value in program.saved:
        assert value.op in EXPENSIVE or value.op == "leaf", "a cheap value is computed again, not saved"
        assert not (value.op == "leaf" and value.value[0] == "vector"), "parameters are at hand"
        assert value.op != "leaf" or value.value != ("state", 0), "the engine keeps the output anyway"


@pytest.mark.parametrize("each", BUILTIN.values(), ids=BUILTIN)
def test_backward_reads_only_what_it_is_given(each):
    program = each.program
    outputs = [output.value for stage in program.backward for output in stage]
    leaves = {node.value for node in topological(outputs) if node.op == "leaf"}
    assert {key[0] for key in leaves} <= {"saved", "vector", "d_next", "d_operand", "state"}
    assert {key for key in leaves if key[0] == "state"} <= {("state", 0)}
    assert program.backward_reads_output == (("state", 0) in leaves)
    saved = {key[1] for key in leaves if key[0] == "saved"}
    assert saved == set(range(len(program.saved))), "everything saved is read"
    assert not EXPENSIVE_OF_BACKWARD & {node.op for node in topological(outputs)}


EXPENSIVE_OF_BACKWARD = set(EXPENSIVE) - {"div"}


@pytest.mark.parametrize("each", BUILTIN.values(), ids=BUILTIN)
def test_every_output_is_yielded_once(each):
    program = each.program
    forward = [(output.kind, output.index) for stage in program.forward for output in stage]
    backward = [(output.kind, output.index) for stage in program.backward for output in stage]
    assert sorted(forward) == sorted(
        [("next", i) for i in range(len(program.states))]
        + [("saved", i) for i in range(len(program.saved))]
        + [("operand", i) for i in range(len(program.products))]
    )
    assert sorted(backward) == sorted(
        [("d_slot", i) for i in range(len(program.slots))]
        + [("d_state", i) for i in range(len(program.states))]
        + [("d_vector", i) for i in range(len(program.vectors))]
    )


def test_slots_are_ordered_so_that_each_product_fills_a_range():
    @cell(states=["h"], gates=["a", "b", "c", "d"])
    def every_kind(a, b, c, d):
        return tanh(a.input + b + c.recurrent + d.input * d.recurrent)

    program = every_kind.program
    kinds = [(slot.kind, slot.gate) for slot in program.slots]
    assert kinds == [("input", "a"), ("input", "d"), ("sum", "b"), ("recurrent", "c"), ("recurrent", "d")]
    assert (program.num_input_slots, program.num_input_only, program.num_recurrent_slots) == (3, 2, 3)
    assert every_kind.input_gates == ("a", "b", "d") and every_kind.recurrent_gates == ("b", "c", "d")


def test_a_gate_used_whole_and_in_part_keeps_only_its_parts():
    @cell(states=["h"], gates=["n"])
    def mixed(n):
        return tanh(n) * n.input

    assert [slot.kind for slot in mixed.program.slots] == ["input", "recurrent"]


def test_stages_count_the_dependent_products():
    assert lstm.program.num_stages == 1
    assert gru_reset_before.program.num_stages == 2
    assert gru_reset_before.program.product_stage == (0,)

    @cell(states=["h"], gates=["a", "b", "c"])
    def chain(a, b, c):
        return c.input + c.recurrent_of(tanh(b.input + b.recurrent_of(tanh(a))))

    assert chain.program.num_stages == 3
    assert chain.program.product_stage == (0, 1)
