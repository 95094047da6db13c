// What one instruction set's build of the engine exports.
#pragma once

#include "layer.h"

namespace prnn {

struct Engine {
  const char* isa;
  int (*usable)();  // whether this processor and operating system run it
  void (*forward)(const PrnnLayer&);
  void (*backward)(const PrnnLayer&);
  int64_t (*saved_elements)(const PrnnLayer&);
  int64_t (*packed_bytes)(const PrnnLayer&);
  void (*pack)(const PrnnLayer&);
  float (*read)(const float* memory, int64_t count);  // their sum: every element is loaded; count is a multiple of 128
  int64_t (*multiply_add)(int64_t rounds, float* result);  // as fast as the core can; the operations done
  const PrnnCell* const* cells;  // the built-in cells, null-terminated
};

}  // namespace prnn
