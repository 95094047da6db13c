// What a launch is given. kernels/gpu.py holds the same structs, member for member.
#pragma once
#include "parts/products.cuh"

namespace prnn {
constexpr int max_states = 8, max_vectors = 8, max_directions = 2;

// One direction of a layer, over the steps of this launch. Numbers are of the problem's type unless said otherwise; the row of (t, b) is
// row_of_step[t] + b, or t * batch + b. H: units; Gi, Gr: gates that take the input and the recurrent product.
struct Direction {
  const void* weight_hh;           // [Gr*H, H], as the layer's parameter lies in memory; at a multiple of 16 bytes
  const float* gates;              // [rows, Gi*H]: the input product of row `first_gate_row` and the rows after it
  const void* bias_ih;             // [Gi*H] or null
  const void* bias_hh;             // [Gr*H] or null
  const void* vectors[max_vectors];  // [H] each
  const void* begin[max_states];   // [B, H]: the states before this launch; null: zero
  const void* initial[max_states]; // [B, H]: the states from which a restarted row continues; null: zero
  void* end[max_states];           // [B, H]: written
  void* y;                         // [rows, ...]: written; `y_pitch` numbers from row to row
  const ptx::u8* restart;          // [rows]: not 0 where the state is dropped before the row is processed; or null
  int64_t first_gate_row;
  int first_step;                  // the first that is processed; the others follow upwards, or downwards if `reverse`
  int reverse;
  int begin_is_float;              // begin (end) holds floats, which carry the states from launch to launch exactly
  int end_is_float;
};

struct Arguments {
  Direction directions[max_directions];
  const int* lengths;              // [B]: valid steps of each sequence; or null: all
  const int64_t* row_of_step;      // [T] or null
  int64_t y_pitch;
  ptx::Patience patience;
  int num_steps, batch;
  int copies_per_direction;
  int first_copy;                  // of R, in this launch; a batch may need several launches
  void* exchange;                  // zero before the launch; for kernels that exchange h through global memory
  int zero_padding;                // write zeros to y beyond a sequence's end
};

template <class Problem> struct Access {
  using Scalar = typename Problem::Scalar;
  using Storage = typename Scalar::Storage;

  // One number of the layer's type.
  static PTX_FN float number(const void* numbers, int64_t index) {
    return ptx::widen(ptx::load_constant(static_cast<const Storage*>(numbers) + index), Scalar{});
  }
  // One number of a state, which is kept in the layer's type or, between launches, as a float; zero where there is none.
  static PTX_FN float state(const void* states, int is_float, int64_t index) {
    if (!states) return 0.0f;
    return is_float ? ptx::load_constant(static_cast<const float*>(states) + index) : number(states, index);
  }
  static PTX_FN void store_state(void* states, int is_float, int64_t index, float value) {
    if (is_float) static_cast<float*>(states)[index] = value;
    else static_cast<Storage*>(states)[index] = ptx::narrow(value, Scalar{});
  }
  // What a lane reads of row `row` of R, from column k on; zero beyond its end.
  static PTX_FN ptx::Word4 weights(const void* weight_hh, int64_t row, int k, bool row_exists) {
    constexpr int size = sizeof(Storage), count = units_per_block<Scalar>;
    ptx::Word4 words = {};
    if (!row_exists) return words;
    const Storage* const at = static_cast<const Storage*>(weight_hh) + row * Problem::hidden + k;
    if constexpr (Problem::hidden % count == 0) {  // so every row is aligned, and columns exist together or not at all
      if (k < Problem::hidden) words = ptx::load_constant(reinterpret_cast<const ptx::Word4*>(at));
    } else {
      PTX_UNROLL for (int i = 0; i < count; i++)
        if (k + i < Problem::hidden) words.w[i * size / 4] |= static_cast<ptx::u32>(ptx::load_constant(at + i)) << (i * size % 4 * 8);
    }
    return words;
  }
};
}  // namespace prnn
