// A cell as the engine sees it: constants, and functions that run one stage over a block of units.
//
// The engine and the cells meet only here, so a user's cell is compiled at run time into a library of its own that exports one
// PrnnCell. All buffers are padded to whole vectors of units.
#pragma once

#include <cstdint>

constexpr int prnn_cell_abi = 1;
constexpr int prnn_max_states = 8, prnn_max_vectors = 8, prnn_max_products = 8, prnn_max_stages = 8;

extern "C" {

// Rows are sequences of the batch. Buffers marked [.., units] hold `padded_hidden` numbers for each entry before.
struct PrnnForwardArgs {
  int64_t rows, first_unit, last_unit;  // multiples of the vector width
  int64_t padded_hidden;
  const void* slots;                      // [rows, num_slots, units]: finished products, biases included
  int64_t slots_row;                      // elements from one row to the next
  const void* state[prnn_max_states];     // [rows, units]
  void* next[prnn_max_states];            // [rows, units]; may alias state, apart from the recurrent one
  const void* vector[prnn_max_vectors];   // [units]
  void* operand[prnn_max_products];       // [rows, units]
  void* saved;                            // [rows, num_saved, units], or null when nothing is saved
  int64_t saved_row;
};

struct PrnnBackwardArgs {
  int64_t rows, first_unit, last_unit;
  int64_t padded_hidden;
  int64_t hidden;                         // d_slots is zeroed in the lanes beyond it, which meet matrices later
  const void* saved;                      // [rows, num_saved, units]
  int64_t saved_row;
  const void* output_before;              // [rows, units]: the recurrent state before the step; null if the cell does not read it
  const void* vector[prnn_max_vectors];   // [units]
  const void* d_next[prnn_max_states];    // [rows, units]
  const void* d_operand[prnn_max_products];  // [rows, units]
  void* d_slots;                          // [rows, num_slots, units]
  int64_t d_slots_row;
  void* d_state[prnn_max_states];         // [rows, units]; written in the last stage; may alias d_next
  void* d_vector[prnn_max_vectors];       // [units]; added to in the last stage
};

typedef void (*PrnnForwardStage)(const PrnnForwardArgs*);
typedef void (*PrnnBackwardStage)(const PrnnBackwardArgs*);

struct PrnnCell {
  int32_t abi, vector_bytes;
  const char* name;
  int32_t num_states, num_vectors, num_slots, num_products, num_stages, num_saved;
  int32_t num_input_slots, first_recurrent_slot, num_recurrent_slots, backward_reads_output;
  const int32_t* slot_input_gate;      // [num_slots] row block of w_ih, or -1
  const int32_t* slot_recurrent_gate;  // [num_slots] row block of w_hh, or -1
  const int32_t* product_slot;         // [num_products]
  const int32_t* product_stage;        // [num_products] the stage that yields the operand
  PrnnForwardStage forward[2][2][prnn_max_stages];  // [float32, float64][inference, saving][stage]
  PrnnBackwardStage backward[2][prnn_max_stages];
};

}  // extern "C"
