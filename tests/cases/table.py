"""Faults that users reported in other libraries: the test that shows each kind, and a fault of ours that turns it red.

`test_table.py` proves both. Left out are the cases that need a GPU or a sparse engine (4), and the ONNX and Keras importers of
8, 13, 15, 16 and 17, whose cells are here.
"""

from __future__ import annotations

from dataclasses import dataclass

from cases import mutations
from cases.faults import Fault, Replaced, Rewritten


@dataclass(frozen=True)
class Case:
    """One kind of fault.

    Attributes:
        number: of the report.
        kind: what went wrong there, in a few words.
        source: where it was reported.
        test: file and function, with the parameters where one set of them shows it.
        fault: turns the test red.
    """

    number: int
    kind: str
    source: str
    test: str
    fault: Fault

    def covers(self, node: str) -> bool:
        """Whether a node of pytest is this case's test, or one of its parameters."""
        name = node.rpartition("tests/cases/")[2]
        return name == self.test or name.startswith(self.test + "[")


def _replaced(target: str, make: object) -> Replaced:
    return Replaced((target,), make)  # type: ignore[arg-type]


CASES = (
    Case(
        1, "a parametrized weight is frozen", "https://github.com/pytorch/pytorch/issues/65688",
        "test_weights.py::test_a_parametrized_recurrent_weight_is_read_as_it_is_now[LSTM-nn-True-33]",
        _replaced("prnn.nn.base:RecurrentBase._weights", mutations.frozen_when_parametrized),
    ),
    Case(
        5, "packed input differs from padded for batch above one", "https://github.com/pytorch/pytorch/issues/95118",
        "test_lengths.py::test_packed_equals_padded[LSTM-False-lengths2-dtype1]",
        _replaced("prnn.ops.cpu:_rows", mutations.packed_rows_in_another_order),
    ),
    Case(
        7, "results depend on the padding", "https://github.com/microsoft/onnxruntime/issues/1400",
        "test_lengths.py::test_results_do_not_depend_on_the_padding_nor_on_the_order_of_rows[GRU-40-dtype0]",
        _replaced("prnn.ops.cpu:_padded", mutations.left_over_memory_behind_the_ends),
    ),
    Case(
        8, "the reverse direction starts in the padding", "https://github.com/onnx/onnx-tensorflow/issues/342",
        "test_lengths.py::test_reverse_starts_at_the_last_valid_step[LSTM-lengths0]",
        _replaced("prnn.ops.arguments:pack", mutations.reverse_from_the_padding),
    ),
    Case(
        9, "a row without steps", "https://github.com/tensorflow/tensorflow/issues/36139",
        "test_lengths.py::test_a_row_without_steps_returns_its_initial_state[GRU-False-lengths0-dtype1]",
        _replaced("prnn.ops.arguments:pack", mutations.at_least_one_step),
    ),
    Case(
        13, "the two GRUs are mixed up", "https://github.com/microsoft/onnxscript/issues/2852",
        "test_cells.py::test_the_reset_gate_acts_where_the_layer_says[reset-before-dtype1]",
        _replaced("prnn.nn.layers:GRU.cell", mutations.always_reset_after),
    ),
    Case(
        15, "clip misses an activation", "https://github.com/microsoft/onnxruntime/issues/27224",
        "test_cells.py::test_clip_reaches_every_activation[float64-auto]",
        _replaced("prnn.runtime.cpu.compiler:emit_cell", mutations.clip_left_out),
    ),
    Case(
        16, "batch-major input runs as time-major", "https://github.com/openvinotoolkit/openvino/issues/37820",
        "test_lengths.py::test_batch_first_is_the_time_major_layer_of_transposed_input[LSTM-True-3-3]",
        _replaced("prnn.nn.base:RecurrentBase.forward", mutations.batch_first_ignored),
    ),
    Case(
        17, "Keras's order of gates and its two biases", "https://github.com/keras-team/keras/issues/8720",
        "test_cells.py::test_weights_of_keras_in_their_order_of_gates[gru after]",
        _replaced("prnn.ops.arguments:Plan.split", mutations.one_bias_for_both),
    ),
    Case(
        20, "backward takes one step's mask for all", "https://github.com/lmnt-com/haste/issues/43",
        "test_dropout.py::test_backward_uses_the_mask_that_forward_drew[LSTM-False]",
        _replaced("torch:dropout", mutations.backward_with_the_mask_of_one_step),
    ),
    Case(
        21, "the seed does not fix dropout", "https://github.com/pytorch/pytorch/issues/90168",
        "test_dropout.py::test_the_seed_fixes_everything_and_the_draw_is_torch_s[GRU]",
        _replaced("torch:dropout", mutations.a_generator_of_its_own),
    ),
    Case(
        23, "no step or no sequence", "https://github.com/pytorch/pytorch/issues/50192",
        "test_sizes.py::test_no_step_or_no_sequence[GRU-{}-0-10-True]",
        _replaced("prnn.nn.base:check_input", mutations.no_empty_sequence),
    ),
    Case(
        24, "a limit of 65,535 steps", "https://github.com/pytorch/pytorch/issues/133751",
        "test_sizes.py::test_long_sequences_are_their_chunks[GRU-70001]",
        Rewritten("engine_isa.cpp", "int64_t row = 0;", "uint16_t row = 0;"),
    ),
    Case(
        26, "what does not fit is not refused", "https://github.com/pytorch/pytorch/issues/114874",
        "test_sizes.py::test_what_does_not_fit_is_refused_before_it_is_read[dtype of h0-True]",
        _replaced("prnn.nn.base:split_states", mutations.states_made_to_fit),
    ),
    Case(
        28, "strides of input and states", "https://github.com/allenai/allennlp/issues/1486",
        "test_strides.py::test_any_strides_of_input_and_states[LSTM-False-dtype0]",
        _replaced("prnn.ops.cpu:_plain", mutations.strides_ignored),
    ),
    Case(
        29, "backward of slices when H is no multiple of 4", "https://github.com/pytorch/pytorch/issues/54307",
        "test_strides.py::test_backward_of_any_slice_for_any_width[GRU-5-dtype0]",
        Rewritten(
            "backward.h",
            "u < min_of(outputs.end, P); u++) to[u] += d_y[u];",
            "u < min_of(outputs.end, P) / 4 * 4; u++) to[u] += d_y[u];",
        ),
    ),
    Case(
        31, "no gradients in eval mode", "https://github.com/pytorch/pytorch/issues/5878",
        "test_gradients.py::test_gradients_follow_requires_grad_and_not_the_mode[LSTM]",
        _replaced("prnn.nn.base:RecurrentBase._run", mutations.no_gradients_in_eval),
    ),
    Case(
        33, "no second derivative", "https://github.com/pytorch/pytorch/issues/5261",
        "test_gradients.py::test_a_gradient_penalty_is_that_of_torch[LSTM]",
        _replaced("prnn.ops.autograd:apply_backward", mutations.without_second_derivative),
    ),
    Case(
        36, "autocast", "https://github.com/pytorch/pytorch/issues/36428",
        "test_gradients.py::test_training_under_autocast_follows_that_in_float32[LSTM-low0]",
        _replaced("prnn.nn.base:under_autocast", mutations.nothing_cast),
    ),
    Case(
        38, "weights changed between calls are not seen", "https://github.com/pytorch/pytorch/pull/56433",
        "test_weights.py::test_weights_changed_in_place_between_calls_are_seen[fused adam-33-no_grad]",
        _replaced("prnn.nn.base:RecurrentBase._weights", mutations.kept_from_the_first_call),
    ),
    Case(
        41, "a child hangs after a fork", "https://github.com/pytorch/pytorch/issues/123828",
        "test_threads.py::test_a_forked_child_works_whatever_its_parent_did",
        Rewritten("pool.cpp", "pthread_atfork(nullptr, nullptr, make_pool);", ""),
    ),
    Case(
        42, "more threads than there are cores", "https://github.com/pytorch/pytorch/pull/48766",
        "test_threads.py::test_more_threads_than_cores_give_the_same_numbers",
        Rewritten(
            "sizes.h",
            "const int64_t first = panels * thread / num_threads, last = panels * (thread + 1) / num_threads;",
            "const int64_t first = panels / num_threads * thread, last = panels / num_threads * (thread + 1);",
        ),
    ),
    Case(
        42, "more threads than the system gives", "https://github.com/pytorch/pytorch/pull/49534",
        "test_threads.py::test_a_system_that_gives_no_more_threads_gets_the_work_done",
        Rewritten("pool.cpp", "catch (const std::system_error&)", "catch (const std::bad_alloc&)"),
    ),
    Case(
        44, "export fixes the length", "https://github.com/pytorch/pytorch/issues/115092",
        "test_transforms.py::test_export_with_any_length_and_batch[LSTM-False]",
        _replaced("prnn.nn.base:layer", mutations.unrolled_over_time),
    ),
    Case(
        46, "packed input far slower than padded", "https://github.com/pytorch/pytorch/issues/149194",
        "test_speed.py::test_packed_input_is_as_fast_as_padded[100-False]",
        _replaced("prnn.nn.base:RecurrentBase._forward_packed", mutations.a_call_for_each_step),
    ),
    Case(
        49, "no compiler", "https://github.com/lmnt-com/haste/issues/41",
        "test_install.py::test_without_a_compiler_built_in_cells_run_natively_and_others_interpreted",
        _replaced("prnn.kernels.interpreted:refuse", mutations.nothing_without_a_compiler),
    ),
    Case(
        49, "a cache folder that cannot be written", "https://github.com/lmnt-com/haste/issues/14",
        "test_install.py::test_a_cache_folder_that_cannot_be_written_costs_a_build_and_a_warning",
        _replaced("prnn.runtime.cpu.compiler:_own_folder", mutations.raises(OSError("read-only"))),
    ),
    Case(
        49, "two processes build at once", "https://github.com/lmnt-com/haste/issues/20",
        "test_install.py::test_two_processes_build_the_same_cell_at_once",
        _replaced("prnn.runtime.cpu.compiler:_build", mutations.one_builder_at_a_time),
    ),
    Case(
        49, "a build that was cut short", "https://github.com/lmnt-com/haste/issues/22",
        "test_install.py::test_a_damaged_cache_entry_is_built_again[empty]",
        _replaced("prnn.runtime.cpu.compiler:shutil.rmtree", mutations.nothing_removed),
    ),
    Case(
        49, "a library of another version", "https://github.com/lmnt-com/haste/issues/41",
        "test_install.py::test_a_library_that_does_not_belong_is_refused_with_a_message[another library]",
        _replaced("prnn.runtime.cpu.library:BuildError", mutations.os_error),
    ),
)  # fmt: skip
