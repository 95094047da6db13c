// Loops that run an emitted cell (struct of cells/emit_c.py) over units and rows, and the table that exports it.
#pragma once

#include "cell_table.h"
#include "simd.h"

namespace prnn {
template <int k> struct Stage {};  // picks one of an emitted cell's overloads
}

namespace prnn::PRNN_ISA {

constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

template <class Cell, class E, bool saving, int stage> void forward_stage(const PrnnForwardArgs* args) {
  using V = Vec<E>;
  const int64_t units = args->padded_hidden;
  constexpr bool last = stage == Cell::num_stages - 1;
  for (int64_t row = 0; row < args->rows; row++) {
    const E* slots = static_cast<const E*>(args->slots) + row * args->slots_row;
    E* saved = saving ? static_cast<E*>(args->saved) + row * args->saved_row : nullptr;
    for (int64_t u = args->first_unit; u < args->last_unit; u += V::width) {
      V slot[Cell::num_slots], state[Cell::num_states], vector[at_least_one(Cell::num_vectors)];
      V operand[at_least_one(Cell::num_products)], next[Cell::num_states], keep[at_least_one(Cell::num_saved)];
      for (int i = 0; i < Cell::num_slots; i++) slot[i] = V::load(slots + i * units + u);
      for (int i = 0; i < Cell::num_states; i++) state[i] = V::load(static_cast<const E*>(args->state[i]) + row * units + u);
      for (int i = 0; i < Cell::num_vectors; i++) vector[i] = V::load(static_cast<const E*>(args->vector[i]) + u);
      Cell::forward(Stage<stage>{}, slot, state, vector, operand, next, keep);
      for (int i = 0; i < Cell::num_products; i++)
        if (Cell::product_stage[i] == stage) operand[i].store(static_cast<E*>(args->operand[i]) + row * units + u);
      if constexpr (last) {
        for (int i = 0; i < Cell::num_states; i++) next[i].store(static_cast<E*>(args->next[i]) + row * units + u);
        if constexpr (saving)
          for (int i = 0; i < Cell::num_saved; i++) keep[i].store(saved + i * units + u);
      }
    }
  }
}

template <class Cell, class E, int stage> void backward_stage(const PrnnBackwardArgs* args) {
  using V = Vec<E>;
  const int64_t units = args->padded_hidden;
  constexpr bool last = stage == Cell::num_stages - 1;
  constexpr int forward_stage = Cell::num_stages - 1 - stage;
  for (int64_t row = 0; row < args->rows; row++) {
    const E* saved = static_cast<const E*>(args->saved) + row * args->saved_row;
    E* d_slots = static_cast<E*>(args->d_slots) + row * args->d_slots_row;
    for (int64_t u = args->first_unit; u < args->last_unit; u += V::width) {
      V keep[at_least_one(Cell::num_saved)], state[1], vector[at_least_one(Cell::num_vectors)], d_next[Cell::num_states];
      V d_operand[at_least_one(Cell::num_products)], d_slot[Cell::num_slots], d_state[Cell::num_states];
      V d_vector[at_least_one(Cell::num_vectors)];
      for (int i = 0; i < Cell::num_saved; i++) keep[i] = V::load(saved + i * units + u);
      if constexpr (Cell::backward_reads_output)
        state[0] = V::load(static_cast<const E*>(args->output_before) + row * units + u);
      for (int i = 0; i < Cell::num_vectors; i++) vector[i] = V::load(static_cast<const E*>(args->vector[i]) + u);
      for (int i = 0; i < Cell::num_states; i++) d_next[i] = V::load(static_cast<const E*>(args->d_next[i]) + row * units + u);
      for (int i = 0; i < Cell::num_products; i++)  // not yet computed in the stages before; not used there either
        d_operand[i] = V::load(static_cast<const E*>(args->d_operand[i]) + row * units + u);
      Cell::backward(Stage<stage>{}, keep, state, vector, d_next, d_operand, d_slot, d_state, d_vector);
      const int64_t beyond = u + V::width - args->hidden;
      for (int i = 0; i < Cell::num_slots; i++) {
        const bool is_product = i >= Cell::num_slots - Cell::num_products;
        const int slot_stage = is_product ? Cell::product_stage[i - (Cell::num_slots - Cell::num_products)] + 1 : 0;
        if (slot_stage != forward_stage) continue;
        for (int64_t lane = V::width - beyond; lane < V::width; lane++) d_slot[i].raw[lane] = 0;
        d_slot[i].store(d_slots + i * units + u);
      }
      if constexpr (last) {
        for (int i = 0; i < Cell::num_states; i++) d_state[i].store(static_cast<E*>(args->d_state[i]) + row * units + u);
        for (int i = 0; i < Cell::num_vectors; i++) {
          E* sum = static_cast<E*>(args->d_vector[i]) + u;
          (V::load(sum) + d_vector[i]).store(sum);
        }
      }
    }
  }
}

template <class Cell, class E, bool saving, int stage = 0> constexpr void set_forward(PrnnForwardStage* stages) {
  if constexpr (stage < Cell::num_stages) {
    stages[stage] = forward_stage<Cell, E, saving, stage>;
    set_forward<Cell, E, saving, stage + 1>(stages);
  }
}
template <class Cell, class E, int stage = 0> constexpr void set_backward(PrnnBackwardStage* stages) {
  if constexpr (stage < Cell::num_stages) {
    stages[stage] = backward_stage<Cell, E, stage>;
    set_backward<Cell, E, stage + 1>(stages);
  }
}

template <class Cell> constexpr PrnnCell make_cell() {
  PrnnCell cell{prnn_cell_abi, PRNN_VECTOR_BYTES, Cell::name,
                Cell::num_states, Cell::num_vectors, Cell::num_slots, Cell::num_products, Cell::num_stages, Cell::num_saved,
                Cell::num_input_slots, Cell::first_recurrent_slot, Cell::num_recurrent_slots, Cell::backward_reads_output,
                Cell::slot_input_gate, Cell::slot_recurrent_gate, Cell::product_slot, Cell::product_stage, {}, {}};
  static_assert(Cell::num_states <= prnn_max_states && Cell::num_vectors <= prnn_max_vectors, "too many states or vectors");
  static_assert(Cell::num_products <= prnn_max_products && Cell::num_stages <= prnn_max_stages, "too many products");
  set_forward<Cell, float, false>(cell.forward[0][0]);
  set_forward<Cell, float, true>(cell.forward[0][1]);
  set_forward<Cell, double, false>(cell.forward[1][0]);
  set_forward<Cell, double, true>(cell.forward[1][1]);
  set_backward<Cell, float>(cell.backward[0]);
  set_backward<Cell, double>(cell.backward[1]);
  return cell;
}

}  // namespace prnn::PRNN_ISA
