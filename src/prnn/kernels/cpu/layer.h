// The engine's C interface: one layer in one direction over a whole sequence.
//
// Rows are time-major and without padding (Python: specs.Rows). Nothing is allocated in a timestep; scratch memory belongs to the
// calling thread and is kept for its next call.
#pragma once

#include "cell_table.h"

constexpr int prnn_layer_abi = 2;

extern "C" {

enum PrnnFlags : int32_t {
  prnn_reverse = 1,              // process step T-1 first
  prnn_restart_to_initial = 2,   // a restarted row continues from its initial state instead of zero
  prnn_in_place = 4,             // read the weights where they are instead of packing them
  prnn_packed = 8,               // `packed` already holds the packed weights
  prnn_int8_weights = 16,        // w_hh and w_hr are int8 and have scales, w_ih is bfloat16; float32, forward only, not in place
  prnn_bfloat16_weights = 32,    // the matrices are bfloat16; float32, forward only, not in place
};

// H hidden_size, I input_size, P proj_size or H, B batch, N rows. A null pointer stands for an array that does not exist or, among the
// gradients, is not wanted. Arrays are contiguous unless a row stride (in elements) is given; nothing written may alias anything read.
struct PrnnLayer {
  int32_t abi, dtype;  // 0 float32, 1 float64
  int32_t flags, threads;
  int64_t steps, batch, rows, input_size, hidden_size, proj_size;
  const PrnnCell* cell;
  const int64_t* batch_sizes;  // [steps], not increasing; null: all are `batch`
  const uint8_t* restart;      // [N]
  const void* x;               // [N, I]
  const void *w_ih, *w_hh, *b_ih, *b_hh, *w_hr;
  const void* vectors[prnn_max_vectors];  // [H] each
  const void* states[prnn_max_states];    // [B, P] the first, [B, H] the others
  void* y;                                // [N, P]
  int64_t y_row;
  void* final_states[prnn_max_states];    // like states
  void* saved;                            // written by forward when not null, read by backward
  void* packed;                           // with prnn_packed
  const float *scale_hh, *scale_hr;       // with prnn_int8_weights: [rows, groups], of what the numbers of a group are multiples

  // read and written by backward only; gradients are overwritten
  const void* d_y;  // [N, P]
  int64_t d_y_row;
  const void* d_final_states[prnn_max_states];
  void* d_x;
  void* d_states[prnn_max_states];
  void *d_w_ih, *d_w_hh, *d_b_ih, *d_b_hh, *d_w_hr;
  void* d_vectors[prnn_max_vectors];
};

}  // extern "C"
