// One stage of one step of a cell, between products that somebody else computes. Nothing is kept on the chip from launch to launch.
//
// A thread has one (direction, sequence, unit). It reads the products of the stage, evaluates the stage of the printed cell, and writes
// what the next product multiplies, in the problem's own type; states are kept in the type of the arithmetic, in place. A step is
//
//   z = R h;  stage 0;  { products = R operand;  the next stage } ...
//
// and, if the output is projected,  projected = W raw;  stage `project`. What is float elsewhere (the input product, states between
// launches) is double where the problem's numbers are.
//
// A launch takes its arguments by value or, inside a CUDA graph, whose launches cannot change, from memory: `kept`, which a launch of
// stage `keep` has filled before the graph is replayed.
#pragma once
#include "parts/layer.cuh"
#include "parts/math.cuh"

namespace prnn {

struct StepArguments {
  Arguments call;         // of a chunk of steps; its states are read by stage `begin` and written by stage `end` alone
  StepArguments* kept;    // null: by value
  void* h;                // [D, B, P]: what z multiplies. D: directions; P: width of the output; all of these belong to the launches
  const void* z;          // [D, B, recurrent slots * H]
  void* operands;         // [products, D, B, H]
  const void* products;   // [products, D, B, H]
  void* raw;              // [D, B, H]: the output before it is projected
  const void* projected;  // [D, B, P]
  void* states;           // [D, B, P], and [D, B, H] for each state but the first
  int num_directions;
  int step;               // of the chunk; the steps of a graph count from the one that is kept
  int stage;              // of the cell, or one of these:
};
constexpr int begin_stage = -1, project_stage = -2, end_stage = -3, keep_stage = -4;

// How the numbers of a layer lie in memory, and what they are computed in.
template <class Scalar> struct Numbers {
  using Value = float;
  static PTX_FN float load(const void* p, int64_t i) {
    return ptx::widen(ptx::load_constant(static_cast<const ptx::u16*>(p) + i), Scalar{});
  }
  static PTX_FN void store(void* p, int64_t i, float v) {
    static_cast<ptx::u16*>(p)[i] = static_cast<ptx::u16>(ptx::pack(v, 0.0f, Scalar{}));
  }
};
template <class T> struct PlainNumbers {
  using Value = T;
  static PTX_FN T load(const void* p, int64_t i) { return ptx::load_constant(static_cast<const T*>(p) + i); }
  static PTX_FN void store(void* p, int64_t i, T v) { static_cast<T*>(p)[i] = v; }
};
template <> struct Numbers<ptx::Tf32> : PlainNumbers<float> {};
template <> struct Numbers<ptx::Ieee> : PlainNumbers<float> {};
template <> struct Numbers<double> : PlainNumbers<double> {};

template <class Problem, class Config, class Cell> struct CellStep {
  using Stored = Numbers<typename Problem::Scalar>;
  using V = typename Stored::Value;
  using Plain = PlainNumbers<V>;
  static constexpr int hidden = Problem::hidden, output = Problem::output, num_threads = Config::threads;
  static constexpr int last_stage = Cell::num_stages - 1, first_product = Cell::num_slots - Cell::num_products;
  static constexpr bool is_projected = output != hidden;
  struct Shared {};

  const Direction& direction;
  const Arguments& call;
  const StepArguments& args;
  int d, b, unit, t, length;
  bool is_last;  // step of the sequence

  static PTX_FN void run(const StepArguments& args) {
    const int64_t index = static_cast<int64_t>(ptx::block_index()) * num_threads + ptx::thread_index();
    if (args.stage == keep_stage) {
      if (index == 0) *args.kept = args;
      return;
    }
    const Arguments& call = args.kept ? args.kept->call : args.call;
    const int step = args.step + (args.kept ? args.kept->step : 0);
    const int row = static_cast<int>(index / hidden), d = row / call.batch, b = row % call.batch;
    if (d >= args.num_directions) return;
    const Direction& direction = call.directions[d];
    const int length = Problem::is_masked && call.lengths ? ptx::load_constant(call.lengths + b) : 0x7fffffff;
    const CellStep cell{direction, call, args, d, b, static_cast<int>(index % hidden),
                        direction.first_step + (direction.reverse ? -step : step), length, step + 1 >= call.num_steps};
    if (args.stage == begin_stage) cell.begin();
    else if (args.stage == end_stage) cell.end();
    else if (args.stage == project_stage) cell.project();
    else cell.template evaluate<0>();
  }

  PTX_FN int64_t row_of(int step) const {
    return (call.row_of_step ? ptx::load_constant(call.row_of_step + step) : static_cast<int64_t>(step) * call.batch) + b;
  }
  PTX_FN bool is_valid() const { return !Problem::is_masked || t < length; }
  // Does the sequence start again before its step `step`?
  PTX_FN bool restarts(int step) const {
    return Problem::is_masked && direction.restart && step < length && ptx::load_constant(direction.restart + row_of(step)) != 0;
  }
  // Where this thread's number of one of several [D, B, H] is.
  PTX_FN int64_t place(int which) const {
    return ((static_cast<int64_t>(which) * args.num_directions + d) * call.batch + b) * hidden + unit;
  }
  PTX_FN int64_t output_place() const { return (static_cast<int64_t>(d) * call.batch + b) * output + unit; }
  PTX_FN V* state(int s) const {
    V* const states = static_cast<V*>(args.states);
    if (s == 0) return states + output_place();
    return states + static_cast<int64_t>(args.num_directions) * call.batch * output + place(s - 1);
  }
  PTX_FN bool has_state(int s) const { return s > 0 || unit < output; }
  PTX_FN int64_t callers_place(int s) const { return static_cast<int64_t>(b) * (s == 0 ? output : hidden) + unit; }
  PTX_FN V initial_state(int s) const { return direction.initial[s] ? Stored::load(direction.initial[s], callers_place(s)) : V(0); }

  PTX_FN void begin() const {
    const bool again = restarts(t);
    PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) {
      if (!has_state(s)) continue;
      const int64_t at = callers_place(s);
      const V value = again                      ? initial_state(s)
                      : !direction.begin[s]      ? V(0)
                      : direction.begin_is_float ? Plain::load(direction.begin[s], at)
                                                 : Stored::load(direction.begin[s], at);
      *state(s) = value;
      if (s == 0) Stored::store(args.h, output_place(), value);
    }
  }

  PTX_FN void end() const {
    PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) {
      if (!has_state(s)) continue;
      if (direction.end_is_float) Plain::store(direction.end[s], callers_place(s), *state(s));
      else Stored::store(direction.end[s], callers_place(s), *state(s));
    }
  }

  PTX_FN void project() const {
    if (unit < output) finish(0, Plain::load(args.projected, output_place()));
  }

  // State s of this step is known.
  PTX_FN void finish(int s, V value) const {
    if (!is_valid()) value = *state(s);
    if (s == 0 && (is_valid() || call.zero_padding)) Stored::store(direction.y, row_of(t) * call.y_pitch + unit, is_valid() ? value : V(0));
    if (!is_last && restarts(t + (direction.reverse ? -1 : 1))) value = initial_state(s);
    *state(s) = value;
    if (s == 0) Stored::store(args.h, output_place(), value);
  }

  template <int stage> PTX_FN void evaluate() const {
    if constexpr (stage < last_stage) {
      if (args.stage != stage) {
        evaluate<stage + 1>();
        return;
      }
    }
    // What a stage does not use is read for nothing, or not at all: the compiler sees which.
    V slot[Cell::num_slots], before[Cell::num_states], vector[Cell::num_vectors + 1];
    V operand[Cell::num_products + 1], following[Cell::num_states], saved[Cell::num_saved + 1];
    const int64_t row = is_valid() ? (row_of(t) - direction.first_gate_row) * (Problem::num_input_gates * hidden) : 0;
    PTX_UNROLL for (int i = 0; i < Cell::num_slots; i++) {
      const int from_input = Problem::input_gate(i), from_recurrent = Problem::recurrent_gate(i);
      const int recurrent = i - Cell::first_recurrent_slot;
      V sum = V(0);
      if (direction.bias_ih && from_input >= 0) sum += Stored::load(direction.bias_ih, from_input * hidden + unit);
      if (direction.bias_hh && from_recurrent >= 0) sum += Stored::load(direction.bias_hh, from_recurrent * hidden + unit);
      if (i < Cell::num_input_slots && is_valid()) sum += Plain::load(direction.gates, row + from_input * hidden + unit);
      if (i >= first_product) {
        sum += Plain::load(args.products, place(i - first_product));
      } else if (recurrent >= 0) {
        const int64_t gates_of_row = (static_cast<int64_t>(d) * call.batch + b) * Cell::num_recurrent_slots;
        sum += Plain::load(args.z, (gates_of_row + recurrent) * hidden + unit);
      }
      slot[i] = sum;
    }
    PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) before[s] = has_state(s) ? *state(s) : V(0);
    PTX_UNROLL for (int v = 0; v < Cell::num_vectors; v++) vector[v] = Stored::load(direction.vectors[v], unit);
    Cell::template forward<V>(Stage<stage>{}, slot, before, vector, operand, following, saved);
    PTX_UNROLL for (int p = 0; p < Cell::num_products; p++)
      if (Problem::product_stage(p) == stage) Stored::store(args.operands, place(p), operand[p]);
    if constexpr (stage == last_stage) {
      PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) {
        if (s == 0 && is_projected) Stored::store(args.raw, place(0), following[0]);
        else finish(s, following[s]);
      }
    }
  }
};
}  // namespace prnn
