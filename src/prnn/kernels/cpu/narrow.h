// Products with narrow weights: int8 with a scale for every `scale_group` steps of a column of B (a row of the weight matrix), or bfloat16.
// Activations and sums are float32: a weight is widened in a register on its way into the FMA, and a scale multiplies the sum of its group.
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
template <class W> constexpr bool is_scaled = sizeof(W) == 1;

constexpr int64_t scale_group = 32;  // narrow.py: GROUP; a divisor of panel_depth
constexpr int64_t num_groups(int64_t depth) { return divide_up(depth, scale_group); }

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

// Vector v of step u (0 or 1) of a pair of steps; `row` is the width of the panel.
PRNN_INLINE Vec<float>::Raw widen(const int8_t* pair, int64_t row, int v, int u) {
  return widen(pair + u * row + v * Vec<float>::width);
}
PRNN_INLINE Vec<float>::Raw widen(const Bfloat16* pair, int64_t, int v, int u) {
  typedef uint32_t Lanes __attribute__((vector_size(PRNN_VECTOR_BYTES), aligned(2), may_alias));
  const Lanes lanes = *reinterpret_cast<const Lanes*>(pair + 2 * v * Vec<float>::width);
  return (Vec<float>::Raw)(u == 0 ? lanes << 16 : lanes & 0xffff0000u);
}

// Far enough ahead for what comes from L3 or memory. Measured on a Zen 3 core with one row: 8 MB of int8 28 GFLOP/s without, 46 at 1 KB;
// 16 MB of bfloat16 25 at 1 KB, 33 at 2 KB.
constexpr int64_t narrow_prefetch_bytes = 2048;

// A pair of steps of a panel, `row` wide, into the first-level cache before it is needed.
template <class W, int64_t row> PRNN_INLINE void prefetch_pair(const W* b) {
#pragma GCC unroll 8
  for (int64_t line = 0; line < int64_t(2 * row * sizeof(W)); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(b) + narrow_prefetch_bytes + line);
}

// C[m][v] += sum_k A[m][k] * scale[k / scale_group][v] * B[k][v] for M rows and NV vectors of a panel of `panel` vectors.
template <class W, int M, int NV, int panel>
inline void narrow_tile(const W* b, const float* scale, const float* a, int64_t a_row, int64_t depth, float* c, int64_t c_row) {
  using Raw = Vec<float>::Raw;
  constexpr int width = Vec<float>::width;
  constexpr int copies = M == 1 ? 2 : 1;  // enough independent sums to hide the latency of an FMA
  Raw sum[copies][M][NV];
  const auto step = [&](Raw(&into)[M][NV], int u, const float* a_here) __attribute__((always_inline)) {
    if constexpr (M < NV) {  // keep the fewer values in registers
      Raw broadcast[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) broadcast[m] = Vec<float>(a_here[m * a_row]).raw;
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        Raw value = widen(b, panel * width, v, u);
        if (M > 1) PRNN_IN_REGISTER(value);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) into[m][v] += broadcast[m] * value;
      }
    } else {
      Raw value[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        value[v] = widen(b, panel * width, v, u);
        PRNN_IN_REGISTER(value[v]);
      }
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        Raw broadcast = Vec<float>(a_here[m * a_row]).raw;
        PRNN_IN_REGISTER(broadcast);
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) into[m][v] += broadcast * value[v];
      }
    }
  };
  for (int64_t k = 0; k < depth; scale += panel * width) {
#pragma GCC unroll 2
    for (int u = 0; u < copies; u++)
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) sum[u][m][v] = Raw{};
    const int64_t end = is_scaled<W> ? min_of(depth, k + scale_group) : depth;
    for (; k + 1 < end; k += 2, b += 2 * panel * width) {
      prefetch_pair<W, panel * width>(b);
      step(sum[0], 0, a + k);
      step(sum[copies - 1], 1, a + k + 1);
    }
    if (k < end) step(sum[0], 0, a + k++);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        Vec<float> total(sum[0][m][v]);
        if (copies > 1) total = total + Vec<float>(sum[copies - 1][m][v]);
        if (is_scaled<W>) total = total * Vec<float>::load(scale + v * width);
        (Vec<float>::load(c + m * c_row + v * width) + total).store(c + m * c_row + v * width);
      }
  }
}

// Rows of a tile, and those of a tile as wide as a panel. 16 registers hold the sums of 3 rows by 4 vectors, or of 6 by 2: half a panel, so
// that more rows share a widened weight. The mask that widens bfloat16 takes one of them.
template <class W> constexpr int mask_registers = sizeof(W) == 2 && PRNN_VECTOR_REGISTERS < 32 ? 1 : 0;
template <class W> constexpr int narrow_rows = 6 - mask_registers<W>;
template <class W> constexpr int narrow_full_width_rows = PRNN_VECTOR_REGISTERS < 32 ? 3 - mask_registers<W> : 6;

// At most `narrow_rows` rows against one panel of NV vectors.
template <class W, int NV, int M = narrow_rows<W>>
inline void narrow_tile_of_rows(int64_t rows, const W* b, const float* scale, const float* a, int64_t a_row, int64_t depth, float* c,
                                int64_t c_row) {
  if constexpr (M > 1)
    if (rows < M) return narrow_tile_of_rows<W, NV, M - 1>(rows, b, scale, a, a_row, depth, c, c_row);
  if constexpr (M > narrow_full_width_rows<W> && NV > 2) {
    constexpr int half = 2 * Vec<float>::width;
    narrow_tile<W, M, 2, NV>(b, scale, a, a_row, depth, c, c_row);
    narrow_tile<W, M, NV - 2, NV>(b + half * sizeof(W), scale + half, a, a_row, depth, c + half, c_row);
  } else {
    narrow_tile<W, M, NV, NV>(b, scale, a, a_row, depth, c, c_row);
  }
}

// All rows against one panel of NV vectors; as multiply_panel.
template <class W, int NV>
inline void multiply_narrow_panel(const W* b, const float* scale, const float* a, int64_t a_row, int64_t depth, float* c, int64_t c_row,
                                  int64_t rows) {
  const int64_t num_tiles = divide_up(rows, narrow_rows<W>);
  const int64_t slice = num_tiles > 1 ? panel_depth : depth;  // see panel_depth; one tile reads a panel once
  for (int64_t k = 0; k < depth; k += slice) {
    const int64_t part = min_of(slice, depth - k);
    int64_t row = 0;
    for (int64_t t = 0; t < num_tiles; t++) {
      const int64_t count = divide_up(rows - row, num_tiles - t);
      narrow_tile_of_rows<W, NV>(count, b + k * NV * Vec<float>::width, scale + k / scale_group * NV * Vec<float>::width,
                                 a + row * a_row + k, a_row, part, c + row * c_row, c_row);
      row += count;
    }
  }
}

// C[rows, panels first..last) += A * B with B packed. Scales lie in panels like the weights: [groups][vectors][width]; of bfloat16 there
// are none, and none is read.
template <class W>
inline void multiply_narrow(const W* packed, const float* scale, int64_t columns, int64_t depth, int64_t first, int64_t last,
                            const float* a, int64_t a_row, float* c, int64_t c_row, int64_t rows) {
  constexpr int width = Vec<float>::width;
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t start = panel * panel_columns(width), vectors = divide_up(columns - start, width);
    const auto multiply = [&](auto function) {
      function(packed + start * packed_depth<W>(depth), scale + start * num_groups(depth), a, a_row, depth, c + start, c_row, rows);
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

// Packs panels [first, last) of B^T, where row j of `w` is column j of B, and of its scales [columns, groups].
template <class W>
inline void pack_narrow_rows(const W* w, const float* scale, int64_t columns, int64_t depth, int64_t first, int64_t last, W* packed,
                             float* packed_scale) {
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
  if (is_scaled<W>) pack_rows(scale, num_groups(depth), columns, num_groups(depth), first, last, packed_scale);
}

}  // namespace prnn::PRNN_ISA
