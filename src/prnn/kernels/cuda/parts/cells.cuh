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
    return direction.initial[s] ? Load::state(direction.initial[s], 0, static_cast<int64_t>(b) * hidden + unit) : 0.0f;
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

  // The input product of a row for one slot, as it lies in memory: loaded long before it is used, converted then.
  PTX_FN ptx::u32 load_gate(int64_t row, int slot, int unit) const {
    const int64_t index = ((row - direction.first_gate_row) * Problem::num_input_gates + Problem::input_gate(slot)) * hidden + unit;
    if constexpr (Problem::gates_are_float) return ptx::bits_of(ptx::load_constant(static_cast<const float*>(direction.gates) + index));
    else return ptx::load_constant(static_cast<const ptx::u16*>(direction.gates) + index);
  }
  static PTX_FN float gate(ptx::u32 loaded) {
    if constexpr (Problem::gates_are_float) return ptx::float_of(loaded);
    else return ptx::widen(static_cast<ptx::u16>(loaded), Scalar{});
  }

  // Two neighbouring units of one sequence. Rows of y may start anywhere, so a word is written whole only where it is aligned.
  PTX_FN void store_y(int t, int b, int unit, ptx::u32 word) const {
    if (b >= args.batch || unit >= hidden) return;
    if (Problem::is_masked && !args.zero_padding && t >= length_of(b)) return;
    ptx::u16* const y = direction.y + row_of(t, b) * args.y_pitch + unit;
    if (unit + 1 < hidden && (reinterpret_cast<ptx::u64>(y) & 3) == 0) {
      *reinterpret_cast<ptx::u32*>(y) = word;
    } else {
      y[0] = static_cast<ptx::u16>(word);
      if (unit + 1 < hidden) y[1] = static_cast<ptx::u16>(word >> 16);
    }
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
