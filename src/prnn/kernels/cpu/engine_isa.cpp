// The engine and the built-in cells for one instruction set; compiled once for each with its own flags.
#include "engine_isa.h"

#include "backward.h"
#include "cell_loops.h"
#include "floors.h"
#include "forward.h"

namespace prnn::PRNN_ISA {

#include "cells.gen.h"  // printed from src/prnn/cells; also defines builtin_cells

namespace {

template <class E> void fill_first_rows(const Sizes<E>& sizes, int64_t* first_row) {
  int64_t row = 0;
  for (int64_t t = 0; t < sizes.layer.steps; t++) {
    first_row[t] = row;
    row += sizes.batch_size(t);
  }
}

template <class Pass> void run(const PrnnLayer& layer, Pass& pass, void (*lay_out)(Pass&, Arena&, int)) {
  Arena measure{nullptr};
  lay_out(pass, measure, layer.threads);
  Arena arena{static_cast<char*>(scratch(measure.used))};
  lay_out(pass, arena, layer.threads);
  fill_first_rows(pass, pass.first_row);
  run_parallel(layer.threads, [](void* p, int thread, int n) { static_cast<Pass*>(p)->work(thread, n); }, &pass);
}

template <class E, class W = E, class In = W> void forward_of(const PrnnLayer& layer) {
  Forward<E, W, In> pass(layer);
  if (layer.flags & prnn_packed) {
    Arena given{static_cast<char*>(layer.packed)};
    pass.lay_out_packed(given);
  }
  run<Forward<E, W, In>>(layer, pass, [](Forward<E, W, In>& p, Arena& arena, int) { p.lay_out(arena); });
}

template <class E> void backward_of(const PrnnLayer& layer) {
  Backward<E> pass(layer);
  run<Backward<E>>(layer, pass, [](Backward<E>& p, Arena& arena, int num_threads) { p.lay_out(arena, num_threads); });
}

template <class E, class W = E, class In = W> int64_t packed_bytes_of(const PrnnLayer& layer) {
  Arena measure{nullptr};
  Forward<E, W, In>(layer).lay_out_packed(measure);
  return measure.used;
}

template <class E, class W = E, class In = W> void pack_of(const PrnnLayer& layer) {
  Forward<E, W, In> pass(layer);
  Arena given{static_cast<char*>(layer.packed)};
  pass.lay_out_packed(given);
  pass.pack(pass.share(pass.H, 0, 1), pass.share(pass.P, 0, 1));
}

template <class E> int64_t saved_elements_of(const PrnnLayer& layer) { return Sizes<E>(layer).saved_elements(); }

#define PRNN_BY_DTYPE(function) [](const PrnnLayer& l) { return l.dtype ? function<double>(l) : function<float>(l); }
#define PRNN_BY_WEIGHTS(function)                                                \
  [](const PrnnLayer& l) {                                                       \
    if (l.flags & prnn_int8_weights) return function<float, int8_t, Bfloat16>(l); \
    if (l.flags & prnn_bfloat16_weights) return function<float, Bfloat16>(l);    \
    return l.dtype ? function<double>(l) : function<float>(l);                   \
  }

int usable() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("x86-64-v4");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("x86-64-v3");
#else
  return 1;
#endif
}

}  // namespace

extern const Engine engine;
const Engine engine = {
    PRNN_ISA_NAME, usable,
    PRNN_BY_WEIGHTS(forward_of), PRNN_BY_DTYPE(backward_of), PRNN_BY_DTYPE(saved_elements_of),
    PRNN_BY_WEIGHTS(packed_bytes_of), PRNN_BY_WEIGHTS(pack_of), read_all, multiply_add,
    builtin_cells,
};

}  // namespace prnn::PRNN_ISA
