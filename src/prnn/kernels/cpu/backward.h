// The backward pass of a layer: back through time for the gradients of the slots, then four products over all rows at once.
//
// Shares are those of forward.h: a thread turns the gradients of its own units into gradients of its own slots; after a barrier it
// forms its own columns of (gradients of all slots) * R, which are the gradients of its own units one step earlier.
#pragma once

#include "sizes.h"

namespace prnn::PRNN_ISA {

template <class E> struct Backward : Sizes<E> {
  using Sizes<E>::layer, Sizes<E>::cell, Sizes<E>::I, Sizes<E>::H, Sizes<E>::P, Sizes<E>::Hp, Sizes<E>::Pp, Sizes<E>::Ip;
  using Sizes<E>::num_slots, Sizes<E>::first_recurrent, Sizes<E>::projected, Sizes<E>::width;

  static constexpr int64_t d_x_rows = 48;         // rows of d_x formed at once
  static constexpr int64_t gradient_depth = 128;  // rows summed into a weight gradient at once

  int64_t* first_row;               // [T]
  E *vector[prnn_max_vectors], *d_vector[prnn_max_vectors];  // [Hp]
  E* carry[prnn_max_states];        // [B, Pp] the first, [B, Hp]: gradient of the states after the step at hand
  E* d_raw_output;                  // [B, Hp]: gradient before the projection
  E* d_operand[prnn_max_products];  // [B, Hp]
  E* d_slots;                       // [N, num_slots, Hp]
  E* d_output;                      // [N, Pp]: gradient of each step's output; kept for the gradient of the projection
  E *packed_recurrent, *packed_product[prnn_max_products], *packed_projection, *packed_input;
  E *d_w_ih, *d_w_hh, *d_w_hr;      // sums with padded columns: [num_slots, Hp, Ip], [num_slots, Hp, Pp], [Pp, Hp]
  E *panel, *left_tiles, *d_x;      // of each thread: [gradient_depth, 4 vectors], [gradient_depth, most units], [d_x_rows, Ip]
  Barrier barrier;

  explicit Backward(const PrnnLayer& l) : Sizes<E>(l) {}

  void lay_out(Arena& arena, int num_threads) {
    const int64_t B = layer.batch, N = layer.rows;
    first_row = arena.take<int64_t>(layer.steps);
    for (int i = 0; i < cell.num_vectors; i++) vector[i] = arena.take<E>(Hp), d_vector[i] = arena.take<E>(Hp);
    for (int s = 0; s < cell.num_states; s++) carry[s] = arena.take<E>(B * this->padded_state_width(s));
    d_raw_output = arena.take<E>(projected ? B * Hp : 0);
    for (int k = 0; k < cell.num_products; k++) d_operand[k] = arena.take<E>(B * Hp);
    d_slots = arena.take<E>(N * num_slots * Hp);
    d_output = arena.take<E>(projected ? N * Pp : 0);
    packed_recurrent = arena.take<E>(cell.num_recurrent_slots * Hp * Pp);
    for (int k = 0; k < cell.num_products; k++) packed_product[k] = arena.take<E>(Hp * Hp);
    packed_projection = arena.take<E>(projected ? P * Hp : 0);
    packed_input = arena.take<E>(layer.d_x ? cell.num_input_slots * Hp * Ip : 0);
    d_w_ih = arena.take<E>(layer.d_w_ih ? num_slots * Hp * Ip : 0);
    d_w_hh = arena.take<E>(layer.d_w_hh ? num_slots * Hp * Pp : 0);
    d_w_hr = arena.take<E>(layer.d_w_hr ? Pp * Hp : 0);
    panel = arena.take<E>(num_threads * gradient_depth * panel_columns(width));
    left_tiles = arena.take<E>(num_threads * left_elements());
    d_x = arena.take<E>(layer.d_x ? num_threads * d_x_rows * Ip : 0);
  }

  // Room for the tiles of one thread's share of the units.
  int64_t left_elements() const { return gradient_depth * round_up(Hp > Pp ? Hp : Pp, tile_rows); }

  // Packs panels of a gate's block [H, columns] as H rows of B, and zero rows up to Hp: they meet the padding of the slots.
  void pack_block(const E* block, int64_t columns, int64_t depth_before, int64_t depth, const Share& own, E* packed) const {
    for (int64_t p = own.first_panel; p < own.last_panel; p++) {
      const int64_t start = p * panel_columns(width), vectors = min_of(panel_vectors, divide_up(columns - start, width));
      E* to = packed + start * depth + depth_before * vectors * width;
      pack_panel(block, columns, columns, H, p, to);
      clear(to, H * vectors * width, Hp * vectors * width);
    }
  }

  void pack(const Share& units, const Share& outputs, const Share& inputs) const {
    const int64_t depth = cell.num_recurrent_slots * Hp;
    for (int s = 0; s < cell.num_recurrent_slots; s++)
      pack_block(this->recurrent_weight(first_recurrent + s), P, s * Hp, depth, outputs, packed_recurrent);
    for (int k = 0; k < cell.num_products; k++)
      pack_block(this->recurrent_weight(cell.product_slot[k]), P, 0, Hp, units, packed_product[k]);
    if (projected)
      for (int64_t p = units.first_panel; p < units.last_panel; p++)
        pack_panel(static_cast<const E*>(layer.w_hr), H, H, P, p, packed_projection + p * panel_columns(width) * P);
    if (layer.d_x)
      for (int s = 0; s < cell.num_input_slots; s++)
        pack_block(this->input_weight(s), I, s * Hp, cell.num_input_slots * Hp, inputs, packed_input);
  }

  void work(int thread, int num_threads) {
    const FlushDenormals flush;
    const Share units = this->share(H, thread, num_threads), outputs = this->share(P, thread, num_threads);
    pack(units, outputs, this->share(I, thread, num_threads));
    for (int i = 0; i < cell.num_vectors; i++) {
      clear(vector[i], units.begin, units.end);
      clear(d_vector[i], units.begin, units.end);
      copy(vector[i], static_cast<const E*>(layer.vectors[i]), units.begin, min_of(units.end, H));
    }
    through_time(units, outputs, num_threads);
    barrier.wait(num_threads);

    for (int i = 0; i < cell.num_vectors; i++)
      if (layer.d_vectors[i]) copy(static_cast<E*>(layer.d_vectors[i]), d_vector[i], units.begin, min_of(units.end, H));
    E* own_panel = panel + thread * gradient_depth * panel_columns(width);
    E* own_left = left_tiles + thread * left_elements();
    if (layer.d_x) input_gradient(thread, num_threads);
    bias_gradients(units);
    if (layer.d_w_ih)
      for (int s = 0; s < cell.num_input_slots; s++)
        weight_gradient(d_slots + s * Hp, num_slots * Hp, units, H, static_cast<const E*>(layer.x), I, I, own_panel, own_left, d_w_ih + s * Hp * Ip,
                        static_cast<E*>(layer.d_w_ih) + cell.slot_input_gate[s] * H * I);
    if (layer.d_w_hh)
      for (int s = first_recurrent; s < num_slots; s++) {
        const int k = s - first_recurrent - cell.num_recurrent_slots;
        const E* factor = k < 0 ? this->saved_output_before(0) : this->saved_operand(k, 0);
        weight_gradient(d_slots + s * Hp, num_slots * Hp, units, H, factor, k < 0 ? Pp : Hp, P, own_panel, own_left, d_w_hh + s * Hp * Pp,
                        static_cast<E*>(layer.d_w_hh) + cell.slot_recurrent_gate[s] * H * P);
      }
    if (layer.d_w_hr)
      weight_gradient(d_output, Pp, outputs, P, this->saved_raw_output(0), Hp, H, own_panel, own_left, d_w_hr, static_cast<E*>(layer.d_w_hr));
  }

  void through_time(const Share& units, const Share& outputs, int num_threads) {
    const auto share_of = [&](int s) -> const Share& { return s == 0 ? outputs : units; };
    int64_t steps = layer.steps;
    while (steps > 0 && this->batch_size(steps - 1) == 0) steps--;
    const bool reverse = layer.flags & prnn_reverse;
    const auto time_of = [&](int64_t step) { return reverse ? steps - 1 - step : step; };
    const auto add_to_initial = [&](int s, int64_t b) {
      E* to = static_cast<E*>(layer.d_states[s]) + b * this->state_width(s);
      const E* from = carry[s] + b * this->padded_state_width(s);
      for (int64_t u = share_of(s).begin; u < min_of(share_of(s).end, this->state_width(s)); u++) to[u] += from[u];
    };

    for (int s = 0; s < cell.num_states; s++)
      for (int64_t b = 0; b < layer.batch; b++) {
        const int64_t size = this->state_width(s), end = min_of(share_of(s).end, size);
        E* to = carry[s] + b * this->padded_state_width(s);
        clear(to, share_of(s).begin, share_of(s).end);
        copy(to, static_cast<const E*>(layer.d_final_states[s]) + b * size, share_of(s).begin, end);
        clear(static_cast<E*>(layer.d_states[s]) + b * size, share_of(s).begin, end);
        if (steps == 0 || b >= this->batch_size(0)) add_to_initial(s, b);  // sequences of length 0
      }

    PrnnBackwardArgs args{};
    args.first_unit = units.begin;
    args.last_unit = units.end;
    args.padded_hidden = Hp;
    args.hidden = H;
    args.saved_row = this->saved_row();
    args.d_slots_row = num_slots * Hp;
    for (int i = 0; i < cell.num_vectors; i++) args.vector[i] = vector[i], args.d_vector[i] = d_vector[i];
    for (int s = 0; s < cell.num_states; s++) args.d_next[s] = args.d_state[s] = carry[s];
    if (projected) args.d_next[0] = args.d_state[0] = d_raw_output;
    for (int k = 0; k < cell.num_products; k++) args.d_operand[k] = d_operand[k];
    const PrnnBackwardStage* stages = cell.backward[sizeof(E) == 8];

    for (int64_t step = steps - 1; step >= 0; step--) {
      const int64_t t = time_of(step), rows = this->batch_size(t), row = first_row[t];
      for (int64_t b = 0; b < rows; b++) {
        const E* d_y = static_cast<const E*>(layer.d_y) + (row + b) * layer.d_y_row;
        E* to = carry[0] + b * Pp;
        for (int64_t u = outputs.begin; u < min_of(outputs.end, P); u++) to[u] += d_y[u];
        if (projected) copy(d_output + (row + b) * Pp, to, outputs.begin, outputs.end);
      }
      if (projected) {
        barrier.wait(num_threads);
        for (int64_t b = 0; b < rows; b++) clear(d_raw_output + b * Hp, units.begin, units.end);
        multiply_packed(packed_projection, H, P, units.first_panel, units.last_panel, d_output + row * Pp, Pp, d_raw_output, Hp, rows);
      }

      E* here = d_slots + row * num_slots * Hp;
      args.rows = rows;
      args.saved = this->saved_values(row);
      args.output_before = this->saved_output_before(row);
      args.d_slots = here;
      for (int stage = 0; stage < cell.num_stages; stage++) {
        stages[stage](&args);
        barrier.wait(num_threads);
        for (int k = 0; k < cell.num_products; k++) {
          if (cell.product_stage[k] + 1 != cell.num_stages - 1 - stage) continue;
          for (int64_t b = 0; b < rows; b++) clear(d_operand[k] + b * Hp, units.begin, units.end);
          multiply_packed(packed_product[k], H, Hp, units.first_panel, units.last_panel, here + cell.product_slot[k] * Hp, num_slots * Hp,
                          d_operand[k], Hp, rows);
        }
      }
      if (projected)
        for (int64_t b = 0; b < rows; b++) clear(carry[0] + b * Pp, outputs.begin, outputs.end);
      if (cell.num_recurrent_slots)
        multiply_packed(packed_recurrent, P, cell.num_recurrent_slots * Hp, outputs.first_panel, outputs.last_panel,
                        here + first_recurrent * Hp, num_slots * Hp, carry[0], Pp, rows);

      if (layer.restart)
        for (int64_t b = 0; b < rows; b++)
          if (layer.restart[row + b])
            for (int s = 0; s < cell.num_states; s++) {
              if (layer.flags & prnn_restart_to_initial) add_to_initial(s, b);
              clear(carry[s] + b * this->padded_state_width(s), share_of(s).begin, share_of(s).end);
            }
      for (int64_t b = step ? this->batch_size(time_of(step - 1)) : 0; b < rows; b++)  // sequences that began at this step
        for (int s = 0; s < cell.num_states; s++) add_to_initial(s, b);
    }
  }

  void bias_gradients(const Share& units) const {
    const auto sum = [&](int slot, void* to, int32_t gate) {
      if (to == nullptr || gate < 0) return;
      E* total = static_cast<E*>(to) + gate * H;
      const int64_t end = min_of(units.end, H);
      clear(total, units.begin, end);
      for (int64_t row = 0; row < layer.rows; row++) {
        const E* from = d_slots + (row * num_slots + slot) * Hp;
        for (int64_t u = units.begin; u < end; u++) total[u] += from[u];
      }
    };
    for (int s = 0; s < num_slots; s++) {
      sum(s, layer.d_b_ih, cell.slot_input_gate[s]);
      sum(s, layer.d_b_hh, cell.slot_recurrent_gate[s]);
    }
  }

  // to[u, j] = sum over rows of left[row, u] * right[row, j], for own u < size.
  void weight_gradient(const E* left, int64_t left_row, const Share& own, int64_t size, const E* right, int64_t right_row, int64_t columns,
                       E* own_panel, E* own_left, E* sum, E* to) const {
    const int64_t padded = round_up(columns, width), num_panels = divide_up(columns, panel_columns(width));
    // Columns of `left` lie a row apart: with more than two panels to meet, they are worth gathering into tiles.
    const bool gather = num_panels > 2;
    clear(sum, own.begin * padded, own.end * padded);
    for (int64_t row = 0; row < layer.rows; row += gradient_depth) {
      const int64_t depth = min_of(gradient_depth, layer.rows - row);
      const E* from = left + row * left_row;
      if (gather)
        for (int64_t u = own.begin; u < own.end; u += tile_rows) {
          E* tile = own_left + (u - own.begin) * depth;
          for (int64_t k = 0; k < depth; k++)
            for (int64_t m = 0; m < tile_rows; m++) tile[k * tile_rows + m] = u + m < own.end ? from[k * left_row + u + m] : E(0);
        }
      for (int64_t p = 0; p < num_panels; p++) {
        const int64_t start = p * panel_columns(width), vectors = min_of(panel_vectors, divide_up(columns - start, width));
        pack_panel(right + row * right_row, right_row, columns, depth, p, own_panel);
        for (int64_t u = own.begin; u < own.end; u += tile_rows)
          multiply_tile(vectors, min_of(tile_rows, own.end - u), own_panel, gather ? own_left + (u - own.begin) * depth : from + u,
                        1, gather ? tile_rows : left_row, depth, sum + u * padded + start, padded);
      }
    }
    for (int64_t u = own.begin; u < min_of(own.end, size); u++) copy(to + u * columns, sum + u * padded, 0, columns);
  }

  void input_gradient(int thread, int num_threads) const {
    E* block = d_x + thread * d_x_rows * Ip;
    const int64_t first = layer.rows * thread / num_threads, last = layer.rows * (thread + 1) / num_threads;
    const int64_t num_panels = divide_up(I, panel_columns(width));
    for (int64_t row = first; row < last; row += d_x_rows) {
      const int64_t rows = min_of(d_x_rows, last - row);
      clear(block, 0, rows * Ip);
      multiply_packed(packed_input, I, cell.num_input_slots * Hp, 0, num_panels, d_slots + row * num_slots * Hp, num_slots * Hp, block, Ip, rows);
      for (int64_t r = 0; r < rows; r++) copy(static_cast<E*>(layer.d_x) + (row + r) * I, block + r * Ip, 0, I);
    }
  }
};

}  // namespace prnn::PRNN_ISA
