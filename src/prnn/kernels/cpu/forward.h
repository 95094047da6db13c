// The forward pass of a layer.
//
// Every thread owns a share of the units: their rows of the weights (packed by itself, so they sit in its own cache), their
// pre-activations, their states. A timestep is: own slots += h * own part of R; own units through the cell; own part of the new h
// written to the other of two buffers; one barrier. Cells with dependent products and projections add a barrier for each.
#pragma once

#include "narrow.h"
#include "sizes.h"

namespace prnn::PRNN_ISA {

// Sequences that go through the layer together, and rows whose input product is formed at once.
constexpr int64_t batch_block = 64, chunk_rows = 64;

// E is the type of the arithmetic, In that of the matrix that meets the input, W that of the others.
template <class E, class W = E, class In = W> struct Forward : Sizes<E> {
  using Sizes<E>::layer, Sizes<E>::cell, Sizes<E>::I, Sizes<E>::H, Sizes<E>::P, Sizes<E>::Hp, Sizes<E>::Pp, Sizes<E>::num_slots;
  using Sizes<E>::first_recurrent, Sizes<E>::num_recurrent, Sizes<E>::projected, Sizes<E>::width;

  const bool in_place;
  int64_t block_batch, chunk_steps;
  int64_t* first_row;            // [T]
  E* bias;                       // [num_slots, Hp]
  E* vector[prnn_max_vectors];   // [Hp]
  E* output[2];                  // [block, Pp]: h before and after the step
  E* state[prnn_max_states];     // [block, Hp]; updated in place; [0] unused
  E* raw_output;                 // [block, Hp]: h before the projection
  E* operand[prnn_max_products]; // [block, Hp]
  E* slots;                      // [chunk, num_slots, Hp]
  In* packed_input;
  W *packed_recurrent, *packed_projection;
  E *recurrent_scale, *projection_scale;  // of int8
  Barrier barrier;

  explicit Forward(const PrnnLayer& l)
      : Sizes<E>(l), in_place((l.flags & prnn_in_place) != 0), block_batch(min_of(l.batch, batch_block)) {
    chunk_steps = block_batch ? min_of(l.steps, divide_up(chunk_rows, block_batch)) : 0;
  }

  void lay_out(Arena& arena) {
    first_row = arena.take<int64_t>(layer.steps);
    bias = arena.take<E>(num_slots * Hp);
    for (int i = 0; i < cell.num_vectors; i++) vector[i] = arena.take<E>(Hp);
    for (E*& each : output) each = arena.take<E>(block_batch * Pp);
    for (int s = 1; s < cell.num_states; s++) state[s] = arena.take<E>(block_batch * Hp);
    raw_output = arena.take<E>(projected ? block_batch * Hp : 0);
    for (int k = 0; k < cell.num_products; k++) operand[k] = arena.take<E>(block_batch * Hp);
    slots = arena.take<E>(chunk_steps * block_batch * num_slots * Hp);
    if (!in_place && !(layer.flags & prnn_packed)) lay_out_packed(arena);
  }

  void lay_out_packed(Arena& arena) {
    packed_input = arena.take<In>(cell.num_input_slots * Hp * packed_depth<In>(I));
    packed_recurrent = arena.take<W>(num_recurrent * Hp * packed_depth<W>(P));
    packed_projection = arena.take<W>(projected ? Pp * packed_depth<W>(H) : 0);
    if constexpr (is_scaled<W>) {
      recurrent_scale = arena.take<E>(num_recurrent * Hp * num_groups(P));
      projection_scale = arena.take<E>(projected ? Pp * num_groups(H) : 0);
    }
  }

  // A matrix whose columns are units or outputs, as this thread reads it: packed, or where it lies.
  template <class V> struct Matrix {
    const V* w;  // [columns, depth]
    V* packed;
    const float* scale;  // [columns, groups]
    E* packed_scale;
    int64_t columns, depth;
  };
  Matrix<In> input_matrix(int slot) const {
    return {static_cast<const In*>(layer.w_ih) + cell.slot_input_gate[slot] * H * I, packed_input + slot * Hp * packed_depth<In>(I),
            nullptr, nullptr, H, I};
  }
  Matrix<W> recurrent_matrix(int slot) const {
    const int64_t gate = cell.slot_recurrent_gate[slot], place = slot - first_recurrent;
    return {static_cast<const W*>(layer.w_hh) + gate * H * P, packed_recurrent + place * Hp * packed_depth<W>(P),
            layer.scale_hh + gate * H * num_groups(P), recurrent_scale + place * Hp * num_groups(P), H, P};
  }
  Matrix<W> projection_matrix() const {
    return {static_cast<const W*>(layer.w_hr), packed_projection, layer.scale_hr, projection_scale, P, H};
  }

  template <class V> void pack(const Matrix<V>& m, const Share& own) const {
    if constexpr (is_narrow<V>)
      pack_narrow_rows(m.w, m.scale, m.columns, m.depth, own.first_panel, own.last_panel, m.packed, m.packed_scale);
    else
      pack_rows(m.w, m.depth, m.columns, m.depth, own.first_panel, own.last_panel, m.packed);
  }

  // Packs the rows of the weights that belong to this thread's units.
  void pack(const Share& units, const Share& outputs) const {
    for (int s = 0; s < cell.num_input_slots; s++) pack(input_matrix(s), units);
    for (int s = first_recurrent; s < num_slots; s++) pack(recurrent_matrix(s), units);
    if (projected) pack(projection_matrix(), outputs);
  }

  // c[:, share] += a * W^T for one matrix W [columns, depth].
  template <class V>
  void multiply(const Matrix<V>& m, const Share& own, const E* a, int64_t a_row, E* c, int64_t c_row, int64_t rows) const {
    if constexpr (is_narrow<V>)
      multiply_narrow(m.packed, m.packed_scale, m.columns, m.depth, own.first_panel, own.last_panel, a, a_row, c, c_row, rows);
    else if (in_place)
      multiply_in_place(m.w, m.columns, m.depth, own.begin, own.end, a, a_row, c, c_row, rows);
    else
      multiply_packed(m.packed, m.columns, m.depth, own.first_panel, own.last_panel, a, a_row, c, c_row, rows);
  }

  void prepare_parameters(const Share& units) {
    for (int s = 0; s < num_slots; s++) {
      E* to = bias + s * Hp;
      clear(to, units.begin, units.end);
      const auto add = [&](const void* from, int32_t gate) {
        if (from == nullptr || gate < 0) return;
        for (int64_t u = units.begin; u < min_of(units.end, H); u++) to[u] += static_cast<const E*>(from)[gate * H + u];
      };
      add(layer.b_ih, cell.slot_input_gate[s]);
      add(layer.b_hh, cell.slot_recurrent_gate[s]);
    }
    for (int i = 0; i < cell.num_vectors; i++) {
      clear(vector[i], units.begin, units.end);
      copy(vector[i], static_cast<const E*>(layer.vectors[i]), units.begin, min_of(units.end, H));
    }
  }

  void work(int thread, int num_threads) {
    const FlushDenormals flush;
    const Share units = this->share(H, thread, num_threads), outputs = this->share(P, thread, num_threads);
    prepare_parameters(units);
    if (!in_place && !(layer.flags & prnn_packed)) pack(units, outputs);
    for (int64_t b = 0; b < layer.batch; b += block_batch) run_block(b, min_of(block_batch, layer.batch - b), units, outputs, num_threads);
  }

  void run_block(int64_t block, int64_t batch, const Share& units, const Share& outputs, int num_threads) {
    const auto share_of = [&](int s) -> const Share& { return s == 0 ? outputs : units; };
    const auto count = [&](int64_t t) {
      const int64_t n = this->batch_size(t) - block;
      return n < 0 ? 0 : min_of(n, batch);
    };
    int64_t steps = layer.steps;
    while (steps > 0 && count(steps - 1) == 0) steps--;
    const bool reverse = layer.flags & prnn_reverse;
    const auto time_of = [&](int64_t step) { return reverse ? steps - 1 - step : step; };

    const auto finish = [&](int s, int64_t b, const E* from, int64_t row) {  // own part of a final state
      E* to = static_cast<E*>(layer.final_states[s]) + (block + b) * this->state_width(s);
      copy(to, from + row * this->padded_state_width(s), share_of(s).begin, min_of(share_of(s).end, this->state_width(s)));
    };
    const auto initial = [&](int s, int64_t b) {
      return static_cast<const E*>(layer.states[s]) + (block + b) * this->state_width(s);
    };
    E *before = output[0], *after = output[1];
    const auto buffer = [&](int s, E* h) { return s == 0 ? h : state[s]; };
    const auto begin_sequence = [&](int s, int64_t b, E* h) {
      copy(buffer(s, h) + b * this->padded_state_width(s), initial(s, b), share_of(s).begin, min_of(share_of(s).end, this->state_width(s)));
    };
    // Own part of the states that `step` starts from: sequences that begin there, and restarts.
    const auto enter = [&](int64_t step, E* h) {
      const int64_t t = time_of(step), known = step ? count(time_of(step - 1)) : 0;
      for (int64_t b = known; b < count(t); b++)
        for (int s = 0; s < cell.num_states; s++) begin_sequence(s, b, h);
      if (layer.restart == nullptr) return;
      for (int64_t b = 0; b < count(t); b++)
        if (layer.restart[first_row[t] + block + b])
          for (int s = 0; s < cell.num_states; s++) {
            if (layer.flags & prnn_restart_to_initial)
              begin_sequence(s, b, h);
            else
              clear(buffer(s, h) + b * this->padded_state_width(s), share_of(s).begin, share_of(s).end);
          }
    };

    for (int64_t b = steps ? count(0) : 0; b < batch; b++)  // sequences of length 0
      for (int s = 0; s < cell.num_states; s++) {
        E* to = static_cast<E*>(layer.final_states[s]) + (block + b) * this->state_width(s);
        copy(to, initial(s, b), share_of(s).begin, min_of(share_of(s).end, this->state_width(s)));
      }
    if (steps == 0) return;
    enter(0, before);
    barrier.wait(num_threads);

    PrnnForwardArgs args{};
    args.first_unit = units.begin;
    args.last_unit = units.end;
    args.padded_hidden = Hp;
    args.slots_row = num_slots * Hp;
    for (int i = 0; i < cell.num_vectors; i++) args.vector[i] = vector[i];
    for (int s = 1; s < cell.num_states; s++) args.state[s] = args.next[s] = state[s];
    args.saved_row = this->saved_row();
    const PrnnForwardStage* stages = cell.forward[sizeof(E) == 8][layer.saved != nullptr];

    for (int64_t step = 0; step < steps; step++) {
      const int64_t t = time_of(step), rows = count(t), row = first_row[t] + block, in_chunk = step % chunk_steps;
      if (in_chunk == 0) input_product(step, min_of(chunk_steps, steps - step), block, batch, steps, units, count);
      // Within a chunk, pre-activations lie in the order of time.
      const int64_t chunk_first = reverse ? time_of(min_of(step - in_chunk + chunk_steps, steps) - 1) : time_of(step - in_chunk);
      E* here = slots + chunk_row(t, chunk_first, batch) * num_slots * Hp;

      if (layer.saved)
        for (int64_t b = 0; b < rows; b++) copy(this->saved_output_before(row + b), before + b * Pp, outputs.begin, outputs.end);
      for (int s = first_recurrent; s < first_recurrent + cell.num_recurrent_slots; s++)
        multiply(recurrent_matrix(s), units, before, Pp, here + s * Hp, num_slots * Hp, rows);

      args.rows = rows;
      args.slots = here;
      args.state[0] = before;
      args.next[0] = !projected ? after : layer.saved ? this->saved_raw_output(row) : raw_output;
      args.saved = layer.saved ? this->saved_values(row) : nullptr;
      for (int k = 0; k < cell.num_products; k++) args.operand[k] = layer.saved ? this->saved_operand(k, row) : operand[k];
      for (int stage = 0; stage < cell.num_stages; stage++) {
        stages[stage](&args);
        if (stage + 1 < cell.num_stages) barrier.wait(num_threads);
        for (int k = 0; k < cell.num_products; k++) {
          const int s = cell.product_slot[k];
          if (cell.product_stage[k] == stage)
            multiply(recurrent_matrix(s), units, static_cast<const E*>(args.operand[k]), Hp, here + s * Hp, num_slots * Hp, rows);
        }
      }
      if (projected) {
        barrier.wait(num_threads);
        for (int64_t b = 0; b < rows; b++) clear(after + b * Pp, outputs.begin, outputs.end);
        multiply(projection_matrix(), outputs, static_cast<const E*>(args.next[0]), Hp, after, Pp, rows);
      }

      for (int64_t b = 0; b < rows; b++)
        copy(static_cast<E*>(layer.y) + (row + b) * layer.y_row, after + b * Pp, outputs.begin, min_of(outputs.end, P));
      const int64_t going_on = step + 1 < steps ? count(time_of(step + 1)) : 0;
      for (int64_t b = going_on; b < rows; b++)
        for (int s = 0; s < cell.num_states; s++) finish(s, b, buffer(s, after), b);
      if (step + 1 < steps) enter(step + 1, after);
      barrier.wait(num_threads);
      std::swap(before, after);
    }
  }

  // Where the pre-activations of time t lie in the chunk that begins at time `chunk_first`.
  int64_t chunk_row(int64_t t, int64_t chunk_first, int64_t batch) const {
    return batch == layer.batch ? first_row[t] - first_row[chunk_first] : (t - chunk_first) * batch;
  }

  // Own slots of the next `num_steps` steps: bias + W x.
  template <class Count>
  void input_product(int64_t step, int64_t num_steps, int64_t block, int64_t batch, int64_t steps, const Share& units, const Count& count) {
    const int64_t first = layer.flags & prnn_reverse ? steps - step - num_steps : step;
    const auto form = [&](int64_t row, int64_t rows, E* to) {
      for (int64_t r = 0; r < rows; r++)
        for (int s = 0; s < num_slots; s++) copy(to + (r * num_slots + s) * Hp, bias + s * Hp, units.begin, units.end);
      const E* x = static_cast<const E*>(layer.x) + row * I;
      for (int s = 0; s < cell.num_input_slots; s++)
        multiply(input_matrix(s), units, x, I, to + s * Hp, num_slots * Hp, rows);
    };
    if (batch == layer.batch) {  // rows of consecutive steps are neighbours
      const int64_t last = first + num_steps - 1;
      form(first_row[first], first_row[last] + count(last) - first_row[first], slots);
    } else {
      for (int64_t t = first; t < first + num_steps; t++)
        form(first_row[t] + block, count(t), slots + chunk_row(t, first, batch) * num_slots * Hp);
    }
  }
};

}  // namespace prnn::PRNN_ISA
