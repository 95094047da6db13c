// A layer's forward pass inside thread-block clusters.
//
// WHAT IS KEPT WHERE. A cluster holds a whole copy of R in registers, as the A-fragments of mma (parts/products.cuh), and serves up to
// 8 * batch_tiles sequences; more sequences, and the other direction, are other clusters, which nobody waits for. A warp owns
// `groups_per_warp` groups of 8 units, all gates of them, and one of `k_slices` parts of the sum over K. Rows are arranged so that after
// the product a lane holds every gate of its (unit, sequence) cells: the cell's own arithmetic needs no exchange, and its states stay
// in that lane's registers, in float, for the whole launch. Every CTA keeps h of all units, in the layer's type, in shared memory, twice.
//
// WHO WAITS FOR WHOM. New h of 8 units x 8 sequences is sent to every CTA of the cluster by store_async, which completes on an
// mbarrier of the receiver: one barrier for each tile of 8 sequences and each of the two buffers. No other barrier guards the buffers:
// a warp sends its part of h(t) only after its own reads of h(t-1), so whoever has received all of h(t) knows that the whole cluster has
// finished with the buffer of h(t-1), which h(t+1) will overwrite. Hence warps without live units do not read h at all. With several
// slices, the block barrier of the reduction puts the reads of the other slices before the send; each tile has partial sums of its own,
// and a slice overwrites them only after it has received what slice 0 sent after reading them.
//
// WHAT COMES FROM MEMORY. The input product of a lane's own cells, copied in the background to a ring in shared memory, `stages` steps
// deep. Loaded into registers instead, the compiler waits for it in the step that asks, and memory's latency is twice that of a step.
//
// A STEP COSTS one exchange inside the cluster plus the product and the cells, and there the number of instructions: few warps share a
// scheduler, and one of them alone issues every fourth cycle or so. Hence sums start from bias and input, rows that follow one another are
// reached by an addition, and what only a failure needs stands behind the loop. Tiles go through each phase together, so that one's
// latency hides behind another's.
//
// IF A WAIT FAILS the lane goes on without waiting or sending, so that block barriers still meet, and says so in patience.stopped, which
// ends the waits of the others; at the end the CTA overwrites its outputs with NaN. The cluster meets once more before that: a store into
// a CTA that has ended is a fault.
#pragma once
#include "parts/cells.cuh"

#ifndef MUTATION  // deliberate faults, for the test of the tests
#define MUTATION 0
#endif

namespace prnn {

template <class Problem, class Config, class Cell> struct ClusterForward {
  using Scalar = typename Problem::Scalar;
  using Load = Access<Problem>;
  static constexpr int hidden = Problem::hidden, num_groups = (hidden + 7) / 8;
  static constexpr int groups_per_warp = Config::groups_per_warp, slices = Config::k_slices, batch_tiles = Config::batch_tiles;
  static constexpr int groups_per_cta = groups_per_warp * Config::unit_warps, num_threads = Config::unit_warps * slices * 32;
  static constexpr int live_ctas = (num_groups + groups_per_cta - 1) / groups_per_cta;
  static constexpr bool exchanges = Cell::num_recurrent_slots > 0;
  // Rows of R in blocks of 8 (one gate of one group), two blocks a tile.
  static constexpr int tiles = (groups_per_warp * Cell::num_recurrent_slots + 1) / 2;
  static constexpr int slice_units = units_per_chunk<Scalar> * slices;  // of which every slice has a chunk of K
  static constexpr int chunks_per_slice = (hidden + slice_units - 1) / slice_units, blocks = 4 * chunks_per_slice * slices;
  static constexpr int group_bytes = 8 * sizeof(typename Scalar::Storage);  // of 8 units of one sequence
  static constexpr int sums = tiles > 0 ? tiles * 4 : 1;
  static constexpr int num_chains = tiles * batch_tiles < 4 ? 2 : 1;  // of sums over K, to hide the latency of mma
  static constexpr int stages = 4;
  static_assert(Cell::num_stages == 1, "products that depend on others need another kernel");
  static_assert(live_ctas <= Config::cluster_size);

  struct Shared {
    alignas(128) ptx::u32 h[2][batch_tiles][exchanges ? blocks : 1][32];  // [buffer][tile][block of units][place()]
    float partial[batch_tiles][slices > 1 ? slices - 1 : 1][slices > 1 ? Config::unit_warps * sums : 1][32];
    float gates[stages][batch_tiles][groups_per_warp][2][Cell::num_input_slots > 0 ? Cell::num_input_slots : 1][Config::unit_warps * 32];
    ptx::Mbarrier arrived[2][batch_tiles];
    ptx::u32 is_lost;
  };

  static constexpr PTX_FN bool is_recurrent(int slot) {
    return slot >= Cell::first_recurrent_slot && slot < Cell::first_recurrent_slot + Cell::num_recurrent_slots;
  }
  // Which sum of an mma belongs to a slot of group g, column j of the lane.
  static constexpr PTX_FN int sum_of(int g, int slot, int j) {
    const int block = g * Cell::num_recurrent_slots + slot - Cell::first_recurrent_slot;
    return block / 2 * 4 + block % 2 * 2 + j;
  }

  // Where column b of a block stands among its 8 places: so turned that the 16-byte reads of a quarter warp meet no bank twice.
  static PTX_FN int place(int block, int b) { return ((b + 2 * block) & 7) * 4; }

  static PTX_FN void run(const Arguments& args) {
    auto& shared = ptx::shared_memory<Shared>();
    const int tid = ptx::thread_index(), warp = tid / 32, lane = tid % 32;
    const int unit_warp = warp % Config::unit_warps, slice = warp / Config::unit_warps;
    const int rank = ptx::cluster_rank(), copy = args.first_copy + ptx::block_index() / Config::cluster_size;
    const Direction& direction = args.directions[copy / args.copies_per_direction];
    const int first_b = copy % args.copies_per_direction * 8 * batch_tiles;
    const int first_group = rank * groups_per_cta + unit_warp * groups_per_warp;
    const bool is_live = first_group < num_groups;  // this warp has units
    const Sequences<Problem> sequences{args, direction};
    const int batch = args.batch, num_steps = args.num_steps;
    const int stride = direction.reverse ? -1 : 1;
    const ptx::Address base = ptx::address_of(&shared);
    auto address = [&](const void* member) { return base + ptx::distance(&shared, member); };

    auto live_columns = [&](int n) {  // sequences of tile n
      const int left = batch - first_b - n * 8;
      return left < 0 ? 0 : left > 8 ? 8 : left;
    };

    // This warp's part of R stays in registers for all steps. Row lane/4 of both blocks of a tile.
    Weights<Scalar> r_weights[exchanges ? tiles : 1][exchanges ? chunks_per_slice : 1];
    if constexpr (exchanges) {
      PTX_UNROLL for (int tile = 0; tile < tiles; tile++)
        PTX_UNROLL for (int half = 0; half < 2; half++) {
          const int block = tile * 2 + half, unit = (first_group + block / Cell::num_recurrent_slots) * 8 + lane / 4;
          const int gate = Problem::recurrent_gate(Cell::first_recurrent_slot + block % Cell::num_recurrent_slots);
          const bool exists = block < groups_per_warp * Cell::num_recurrent_slots && unit < hidden;
          const int64_t row = static_cast<int64_t>(gate) * hidden + unit;
          PTX_UNROLL for (int chunk = 0; chunk < chunks_per_slice; chunk++) {
            const int k = block_of(slice, chunk, lane) * units_per_block<Scalar>;
            r_weights[tile][chunk].set(half, Load::weights(direction.weight_hh, row, k, exists));
          }
        }

      // The h with which the first step begins. Peers may send only after every CTA has set up its buffers and barriers.
      for (int i = tid; i < batch_tiles * blocks * 32; i += num_threads) {
        const int n = i / (blocks * 32), block = i / 32 % blocks, b = ((i % 32 / 4) - 2 * block) & 7;
        const int unit = block * units_per_block<Scalar> + i % 4 * units_per_word<Scalar>, sequence = first_b + n * 8 + b;
        auto first_h = [&](int u) { return sequence < batch && u < hidden ? sequences.first_state(0, sequence, u) : 0.0f; };
        shared.h[0][n][block][i % 32] = factor_of(first_h(unit), units_per_word<Scalar> > 1 ? first_h(unit + 1) : 0.0f, Scalar{});
        shared.h[1][n][block][i % 32] = 0;
      }
      if (tid == 0) {
        shared.is_lost = 0;
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
          PTX_UNROLL for (int p = 0; p < 2; p++) ptx::mbarrier_init(address(&shared.arrived[p][n]), 1);
        ptx::mbarrier_init_fence();
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
          PTX_UNROLL for (int p = 0; p < 2; p++)
            ptx::mbarrier_arrive_expect_bytes(address(&shared.arrived[p][n]), num_groups * group_bytes * live_columns(n));
      }
      ptx::block_barrier();
      ptx::cluster_barrier();
    }

    // What this lane knows of its cells: (group g of the warp, unit lane/4) x (tile n, sequences lane%4*2 + j). Cells beyond the last unit
    // or sequence repeat the last one's input and reach nobody.
    float r_bias[groups_per_warp][Cell::num_slots] = {}, r_vector[groups_per_warp][Cell::num_vectors + 1];
    float r_state[batch_tiles][groups_per_warp][2][Cell::num_states];
    int length[batch_tiles][2];
    bool restarts_next[batch_tiles][2];
    const bool owns_cells = is_live && slice == 0;
    auto unit_of = [&](int g) { return (first_group + g) * 8 + lane / 4; };
    auto sequence_of = [&](int n, int j) { return first_b + n * 8 + lane % 4 * 2 + j; };
    // Where the input product of the next step to fetch lies, and y of this step: of unit 0 of the warp.
    const float* r_source[batch_tiles][2];
    typename Scalar::Storage* r_target[batch_tiles];
    auto source_of = [&](int n, int j, int t) {
      const int64_t row = sequences.row_of(t, least(sequence_of(n, j), batch - 1)) - direction.first_gate_row;
      return direction.gates + row * (Problem::num_input_gates * hidden) + least(unit_of(0), hidden - 1);
    };
    auto target_of = [&](int n, int t) {
      const int64_t row = sequences.row_of(t, first_b + n * 8 + Pair<Scalar>::sequence(lane));
      return static_cast<typename Scalar::Storage*>(direction.y) + row * args.y_pitch + first_group * 8 + Pair<Scalar>::unit(lane);
    };
    const bool y_is_aligned = args.y_pitch % 2 == 0 && reinterpret_cast<ptx::u64>(direction.y) % sizeof(Pair<Scalar>) == 0;

    // Starts to copy what step `step` takes from memory. Always one group of copies, so that waits can count them.
    auto fetch = [&](int n, int step) {
      if (step < num_steps) {
        PTX_UNROLL for (int j = 0; j < 2; j++) {
          const int t = direction.first_step + stride * step;
          const bool exists = !Problem::is_masked || (sequence_of(n, j) < batch && t < length[n][j]);
          if (Problem::is_masked) r_source[n][j] = source_of(n, j, t);
          PTX_UNROLL for (int g = 0; g < groups_per_warp; g++)
            PTX_UNROLL for (int slot = 0; slot < Cell::num_input_slots; slot++) {
              const int unit = hidden % 8 == 0 ? g * 8 : least(unit_of(g), hidden - 1) - least(unit_of(0), hidden - 1);
              ptx::copy_async(address(&shared.gates[step % stages][n][g][j][slot][tid]),
                              r_source[n][j] + Problem::input_gate(slot) * hidden + unit, exists);
            }
          if (!Problem::is_masked) r_source[n][j] += stride * static_cast<int64_t>(batch) * (Problem::num_input_gates * hidden);
        }
      }
      ptx::copy_async_commit();
    };
    // Does the sequence start again after step `step`?
    auto look_ahead = [&](int n, int step) {
      const int t = direction.first_step + stride * (step + 1);
      PTX_UNROLL for (int j = 0; j < 2; j++)
        restarts_next[n][j] = sequence_of(n, j) < batch && step + 1 < num_steps && sequences.restarts(t, sequence_of(n, j), length[n][j]);
    };

    if (owns_cells) {
      PTX_UNROLL for (int g = 0; g < groups_per_warp; g++) {
        if (unit_of(g) >= hidden) continue;
        PTX_UNROLL for (int slot = 0; slot < Cell::num_slots; slot++) r_bias[g][slot] = sequences.bias(slot, unit_of(g));
        PTX_UNROLL for (int v = 0; v < Cell::num_vectors; v++) r_vector[g][v] = sequences.vector(v, unit_of(g));
      }
      PTX_UNROLL for (int n = 0; n < batch_tiles; n++) {
        PTX_UNROLL for (int j = 0; j < 2; j++) {
          const int b = sequence_of(n, j);
          length[n][j] = Problem::is_masked && b < batch ? sequences.length_of(b) : 0;
          r_source[n][j] = source_of(n, j, direction.first_step);
          PTX_UNROLL for (int g = 0; g < groups_per_warp; g++)
            PTX_UNROLL for (int s = 0; s < Cell::num_states; s++)
              r_state[n][g][j][s] = b < batch && unit_of(g) < hidden ? sequences.first_state(s, b, unit_of(g)) : 0.0f;
        }
        r_target[n] = target_of(n, direction.first_step);
        if (Problem::is_masked) look_ahead(n, 0);
      }
      PTX_UNROLL for (int step = 0; step < stages - 1; step++)
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++) fetch(n, step);
    }

    bool is_lost = false;  // this lane gave up waiting: it waits and sends no more
    for (int step = 0; step < num_steps; step++) {
      const int t = direction.first_step + stride * step, now = step & 1, next = now ^ 1;
      // The sums start from bias and input, which are there before h is.
      float slots[batch_tiles][groups_per_warp][2][Cell::num_slots], z[batch_tiles][sums] = {};
      if (owns_cells) {
        if (MUTATION != 4) ptx::copy_async_wait<(stages - 2) * batch_tiles>();  // for all but the steps after this one
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
          PTX_UNROLL for (int g = 0; g < groups_per_warp; g++)
            PTX_UNROLL for (int j = 0; j < 2; j++)
              PTX_UNROLL for (int i = 0; i < Cell::num_slots; i++) {
                float& slot = slots[n][g][j][i];
                slot = r_bias[g][i];
                if (i < Cell::num_input_slots) slot += shared.gates[step % stages][n][g][j][i][tid];
                if (exchanges && is_recurrent(i)) z[n][sum_of(g, i, j)] = slot;
              }
      }
      if constexpr (exchanges) {
        if (is_live) {
          if (step > 0) {
            PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
              if (live_columns(n) > 0 && !is_lost && (MUTATION != 1 || warp == 0))
                is_lost = !ptx::mbarrier_wait(address(&shared.arrived[now][n]), MUTATION == 2 ? 0 : (step - 1) >> 1 & 1, args.patience);
          }
          multiply(shared.h[now], slice, lane, r_weights, z);
        }
        if constexpr (slices > 1) {
          if (slice > 0 && is_live) {
            PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
              PTX_UNROLL for (int i = 0; i < sums; i++) shared.partial[n][slice - 1][unit_warp * sums + i][lane] = z[n][i];
          }
          if (MUTATION != 3) ptx::block_barrier();
          if (owns_cells) {
            PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
              PTX_UNROLL for (int other = 0; other < slices - 1; other++)
                PTX_UNROLL for (int i = 0; i < sums; i++) z[n][i] += shared.partial[n][other][unit_warp * sums + i][lane];
          }
        }
      }
      if (owns_cells) {
        // All cells first, in one piece without branches, so that the compiler can weave them together.
        Pair<Scalar> y_pair[batch_tiles][groups_per_warp], h_pair[batch_tiles][groups_per_warp];
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
          PTX_UNROLL for (int g = 0; g < groups_per_warp; g++) {
            float h_out[2], h_next[2];  // what y shows, and what the next step multiplies
            PTX_UNROLL for (int j = 0; j < 2; j++) {
              float* const slot = slots[n][g][j];
              PTX_UNROLL for (int i = 0; i < Cell::num_slots; i++)
                if (exchanges && is_recurrent(i)) slot[i] = z[n][sum_of(g, i, j)];
              float* const state = r_state[n][g][j];
              float following[Cell::num_states], saved[Cell::num_saved + 1];
              Cell::template forward<float>(Stage<0>{}, slot, state, r_vector[g], nullptr, following, saved);
              const bool is_valid = !Problem::is_masked || t < length[n][j];
              PTX_UNROLL for (int s = 0; s < Cell::num_states; s++)
                if (is_valid) state[s] = following[s];
              h_out[j] = is_valid ? state[0] : 0.0f;
              if (Problem::is_masked && restarts_next[n][j] && unit_of(g) < hidden) {
                PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) state[s] = sequences.initial_state(s, sequence_of(n, j), unit_of(g));
              }
              h_next[j] = unit_of(g) < hidden ? state[0] : 0.0f;  // beyond the last unit R is zero, and 0 * NaN is not
            }
            y_pair[n][g] = h_pair[n][g] = Pair<Scalar>::of(h_out, lane);
            if (Problem::is_masked || hidden % 8 != 0) h_pair[n][g] = Pair<Scalar>::of(h_next, lane);
          }
        const int column = Pair<Scalar>::sequence(lane);
        auto pair_unit = [&](int g) { return (first_group + g) * 8 + Pair<Scalar>::unit(lane); };
        auto exists = [&](int n, int g) { return column < live_columns(n) && first_group + g < num_groups; };
        if (exchanges && step + 1 < num_steps && !is_lost) {
          PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
            PTX_UNROLL for (int g = 0; g < groups_per_warp; g++) {
              if (!exists(n, g)) continue;
              const int unit = pair_unit(g), block = unit / units_per_block<Scalar>;
              const int word = unit % units_per_block<Scalar> / units_per_word<Scalar>;
              const auto target = address(&shared.h[next][n][block][place(block, column) + word]);
              const auto sent = h_pair[n][g].factors();
              PTX_UNROLL for (int to = 0; to < live_ctas; to++)
                ptx::store_async(target, sent.words, address(&shared.arrived[next][n]), to);
            }
        }
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++) {
          const int b = first_b + n * 8 + column;
          PTX_UNROLL for (int g = 0; g < groups_per_warp; g++)
            if (exists(n, g) && (!Problem::is_masked || args.zero_padding || t < sequences.length_of(b)))
              sequences.store_pair((Problem::is_masked ? target_of(n, t) : r_target[n]) + g * 8, pair_unit(g), y_is_aligned, y_pair[n][g]);
        }
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++) {
          fetch(n, step + stages - 1);
          if (Problem::is_masked) look_ahead(n, step + 1);
          r_target[n] += stride * batch * args.y_pitch;
        }
      }
      if (exchanges && tid == 0 && is_live && step > 0 && !is_lost) {  // arms the phase after the one that has come
        PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
          if (live_columns(n) > 0) ptx::mbarrier_arrive_expect_bytes(address(&shared.arrived[now][n]), num_groups * group_bytes * live_columns(n));
      }
    }

    if (is_lost) shared.is_lost = 1;
    if constexpr (exchanges) ptx::cluster_barrier();
    if (!owns_cells) return;
    const bool failed = exchanges && shared.is_lost;
    PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
      PTX_UNROLL for (int g = 0; g < groups_per_warp; g++) {
        PTX_UNROLL for (int j = 0; j < 2; j++)
          PTX_UNROLL for (int s = 0; s < Cell::num_states; s++) {
            const int64_t index = static_cast<int64_t>(sequence_of(n, j)) * hidden + unit_of(g);
            if (sequence_of(n, j) < batch && unit_of(g) < hidden)
              Load::store_state(direction.end[s], direction.end_is_float, index, failed ? not_a_number() : r_state[n][g][j][s]);
          }
        const auto nan = Pair<Scalar>::of({not_a_number(), not_a_number()}, lane);
        if (!failed || Pair<Scalar>::sequence(lane) >= live_columns(n)) continue;
        PTX_NO_UNROLL for (int step = 0; step < num_steps; step++)
          sequences.store_pair(target_of(n, direction.first_step + stride * step) + g * 8, (first_group + g) * 8 + Pair<Scalar>::unit(lane),
                  y_is_aligned, nan);
      }
  }

  // The block of h, and of a row of R, that a lane reads of a slice's chunk.
  static PTX_FN int block_of(int slice, int chunk, int lane) { return (slice * chunks_per_slice + chunk) * 4 + lane % 4; }

  // z += R h over this warp's slice of K.
  template <class RWeights>
  static PTX_FN void multiply(const ptx::u32 (*h)[blocks][32], int slice, int lane, const RWeights& r_weights,
                              float (&z)[batch_tiles][sums]) {
    float chains[batch_tiles][tiles][num_chains][4] = {};
    PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
      PTX_UNROLL for (int i = 0; i < sums; i++) chains[n][i / 4][0][i % 4] = z[n][i];
    PTX_UNROLL for (int chunk = 0; chunk < chunks_per_slice; chunk++)
      PTX_UNROLL for (int n = 0; n < batch_tiles; n++) {
        const int block = block_of(slice, chunk, lane);
        const auto words = *reinterpret_cast<const ptx::Word4*>(&h[n][block][place(block, lane / 4)]);
        PTX_UNROLL for (int tile = 0; tile < tiles; tile++) r_weights[tile][chunk].multiply(chains[n][tile], words);
      }
    PTX_UNROLL for (int n = 0; n < batch_tiles; n++)
      PTX_UNROLL for (int i = 0; i < sums; i++) {
        const auto& chain = chains[n][i / 4];
        z[n][i] = num_chains == 1 ? chain[0][i % 4] : chain[0][i % 4] + chain[num_chains - 1][i % 4];
      }
  }
};
}  // namespace prnn
