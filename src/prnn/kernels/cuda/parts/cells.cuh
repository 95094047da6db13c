// The cells of a step, whoever owns them: their rows, states and inputs in memory, and their update.
#pragma once
#include "parts/layer.cuh"
#include "parts/math.cuh"

namespace prnn {
// Where a direction's sequences lie in memory. b: sequence, t: step of the sequence, s: state.
template <class Problem> struct Sequences {
  using Scalar = typename Problem::Scalar;
  using Load = Access<Problem>;
  static constexpr int hidden = Problem::hidden;
  const Arguments& args;
  const Direction& direction;

  PTX_FN int64_t row_of(int t, int b) const {
    return (args.row_of_step ? ptx::load_constant(args.row_of_step + t) : static_cast<int64_t>(t) * args.batch) + b;
  }
  PTX_FN int length_of(int b) const { return args.lengths ? ptx::load_constant(args.lengths + b) : 0x7fffffff; }
  // Does sequence b start again before its step t?
  PTX_FN bool restarts(int t, int b, int length) const {
    return direction.restart && t < length && ptx::load_constant(direction.restart + row_of(t, b)) != 0;
  }
  PTX_FN float initial_state(int s, int b, int unit) const {
    return Load::state(direction.initial[s], 0, static_cast<int64_t>(b) * hidden + unit);
  }
  PTX_FN float first_state(int s, int b, int unit) const {
    if (Problem::is_masked && restarts(direction.first_step, b, length_of(b))) return initial_state(s, b, unit);
    return Load::state(direction.begin[s], direction.begin_is_float, static_cast<int64_t>(b) * hidden + unit);
  }
  PTX_FN void store_last_state(int s, int b, int unit, float value) const {
    Load::store_state(direction.end[s], direction.end_is_float, static_cast<int64_t>(b) * hidden + unit, value);
  }

  // What the biases add to a slot.
  PTX_FN float bias(int slot, int unit) const {
    const int from_input = Problem::input_gate(slot), from_recurrent = Problem::recurrent_gate(slot);
    float sum = 0.0f;
    if (direction.bias_ih && from_input >= 0) sum += Load::number(direction.bias_ih, from_input * hidden + unit);
    if (direction.bias_hh && from_recurrent >= 0) sum += Load::number(direction.bias_hh, from_recurrent * hidden + unit);
    return sum;
  }
  PTX_FN float vector(int v, int unit) const { return Load::number(direction.vectors[v], unit); }

  // Where the input product of (t, b) begins.
  PTX_FN const float* gates_of(int t, int b) const {
    return direction.gates + (row_of(t, b) - direction.first_gate_row) * (Problem::num_input_gates * hidden);
  }

  // Two neighbouring units of one sequence, the first of them `unit`; they are written together only where they are aligned.
  static PTX_FN void store_pair(typename Scalar::Storage* y, int unit, bool is_aligned, const Pair<Scalar>& pair) {
    if (is_aligned && (hidden % 2 == 0 || unit + 1 < hidden)) {
      if (hidden % 8 == 0 || unit < hidden) *reinterpret_cast<Pair<Scalar>*>(y) = pair;
    } else {
      if (unit < hidden) y[0] = pair.number(0);
      if (unit + 1 < hidden) y[1] = pair.number(1);
    }
  }
  static PTX_FN bool is_aligned(const void* y) { return reinterpret_cast<ptx::u64>(y) % sizeof(Pair<Scalar>) == 0; }
  PTX_FN void store_y(int t, int b, int unit, const Pair<Scalar>& pair) const {
    if (b >= args.batch || (Problem::is_masked && !args.zero_padding && t >= length_of(b))) return;
    auto* const y = static_cast<typename Scalar::Storage*>(direction.y) + row_of(t, b) * args.y_pitch + unit;
    store_pair(y, unit, is_aligned(y), pair);
  }
};

// One cell's step: `state` moves on if the step is valid, becomes NaN if the launch gave up, and starts again from `initial` before the
// next step if that begins anew. Returns what y shows; state[0] is what the next step multiplies.
template <class Problem, class Cell, class Initial>
PTX_FN float update(const float* slot, const float* vector, float* state, bool is_valid, bool has_stopped, bool restarts_next,
                    const Initial& initial) {
  float following[Cell::num_states], saved[Cell::num_saved + 1];
  Cell::template forward<float>(Stage<0>{}, slot, state, vector, nullptr, following, saved);
  PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) {
    if (!Problem::is_masked || is_valid) state[s] = following[s];
    if (has_stopped) state[s] = not_a_number();
  }
  const float h = !Problem::is_masked || is_valid || has_stopped ? state[0] : 0.0f;
  if (Problem::is_masked && restarts_next && !has_stopped) {
    PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) state[s] = initial(s);
  }
  return h;
}
}  // namespace prnn
