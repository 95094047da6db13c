// Products with narrow weights: int8 with one scale for each column of B (a row of the weight matrix), or bfloat16. Activations and sums
// are float32: a weight is widened in a register on its way into the FMA, and a scale multiplies the finished sum.
#pragma once

#include <cstring>

#include "products.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace prnn::PRNN_ISA {

struct Bfloat16 {
  uint16_t bits;
};

template <class W> constexpr bool is_narrow = false;
template <> constexpr bool is_narrow<int8_t> = true;
template <> constexpr bool is_narrow<Bfloat16> = true;

// Panels as in products.h, with the steps of the depth in pairs (an odd one is followed by zeros). A pair of int8 is two vectors, one after
// the other. A pair of bfloat16 shares lanes of 32 bits, the first in the low half: that widens with one operation for each.
template <class W> constexpr int64_t packed_depth(int64_t depth) { return is_narrow<W> ? round_up(depth, 2) : depth; }

PRNN_INLINE Vec<float>::Raw widen(const int8_t* from) {
  // As a conversion of vectors, GCC makes eight of numbers from it.
#if defined(__AVX512F__)
  const __m512i whole = _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  typedef int8_t Narrow __attribute__((vector_size(Vec<float>::width), aligned(1), may_alias));
  const auto whole = __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), Vec<float>::Mask);
#endif
  return __builtin_convertvector((Vec<float>::Mask)whole, Vec<float>::Raw);
}

// One vector of columns at an even step of the depth: that step and the next. `row` is the width of the panel.
PRNN_INLINE void widen_pair(const int8_t* b, int64_t row, Vec<float>::Raw* first, Vec<float>::Raw* second) {
  *first = widen(b);
  *second = widen(b + row);
}
PRNN_INLINE void widen_pair(const Bfloat16* b, int64_t, Vec<float>::Raw* first, Vec<float>::Raw* second) {
  typedef uint32_t Pair __attribute__((vector_size(PRNN_VECTOR_BYTES), aligned(2), may_alias));
  const Pair pair = *reinterpret_cast<const Pair*>(b);
  *first = (Vec<float>::Raw)(pair << 16);
  *second = (Vec<float>::Raw)(pair & 0xffff0000u);
}

// Where vector `v` of the columns begins in a pair of steps.
template <class W> constexpr int64_t vector_offset(int64_t v) { return v * Vec<float>::width * (sizeof(W) == 2 ? 2 : 1); }

// Far enough ahead for what comes from L3 or memory. Measured on a Zen 3 core with one row, GFLOP/s at 0 / 1 KB / 2 KB: 8 MB of int8
// 28 / 46 / 46, 16 MB of bfloat16 - / 25 / 33.
constexpr int64_t narrow_prefetch_bytes = 2048;

// C[m][v] += scale[v] * sum_k A[m][k] * B[k][v] for M rows and a panel of NV vectors.
template <class W, int M, int NV>
inline void narrow_tile(const W* b, const float* scale, const float* a, int64_t a_row, int64_t depth, float* c, int64_t c_row) {
  using Raw = Vec<float>::Raw;
  constexpr int width = Vec<float>::width;
  constexpr int copies = M == 1 ? 2 : 1;  // enough independent sums to hide the latency of an FMA
  Raw sum[copies][M][NV] = {};
  for (int64_t k = 0; k + 1 < depth; k += 2, b += 2 * NV * width) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < int64_t(2 * NV * width * sizeof(W)); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(b) + narrow_prefetch_bytes + line);
#pragma GCC unroll 8
    for (int v = 0; v < NV; v++) {
      Raw first, second;
      widen_pair(b + vector_offset<W>(v), NV * width, &first, &second);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        sum[0][m][v] += Vec<float>(a[m * a_row + k]).raw * first;
        sum[copies - 1][m][v] += Vec<float>(a[m * a_row + k + 1]).raw * second;
      }
    }
  }
  if (depth % 2)
#pragma GCC unroll 8
    for (int v = 0; v < NV; v++) {
      Raw first, second;
      widen_pair(b + vector_offset<W>(v), NV * width, &first, &second);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) sum[0][m][v] += Vec<float>(a[m * a_row + depth - 1]).raw * first;
    }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int v = 0; v < NV; v++) {
      Vec<float> total(sum[0][m][v]);
      if (copies > 1) total = total + Vec<float>(sum[copies - 1][m][v]);
      if (sizeof(W) == 1) total = total * Vec<float>::load(scale + v * width);
      (Vec<float>::load(c + m * c_row + v * width) + total).store(c + m * c_row + v * width);
    }
}

// All rows against one panel of NV vectors: few widen every weight for themselves, more share a slice of the panel widened beforehand.
template <class W, int NV>
inline void multiply_narrow_panel(const W* b, const float* scale, const float* a, int64_t a_row, int64_t depth, float* c, int64_t c_row,
                                  int64_t rows) {
  constexpr int width = Vec<float>::width;
  if (rows == 1) return narrow_tile<W, 1, NV>(b, scale, a, a_row, depth, c, c_row);
  if (rows == 2) return narrow_tile<W, 2, NV>(b, scale, a, a_row, depth, c, c_row);
  if (rows == 3) return narrow_tile<W, 3, NV>(b, scale, a, a_row, depth, c, c_row);
  alignas(64) float wide[panel_depth * NV * width];
  for (int64_t k = 0; k < depth; k += panel_depth) {
    const int64_t part = min_of(panel_depth, depth - k);
    const W* from = b + k * NV * width;
    for (int64_t i = 0; i < part; i += 2, from += 2 * NV * width)
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        Vec<float> first, second;
        widen_pair(from + vector_offset<W>(v), NV * width, &first.raw, &second.raw);
        if (sizeof(W) == 1) {
          first = first * Vec<float>::load(scale + v * width);
          second = second * Vec<float>::load(scale + v * width);
        }
        first.store(wide + (i * NV + v) * width);
        second.store(wide + ((i + 1) * NV + v) * width);
      }
    multiply_panel<float, NV>(wide, a + k, a_row, 1, part, c, c_row, rows);
  }
}

// C[rows, panels first..last) += A * B with B packed.
template <class W>
inline void multiply_narrow(const W* packed, const float* scale, int64_t columns, int64_t depth, int64_t first, int64_t last,
                            const float* a, int64_t a_row, float* c, int64_t c_row, int64_t rows) {
  constexpr int width = Vec<float>::width;
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t start = panel * panel_columns(width), vectors = divide_up(columns - start, width);
    const auto multiply = [&](auto function) {
      function(packed + start * packed_depth<W>(depth), sizeof(W) == 1 ? scale + start : nullptr, a, a_row, depth, c + start, c_row, rows);
    };
    if (vectors >= 4)
      multiply(multiply_narrow_panel<W, 4>);
    else if (vectors == 3)
      multiply(multiply_narrow_panel<W, 3>);
    else if (vectors == 2)
      multiply(multiply_narrow_panel<W, 2>);
    else
      multiply(multiply_narrow_panel<W, 1>);
  }
}

// Packs panels [first, last) of B^T, where row j of `w` is column j of B.
template <class W>
inline void pack_narrow_rows(const W* w, int64_t columns, int64_t depth, int64_t first, int64_t last, W* packed) {
  constexpr int width = Vec<float>::width;
  const int64_t deep = packed_depth<W>(depth);
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t start = panel * panel_columns(width), vectors = min_of(panel_vectors, divide_up(columns - start, width));
    W* to = packed + start * deep;
    std::memset(static_cast<void*>(to), 0, deep * vectors * width * sizeof(W));
    for (int64_t j = 0; j < min_of(vectors * width, columns - start); j++) {
      const W* row = w + (start + j) * depth;
      const bool paired = sizeof(W) == 2;
      W* column = to + (paired ? 2 * j : j);
      for (int64_t k = 0; k < depth; k++) column[paired ? k / 2 * 2 * vectors * width + k % 2 : k * vectors * width] = row[k];
    }
  }
}

}  // namespace prnn::PRNN_ISA
