// A layer's forward pass over many CTAs, up to the whole chip: R is spread over them, h travels through L2.
//
// WHAT IS KEPT WHERE. `ctas` CTAs hold a copy of R and serve up to 8 * batch_tiles sequences; more sequences, and the other direction,
// are other copies, which nobody waits for. A CTA owns `groups_per_cta` groups of 8 units, all gates of them: tiles of 16 rows of R. Its
// warps split the sum over K: each has its chunks of K of all tiles, tile after tile. It keeps the first `register_chunks` of them in
// registers, the next `shared_chunks` in shared memory in the order of the lanes, and reads the others from the layer's parameter in
// every step. R is read from the parameter as it lies there; parts/products.cuh says in which order of K.
//
// A STEP. Each warp waits for its columns of h, of `tiles_together` tiles of 8 sequences at a time, multiplies them at once, and leaves
// its partial sums in shared memory. After one block barrier they are added up where the cells are: 32 cells at a time (8 units of 4
// sequences, one a lane) belong to one warp, which keeps their states in registers, in float, for the whole launch, and sends their new
// h. The states before the first step are sent in the same way, so that the first step is like all others.
//
// WHO WAITS FOR WHOM: see parts/exchange.cuh. The block barrier stands between what a CTA receives and what it sends, which is the rule
// that makes two buffers enough. A second one at the end of a step lets the sums be overwritten, and keeps warps without cells from looking
// for words that cannot be there yet: their loads would be in the way of the sends, and of everybody's in the L2.
//
// WHOEVER SENDS MUST SOON WAIT AGAIN: its columns of the next h are on their way. So where only some warps have cells, the others fetch the
// gates for them, and what the cells of the next step need beside the products is read between the send and the wait.
//
// IF A WAIT FAILS the CTA goes on without waiting or sending, so that block barriers still meet, writes NaN, and says so in
// patience.stopped, which ends the waits of the others.
#pragma once
#include "parts/cells.cuh"
#include "parts/exchange.cuh"

namespace prnn {

template <class Problem, class Config, class Cell> struct GridForward {
  using Scalar = typename Problem::Scalar;
  static constexpr int hidden = Problem::hidden, num_groups = (hidden + 7) / 8;
  static constexpr int groups = Config::groups_per_cta, slices = Config::k_slices, num_threads = slices * 32;
  static constexpr int batch_tiles = Config::batch_tiles, together = Config::tiles_together;
  static constexpr int ctas = (num_groups + groups - 1) / groups;
  static constexpr bool exchanges = Cell::num_recurrent_slots > 0;
  // Rows of R in blocks of 8 (one gate of one group), two blocks a tile.
  static constexpr int tiles = (groups * Cell::num_recurrent_slots + 1) / 2, blocks = tiles * 2;
  static constexpr int chunk_units = units_per_chunk<Scalar>, chunks = (hidden + chunk_units - 1) / chunk_units;  // of K
  static constexpr int chunks_per_slice = (chunks + slices - 1) / slices;
  static constexpr int register_chunks = Config::register_chunks, shared_chunks = Config::shared_chunks;  // of a warp's, of all tiles
  static constexpr int kept_chunks = register_chunks + shared_chunks;
  static constexpr int first_streamed_tile = (kept_chunks + chunks_per_slice - 1) / chunks_per_slice;  // of which nothing is kept
  static constexpr int chains = together == 1 ? 2 : 1;  // of sums, to hide the latency of mma
  static constexpr int num_items = batch_tiles * groups * 2, items = (num_items + slices - 1) / slices;  // of 32 cells; of a warp
  static constexpr bool keeps_factors = sizeof(Weights<Scalar>) == 32;  // in shared memory; else what they are made of, which is less
  static constexpr int streamed_chunks = 2 * units_per_word<Scalar>;  // of weights from L2, on their way at a time
  static constexpr int stages = 4;
  static constexpr bool others_fetch = num_items <= slices / 2;  // the last warps, the gates of the first
  using H = Exchange<Scalar, batch_tiles, chunks>;
  static_assert(Cell::num_stages == 1, "products that depend on others need another kernel");
  static_assert(batch_tiles % together == 0 && kept_chunks <= tiles * chunks_per_slice);

  using Partial = ptx::Float2[batch_tiles][exchanges ? blocks : 1][slices][32];  // [tile][block of rows][slice][place() / 2]
  struct Shared {
    alignas(128) ptx::Word4 weights[shared_chunks > 0 ? shared_chunks : 1][2][num_threads];
    Partial partial;
    float state[items][Cell::num_states][num_threads];  // of a lane's own cells, as the gates are
    float gates[stages][items][Cell::num_input_slots > 0 ? Cell::num_input_slots : 1][num_threads];
    float bias[groups][Cell::num_slots][8], vector[groups][Cell::num_vectors + 1][8];
    ptx::u32 has_stopped;
  };

  // Where a block keeps the sum of one cell: so turned that both the lanes of an mma and those of an item meet no bank twice.
  static PTX_FN int place(int unit, int column) { return unit * 8 + (column ^ unit / 4 * 4); }

  static PTX_FN void run(const Arguments& args) {
    using Load = Access<Problem>;
    auto& shared = ptx::shared_memory<Shared>();
    const int tid = ptx::thread_index(), slice = tid / 32, lane = tid % 32;
    const int copy = args.first_copy + ptx::block_index() / ctas;
    const int first_group = ptx::block_index() % ctas * groups, first_b = copy % args.copies_per_direction * 8 * batch_tiles;
    const Direction& direction = args.directions[copy / args.copies_per_direction];
    const Sequences<Problem> sequences{args, direction};
    const H h_exchange(args.exchange, copy);
    const int batch = args.batch, num_steps = args.num_steps, stride = direction.reverse ? -1 : 1;

    auto live_columns = [&](int n) {  // sequences of tile n
      const int left = batch - first_b - n * 8;
      return left < 0 ? 0 : left > 8 ? 8 : left;
    };
    // Item i of this warp: unit lane/4 of group g of the CTA, sequence `column` of tile n.
    struct Item { int n, g, column; bool is_live; };
    auto item_of_slice = [&](int i, int slice) {
      const int item = i * slices + slice, n = item / (groups * 2), g = item / 2 % groups, half = item % 2 * 4;
      return Item{n, g, half + lane % 4, item < num_items && half < live_columns(n) && first_group + g < num_groups};
    };
    auto item_of = [&](int i) { return item_of_slice(i, slice); };
    auto unit_of = [&](const Item& item) { return (first_group + item.g) * 8 + lane / 4; };
    auto sequence_of = [&](const Item& item) { return first_b + item.n * 8 + item.column; };

    // A pair of neighbouring units lies in the lanes of both; that of the first stores it.
    const bool is_first = lane / 4 % 2 == 0;
    auto pair_of = [&](float h) { return Pair<Scalar>::of(h, ptx::shuffle_xor(h, 4)); };
    auto send = [&](int step, const Item& item, const Pair<Scalar>& pair) {
      if (is_first && item.column < live_columns(item.n))
        h_exchange.send(step, item.n, unit_of(item), item.column, pair.factors().words);
    };
    // What the next step multiplies: beyond the last unit R is zero, and 0 * NaN is not.
    auto sent_h = [&](const Item& item, float h) { return hidden % 8 == 0 || unit_of(item) < hidden ? h : 0.0f; };

    // Starts to copy what step `step` takes from memory. Always one group of copies, so that waits can count them.
    auto fetch = [&](int step) {
      if (step < num_steps) {
        const int t = direction.first_step + stride * step;
        const int owner = others_fetch ? slices - 1 - slice : slice;  // for whom
        PTX_NO_UNROLL for (int i = 0; i < items; i++) {
          const Item item = item_of_slice(i, owner);
          if (!item.is_live) continue;
          const int b = sequence_of(item), unit = unit_of(item);
          const bool exists = b < batch && unit < hidden && (!Problem::is_masked || t < sequences.length_of(b));
          const float* const gates = sequences.gates_of(t, b) + unit;
          PTX_UNROLL for (int slot = 0; slot < Cell::num_input_slots; slot++)
            ptx::copy_async(ptx::address_of(&shared.gates[step % stages][i][slot][owner * 32 + lane]), gates + Problem::input_gate(slot) * hidden, exists);
        }
      }
      ptx::copy_async_commit();
    };
    PTX_NO_UNROLL for (int i = 0; i < items; i++) {
      const Item item = item_of(i);
      if (!item.is_live) continue;
      const int b = sequence_of(item), unit = unit_of(item);
      PTX_UNROLL for (int s = 0; s < Cell::num_states; s++)
        shared.state[i][s][tid] = b < batch && unit < hidden ? sequences.first_state(s, b, unit) : 0.0f;
      if (exchanges && num_steps > 0) send(0, item, pair_of(sent_h(item, shared.state[i][0][tid])));
    }
    PTX_NO_UNROLL for (int step = 0; step < stages - 1; step++) fetch(step);
    for (int i = tid; i < groups * 8; i += num_threads) {
      const int unit = first_group * 8 + i;
      PTX_UNROLL for (int slot = 0; slot < Cell::num_slots; slot++)
        shared.bias[i / 8][slot][i % 8] = unit < hidden ? sequences.bias(slot, unit) : 0.0f;
      PTX_UNROLL for (int v = 0; v < Cell::num_vectors; v++)
        shared.vector[i / 8][v][i % 8] = unit < hidden ? sequences.vector(v, unit) : 0.0f;
    }
    if (tid == 0) shared.has_stopped = 0;

    // Row lane/4 of one block of a tile of R, as far as a chunk of this warp goes.
    auto column_of_weights = [&](int chunk) { return (slice * chunks_per_slice + chunk) * chunk_units + lane % 4 * units_per_block<Scalar>; };
    auto load_weights = [&](const void* weight_hh, int tile, int half, int chunk) {
      const int block = tile * 2 + half, unit = (first_group + block / Cell::num_recurrent_slots) * 8 + lane / 4;
      const int gate = Problem::recurrent_gate(Cell::first_recurrent_slot + block % Cell::num_recurrent_slots);
      const bool exists = block < groups * Cell::num_recurrent_slots && unit < hidden;
      return Load::weights(weight_hh, static_cast<int64_t>(gate) * hidden + unit, column_of_weights(chunk), exists);
    };
    Weights<Scalar> r_weights[register_chunks > 0 ? register_chunks : 1];
    auto load_chunk = [&](const void* weight_hh, int tile, int chunk) {
      Weights<Scalar> weights;
      PTX_UNROLL for (int half = 0; half < 2; half++) weights.set(half, load_weights(weight_hh, tile, half, chunk));
      return weights;
    };
    PTX_UNROLL for (int i = 0; i < register_chunks; i++)
      r_weights[i] = load_chunk(direction.weight_hh, i / chunks_per_slice, i % chunks_per_slice);
    PTX_UNROLL_BY_4 for (int i = register_chunks; i < kept_chunks; i++) {  // only this lane reads them
      auto& to = shared.weights[i - register_chunks];
      const int tile = i / chunks_per_slice, chunk = i % chunks_per_slice;
      if constexpr (keeps_factors) {
        const Weights<Scalar> weights = load_chunk(direction.weight_hh, tile, chunk);
        PTX_UNROLL for (int k = 0; k < 8; k++) to[k / 4][tid].w[k % 4] = weights.factors[k / 4][k % 4];
      } else {
        PTX_UNROLL for (int half = 0; half < 2; half++) to[half][tid] = load_weights(direction.weight_hh, tile, half, chunk);
      }
    }
    const void* weight_hh = direction.weight_hh;
    auto weights_of = [&](int tile, int chunk) {
      const int i = tile * chunks_per_slice + chunk;
      if (i < register_chunks) return r_weights[i];
      if (i >= kept_chunks && chunk % streamed_chunks == 0) weight_hh = ptx::here(weight_hh);  // or loads would take all registers
      if (i >= kept_chunks) return load_chunk(weight_hh, tile, chunk);
      Weights<Scalar> weights;
      PTX_UNROLL for (int half = 0; half < 2; half++) {
        const ptx::Word4 words = shared.weights[i - register_chunks][half][tid];
        if constexpr (keeps_factors) {
          PTX_UNROLL for (int k = 0; k < 4; k++) weights.factors[half][k] = words.w[k];
        } else {
          weights.set(half, words);
        }
      }
      return weights;
    };
    ptx::copy_async_wait<stages - 3>();
    ptx::block_barrier();

    // What an item's cells need beside the products, which are the last to come.
    struct Cells { float slot[Cell::num_slots], vector[Cell::num_vectors + 1], state[Cell::num_states]; int length; bool restarts_next; };
    auto prepare = [&](int i, int step) {
      const Item item = item_of(i);
      Cells cells;
      const int b = sequence_of(item), t = direction.first_step + stride * step;
      cells.length = Problem::is_masked && item.is_live && b < batch ? sequences.length_of(b) : 0;
      cells.restarts_next = Problem::is_masked && item.is_live && unit_of(item) < hidden && step + 1 < num_steps &&
                            sequences.restarts(t + stride, b, cells.length);
      PTX_UNROLL for (int s = 0; s < Cell::num_slots; s++) {
        cells.slot[s] = shared.bias[item.g][s][lane / 4];
        if (s < Cell::num_input_slots) cells.slot[s] += shared.gates[step % stages][i][s][tid];
      }
      PTX_UNROLL for (int v = 0; v < Cell::num_vectors; v++) cells.vector[v] = shared.vector[item.g][v][lane / 4];
      PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) cells.state[s] = shared.state[i][s][tid];
      return cells;
    };

    bool has_stopped = false;
    Cells first_cells;  // of the only item, in most configurations
    if (item_of(0).is_live && num_steps > 0) first_cells = prepare(0, 0);
    // Where its y goes, if the rows of a sequence follow one another.
    auto* y_of_first = static_cast<typename Scalar::Storage*>(direction.y) +
                       (static_cast<int64_t>(direction.first_step) * batch + sequence_of(item_of(0))) * args.y_pitch + unit_of(item_of(0));
    for (int step = 0; step < num_steps; step++) {
      const int t = direction.first_step + stride * step;
      if constexpr (exchanges) {
        PTX_NO_UNROLL for (int first = 0; first < batch_tiles; first += together) {
          if (live_columns(first) == 0) break;  // for the whole copy
          ptx::Word4 h[together][chunks_per_slice] = {};
          auto is_live = [&](int n, int chunk) {
            return lane / 4 < live_columns(first + n) &&
                   (hidden % (slices * chunk_units) == 0 || column_of_weights(chunk) < num_groups * 8);
          };
          if (!has_stopped) {
            has_stopped = !h_exchange.receive(h, step, first, slice * chunks_per_slice, lane, is_live, args.patience);
            if (has_stopped) shared.has_stopped = 1;
          }
          auto& partial = shared.partial;
          constexpr int pairs = first_streamed_tile / 2;  // two tiles at a time: few sums, and mma's enough on their way
          PTX_UNROLL for (int tile = 0; tile < 2 * pairs; tile += 2)
            multiply<2>(partial, first, tile, slice, lane, has_stopped, h, weights_of);
          if constexpr (first_streamed_tile % 2 == 1) multiply<1>(partial, first, 2 * pairs, slice, lane, has_stopped, h, weights_of);
          PTX_NO_UNROLL for (int tile = first_streamed_tile; tile < tiles; tile++)
            multiply<1>(partial, first, tile, slice, lane, has_stopped, h, weights_of);
        }
      }
      if (MUTATION != 4) ptx::copy_async_wait<stages - 3>();  // for the gates of the next step, which the barrier shows to all
      if ((exchanges || others_fetch) && MUTATION != 3) ptx::block_barrier();
      if (exchanges) has_stopped |= shared.has_stopped != 0;

      PTX_NO_UNROLL for (int i = 0; i < items; i++) {
        const Item item = item_of(i);
        if (!item.is_live) continue;
        const int b = sequence_of(item), unit = unit_of(item);
        Cells cells = i == 0 ? first_cells : prepare(i, step);
        PTX_UNROLL for (int s = 0; s < Cell::num_slots; s++) {
          const int recurrent = s - Cell::first_recurrent_slot;
          if (recurrent < 0 || recurrent >= Cell::num_recurrent_slots) continue;
          const auto* const parts = &shared.partial[item.n][item.g * Cell::num_recurrent_slots + recurrent][0][0].lo;
          PTX_UNROLL for (int part = 0; part < slices; part++) cells.slot[s] += parts[part * 64 + place(lane / 4, item.column)];
        }
        const float h_out = update<Problem, Cell>(
            cells.slot, cells.vector, cells.state, t < cells.length, has_stopped, cells.restarts_next,
            [&](int s) { return sequences.initial_state(s, b, unit); });
        PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) shared.state[i][s][tid] = cells.state[s];
        const Pair<Scalar> y_pair = pair_of(h_out);
        if (exchanges && step + 1 < num_steps) {
          const Pair<Scalar> h_pair = Problem::is_masked || hidden % 8 != 0 ? pair_of(sent_h(item, cells.state[0])) : y_pair;
          if (!has_stopped) send(step + 1, item, h_pair);
        }
        if (!is_first) continue;
        if (Problem::is_masked || i > 0) {
          sequences.store_y(t, b, unit, y_pair);
        } else if (b < batch) {
          sequences.store_pair(y_of_first, unit, sequences.is_aligned(y_of_first), y_pair);
        }
      }
      y_of_first += stride * static_cast<int64_t>(batch) * args.y_pitch;
      if (item_of(0).is_live && step + 1 < num_steps) first_cells = prepare(0, step + 1);
      fetch(step + stages - 1);
      if (exchanges) ptx::block_barrier();
    }

    PTX_NO_UNROLL for (int i = 0; i < items; i++) {
      const Item item = item_of(i);
      const int b = sequence_of(item), unit = unit_of(item);
      if (!item.is_live || b >= batch || unit >= hidden) continue;
      PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) sequences.store_last_state(s, b, unit, shared.state[i][s][tid]);
    }
  }

  // Leaves this warp's sums of `count` tiles of rows, from `tile` on, and of the sequences of `h` where the cells are made.
  template <int count, class WeightsOf>
  static PTX_FN void multiply(Partial& partial, int first, int tile, int slice, int lane, bool has_stopped,
                              const ptx::Word4 (&h)[together][chunks_per_slice], const WeightsOf& weights_of) {
    float sums[count][together][chains][4] = {};
    PTX_UNROLL for (int chunk = 0; chunk < chunks_per_slice; chunk++)
      PTX_UNROLL for (int j = 0; j < count; j++) {
        const Weights<Scalar> weights = weights_of(tile + j, chunk);
        PTX_UNROLL for (int n = 0; n < together; n++) weights.multiply(sums[j][n], h[n][chunk]);
      }
    PTX_UNROLL for (int j = 0; j < count; j++)
      PTX_UNROLL for (int n = 0; n < together; n++)
        PTX_UNROLL for (int half = 0; half < 2; half++) {
          ptx::Float2 sum = {sums[j][n][0][half * 2], sums[j][n][0][half * 2 + 1]};
          if (chains > 1) sum.lo += sums[j][n][chains - 1][half * 2], sum.hi += sums[j][n][chains - 1][half * 2 + 1];
          if (has_stopped) sum.lo = sum.hi = not_a_number();
          partial[first + n][(tile + j) * 2 + half][slice][place(lane / 4, lane % 4 * 2) / 2] = sum;
        }
  }
};
}  // namespace prnn
