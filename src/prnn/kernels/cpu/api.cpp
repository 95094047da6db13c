// The exported functions. Each returns 0, or 1 when memory ran out.
#include <cstring>
#include <new>

#include "engine_isa.h"

namespace prnn {
#define PRNN_DECLARE(isa) \
  namespace isa {         \
  extern const Engine engine; \
  }
#if defined(__x86_64__)
PRNN_DECLARE(avx512)
PRNN_DECLARE(avx2)
#endif
PRNN_DECLARE(baseline)

namespace {
const Engine* const engines[] = {
#if defined(__x86_64__)
    &avx512::engine, &avx2::engine,
#endif
    &baseline::engine};

const Engine* by_name(const char* isa) {
  for (const Engine* engine : engines)
    if (std::strcmp(engine->isa, isa) == 0) return engine;
  return nullptr;
}
}  // namespace
}  // namespace prnn

#define PRNN_EXPORT extern "C" __attribute__((visibility("default")))

PRNN_EXPORT int prnn_layer_abi_version() { return prnn_layer_abi; }

// The names of the instruction sets this machine runs, best first, separated by spaces.
PRNN_EXPORT const char* prnn_usable_isas() {
  static char names[64];
  names[0] = 0;
  for (const prnn::Engine* engine : prnn::engines) {
    if (!engine->usable()) continue;
    if (names[0]) std::strcat(names, " ");
    std::strcat(names, engine->isa);
  }
  return names;
}

PRNN_EXPORT const void* prnn_engine(const char* isa) { return prnn::by_name(isa); }

PRNN_EXPORT const void* prnn_builtin_cell(const void* engine, const char* name) {
  for (const PrnnCell* const* cell = static_cast<const prnn::Engine*>(engine)->cells; *cell; cell++)
    if (std::strcmp((*cell)->name, name) == 0) return *cell;
  return nullptr;
}

namespace {
template <class Function> int guarded(Function function) {
  try {
    function();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
}  // namespace

PRNN_EXPORT int prnn_forward(const void* engine, const PrnnLayer* layer) {
  return guarded([&] { static_cast<const prnn::Engine*>(engine)->forward(*layer); });
}
PRNN_EXPORT int prnn_backward(const void* engine, const PrnnLayer* layer) {
  return guarded([&] { static_cast<const prnn::Engine*>(engine)->backward(*layer); });
}
PRNN_EXPORT int64_t prnn_saved_elements(const void* engine, const PrnnLayer* layer) {
  return static_cast<const prnn::Engine*>(engine)->saved_elements(*layer);
}
PRNN_EXPORT int64_t prnn_packed_bytes(const void* engine, const PrnnLayer* layer) {
  return static_cast<const prnn::Engine*>(engine)->packed_bytes(*layer);
}
PRNN_EXPORT void prnn_pack(const void* engine, const PrnnLayer* layer) { static_cast<const prnn::Engine*>(engine)->pack(*layer); }
