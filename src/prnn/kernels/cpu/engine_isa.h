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
  const PrnnCell* const* cells;  // the built-in cells, null-terminated
};

}  // namespace prnn
