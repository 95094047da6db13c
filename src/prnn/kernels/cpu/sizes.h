// Padded sizes, the layout of what forward saves, and the share of each thread: what forward.h and backward.h have in common.
#pragma once

#include <cstring>

#include "layer.h"
#include "pool.h"
#include "products.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace prnn::PRNN_ISA {

// Denormal numbers are flushed to zero while the engine works and treated as before afterwards.
struct FlushDenormals {
#if defined(__SSE2__)
  unsigned int before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" ::"r"(before | (1ull << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

// Columns that one thread owns, in whole panels.
struct Share {
  int64_t first_panel, last_panel, begin, end;
};

template <class E> struct Sizes {
  static constexpr int width = Vec<E>::width;

  const PrnnLayer& layer;
  const PrnnCell& cell;
  const int64_t I, H, P;     // sizes as the user knows them; P is the width of the output and depth of the recurrent matrix
  const int64_t Hp, Pp, Ip;  // padded to whole vectors
  const int num_slots, first_recurrent, num_recurrent;  // recurrent slots with those of the products behind them
  const bool projected;

  explicit Sizes(const PrnnLayer& l)
      : layer(l), cell(*l.cell), I(l.input_size), H(l.hidden_size), P(l.proj_size ? l.proj_size : l.hidden_size),
        Hp(round_up(H, width)), Pp(round_up(P, width)), Ip(round_up(I, width)), num_slots(cell.num_slots),
        first_recurrent(cell.first_recurrent_slot), num_recurrent(num_slots - first_recurrent), projected(l.proj_size != 0) {}

  Share share(int64_t columns, int thread, int num_threads) const {
    const int64_t panels = divide_up(columns, panel_columns(width));
    const int64_t first = panels * thread / num_threads, last = panels * (thread + 1) / num_threads;
    const auto edge = [&](int64_t panel) { return min_of(panel * panel_columns(width), round_up(columns, width)); };
    return {first, last, edge(first), edge(last)};
  }

  int64_t state_width(int s) const { return s == 0 ? P : H; }
  int64_t padded_state_width(int s) const { return s == 0 ? Pp : Hp; }

  int64_t batch_size(int64_t t) const { return layer.batch_sizes ? layer.batch_sizes[t] : layer.batch; }

  const E* input_weight(int slot) const {
    return static_cast<const E*>(layer.w_ih) + cell.slot_input_gate[slot] * H * I;
  }
  const E* recurrent_weight(int slot) const {
    return static_cast<const E*>(layer.w_hh) + cell.slot_recurrent_gate[slot] * H * P;
  }

  // The array `saved`: values of the cell [N, num_saved, Hp], the recurrent state before each step [N, Pp], the operands
  // [num_products, N, Hp] and, with a projection, the output before it [N, Hp].
  int64_t saved_row() const { return cell.num_saved * Hp; }
  E* saved_values(int64_t row) const { return static_cast<E*>(layer.saved) + row * saved_row(); }
  E* saved_output_before(int64_t row) const { return saved_values(layer.rows) + row * Pp; }
  E* saved_operand(int k, int64_t row) const { return saved_output_before(layer.rows) + (k * layer.rows + row) * Hp; }
  E* saved_raw_output(int64_t row) const { return saved_operand(cell.num_products, 0) + row * Hp; }
  int64_t saved_elements() const {
    return layer.rows * (saved_row() + Pp + cell.num_products * Hp + (projected ? Hp : 0));
  }
};

// Hands out pieces of one allocation: run the layout once without memory to learn the size, then with it.
struct Arena {
  char* memory;
  uint64_t used = 0;

  template <class T> T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(memory + used);
    used += round_up(count * sizeof(T), 64);
    return memory ? piece : nullptr;
  }
};

template <class E> inline void copy(E* to, const E* from, int64_t begin, int64_t end) {
  if (end > begin) std::memcpy(to + begin, from + begin, (end - begin) * sizeof(E));
}
template <class E> inline void clear(E* to, int64_t begin, int64_t end) {
  if (end > begin) std::memset(to + begin, 0, (end - begin) * sizeof(E));
}

}  // namespace prnn::PRNN_ISA
