// Matrix products: C += A * B with B packed into panels of four vectors of columns, or C += A * W^T with W read where it lies.
//
// All packed products meet in one kernel, `tile`: a few rows of A against one panel, sums in registers.
#pragma once

#include "simd.h"

namespace prnn::PRNN_ISA {

constexpr int panel_vectors = 4;
// Rows of a tile: as many as fill the registers with sums (3 rows by 4 vectors of 16 registers), the panel's values and what meets them.
constexpr int tile_rows = PRNN_VECTOR_REGISTERS >= 32 ? 6 : 3;
// A panel's slice of this depth (8 KB with vectors of 32 bytes) stays in the first-level cache while all rows of A pass over it.
constexpr int64_t panel_depth = 64;
// How far ahead a panel is fetched, in bytes, by the rows of a tile (docs/measured.md).
constexpr int64_t prefetch_bytes(int rows) { return rows == 1 ? 1024 : 4096; }

#if defined(__x86_64__)
#define PRNN_IN_REGISTER(v) asm("" : "+x"(v))
#else
#define PRNN_IN_REGISTER(v) asm("" : "+w"(v))
#endif

constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// C[m][v] += sum_k A[m][k] * B[k][v] for M rows and the NV vectors of a panel. Element (m, k) of A is a[m * a_row + k * a_k].
template <class E, int M, int NV>
inline void tile(const E* b, const E* a, int64_t a_row, int64_t a_k, int64_t depth, E* c, int64_t c_row) {
  using Raw = typename Vec<E>::Raw;
  constexpr int width = Vec<E>::width;
  constexpr int copies = M * NV <= 4 ? 2 : 1;  // enough independent sums to hide the latency of an FMA
  constexpr int64_t b_k = NV * width;
  Raw sum[copies][M][NV] = {};
  const auto step = [&](Raw(&into)[M][NV], const E* b_here, const E* a_here) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; v += 64 / PRNN_VECTOR_BYTES) __builtin_prefetch(reinterpret_cast<const char*>(b_here + v * width) + prefetch_bytes(M));
    if constexpr (M < NV) {  // keep the fewer values in registers
      Raw broadcast[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) broadcast[m] = Vec<E>(a_here[m * a_row]).raw;
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        Raw value = *reinterpret_cast<const Raw*>(b_here + v * width);
        if (M > 1) PRNN_IN_REGISTER(value);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) into[m][v] += broadcast[m] * value;
      }
    } else {
      Raw value[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; v++) {
        value[v] = *reinterpret_cast<const Raw*>(b_here + v * width);
        PRNN_IN_REGISTER(value[v]);
      }
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        const Raw broadcast = Vec<E>(a_here[m * a_row]).raw;
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) into[m][v] += broadcast * value[v];
      }
    }
  };
  int64_t k = 0;
  for (; k + copies <= depth; k += copies)
#pragma GCC unroll 2
    for (int u = 0; u < copies; u++) step(sum[u], b + (k + u) * b_k, a + (k + u) * a_k);
  if (copies > 1 && k < depth) step(sum[0], b + k * b_k, a + k * a_k);
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int v = 0; v < NV; v++) {
      Raw total = sum[0][m][v];
      if (copies > 1) total += sum[copies - 1][m][v];
      // C last: a sum over a deep matrix is one of partial sums, whose rounding errors stay small.
      (Vec<E>::load(c + m * c_row + v * width) + Vec<E>(total)).store(c + m * c_row + v * width);
    }
}

template <class E, int NV, int M = tile_rows>
inline void tile_of_rows(int64_t rows, const E* b, const E* a, int64_t a_row, int64_t a_k, int64_t depth, E* c, int64_t c_row) {
  if constexpr (M > 1)
    if (rows < M) return tile_of_rows<E, NV, M - 1>(rows, b, a, a_row, a_k, depth, c, c_row);
  tile<E, M, NV>(b, a, a_row, a_k, depth, c, c_row);
}

// All rows against one panel of NV vectors.
template <class E, int NV>
inline void multiply_panel(const E* b, const E* a, int64_t a_row, int64_t a_k, int64_t depth, E* c, int64_t c_row, int64_t rows) {
  const int64_t num_tiles = divide_up(rows, tile_rows);
  for (int64_t k = 0; k < depth; k += panel_depth) {
    const int64_t part = min_of(panel_depth, depth - k);
    int64_t row = 0;
    for (int64_t t = 0; t < num_tiles; t++) {  // 4 rows are 2 + 2, not 3 + 1
      const int64_t count = (rows - row) / (num_tiles - t) + ((rows - row) % (num_tiles - t) != 0);
      tile_of_rows<E, NV>(count, b + k * NV * Vec<E>::width, a + row * a_row + k * a_k, a_row, a_k, part, c + row * c_row, c_row);
      row += count;
    }
  }
}

// The same with the number of vectors known at run time (the last panel of a matrix may be narrower).
template <class E>
inline void multiply_panel(int64_t num_vectors, const E* b, const E* a, int64_t a_row, int64_t a_k, int64_t depth, E* c, int64_t c_row,
                           int64_t rows) {
  if (num_vectors == 4) return multiply_panel<E, 4>(b, a, a_row, a_k, depth, c, c_row, rows);
  if (num_vectors == 3) return multiply_panel<E, 3>(b, a, a_row, a_k, depth, c, c_row, rows);
  if (num_vectors == 2) return multiply_panel<E, 2>(b, a, a_row, a_k, depth, c, c_row, rows);
  return multiply_panel<E, 1>(b, a, a_row, a_k, depth, c, c_row, rows);
}

// At most `tile_rows` rows against one panel, over its whole depth.
template <class E>
inline void multiply_tile(int64_t num_vectors, int64_t rows, const E* b, const E* a, int64_t a_row, int64_t a_k, int64_t depth, E* c,
                          int64_t c_row) {
  if (num_vectors == 4) return tile_of_rows<E, 4>(rows, b, a, a_row, a_k, depth, c, c_row);
  if (num_vectors == 3) return tile_of_rows<E, 3>(rows, b, a, a_row, a_k, depth, c, c_row);
  if (num_vectors == 2) return tile_of_rows<E, 2>(rows, b, a, a_row, a_k, depth, c, c_row);
  return tile_of_rows<E, 1>(rows, b, a, a_row, a_k, depth, c, c_row);
}

// Panels: `columns` columns in panels of four vectors (the last may be narrower), each panel [depth][vectors][width], zero beyond the
// last column. The size of a whole matrix is depth * round_up(columns, width).
constexpr int64_t panel_columns(int64_t width) { return panel_vectors * width; }

template <class E, int... i>
PRNN_INLINE void interleave(typename Vec<E>::Raw a, typename Vec<E>::Raw b, typename Vec<E>::Raw* low, typename Vec<E>::Raw* high,
                            std::integer_sequence<int, i...>) {
  constexpr int width = Vec<E>::width;
  *low = __builtin_shufflevector(a, b, (i / 2 + i % 2 * width)...);
  *high = __builtin_shufflevector(a, b, (width / 2 + i / 2 + i % 2 * width)...);
}

// Transposes `width` vectors in place: log2(width) rounds that interleave vector i with vector i + width / 2.
template <class E> PRNN_INLINE void transpose(typename Vec<E>::Raw* v) {
  constexpr int width = Vec<E>::width;
#pragma GCC unroll 4
  for (int round = 1; round < width; round *= 2) {
    typename Vec<E>::Raw next[width];
#pragma GCC unroll 8
    for (int i = 0; i < width / 2; i++)
      interleave<E>(v[i], v[i + width / 2], &next[2 * i], &next[2 * i + 1], std::make_integer_sequence<int, width>{});
#pragma GCC unroll 16
    for (int i = 0; i < width; i++) v[i] = next[i];
  }
}

template <class E> PRNN_INLINE typename Vec<E>::Raw load_first(const E* from, int64_t count) {
  typename Vec<E>::Raw value{};
  for (int64_t i = 0; i < count; i++) value[i] = from[i];
  return value;
}

// to[i, lane] = w[lane, i] for i < count, zero for the lanes from `lanes` on.
template <class E>
PRNN_INLINE void pack_square(const E* w, int64_t w_row, int64_t lanes, int64_t count, E* to, int64_t to_row) {
  constexpr int width = Vec<E>::width;
  typename Vec<E>::Raw square[width];
  for (int64_t lane = 0; lane < width; lane++) {
    __builtin_prefetch(w + (lane + width) * w_row);  // the rows that come next; short streams start the hardware's own fetching late
    if (lane < lanes && count == width) {
      square[lane] = Vec<E>::load(w + lane * w_row).raw;
    } else {
      square[lane] = load_first(w + lane * w_row, lane < lanes ? count : 0);
    }
  }
  transpose<E>(square);
  for (int64_t i = 0; i < count; i++) Vec<E>(square[i]).store(to + i * to_row);
}

// Packs panels [first, last) of B^T, where row j of `w` is column j of B: element (k, j) is w[j * w_row + k].
template <class E>
inline void pack_rows(const E* w, int64_t w_row, int64_t columns, int64_t depth, int64_t first, int64_t last, E* packed) {
  constexpr int width = Vec<E>::width;
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t start = panel * panel_columns(width), vectors = min_of(panel_vectors, divide_up(columns - start, width));
    E* to = packed + start * depth;
    for (int64_t v = 0; v < vectors; v++)  // as few rows at a time as can be: the hardware fetches only so many streams ahead
      for (int64_t k = 0; k < depth; k += width)
        pack_square(w + (start + v * width) * w_row + k, w_row, min_of(width, columns - start - v * width), min_of(width, depth - k),
                    to + (k * vectors + v) * width, vectors * width);
  }
}

// Packs rows [0, depth) of one panel of B, whose element (k, j) is b[k * b_row + j].
template <class E>
inline void pack_panel(const E* b, int64_t b_row, int64_t columns, int64_t depth, int64_t panel, E* to) {
  constexpr int width = Vec<E>::width;
  const int64_t start = panel * panel_columns(width), vectors = min_of(panel_vectors, divide_up(columns - start, width));
  const int64_t present = min_of(vectors * width, columns - start);
  for (int64_t k = 0; k < depth; k++, to += vectors * width) {
    for (int64_t j = 0; j < present; j++) to[j] = b[k * b_row + start + j];
    for (int64_t j = present; j < vectors * width; j++) to[j] = 0;
  }
}

// C[rows, panels first..last) += A * B with B packed.
template <class E>
inline void multiply_packed(const E* packed, int64_t columns, int64_t depth, int64_t first, int64_t last, const E* a, int64_t a_row,
                            E* c, int64_t c_row, int64_t rows) {
  constexpr int width = Vec<E>::width;
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t start = panel * panel_columns(width);
    multiply_panel(min_of(panel_vectors, divide_up(columns - start, width)), packed + start * depth, a, a_row, 1, depth, c + start,
                   c_row, rows);
  }
}

// Adds neighbouring blocks of `block` lanes, those of a before those of b, within every `scope` lanes.
template <class E, int block, int scope, int... i>
PRNN_INLINE typename Vec<E>::Raw add_neighbours(typename Vec<E>::Raw a, typename Vec<E>::Raw b, std::integer_sequence<int, i...>) {
  constexpr int width = Vec<E>::width;
  const auto source = [](int lane, int odd) constexpr {
    const int first = lane / scope * scope, half = lane % scope / (scope / 2), within = lane % (scope / 2);
    return half * width + first + (2 * (within / block) + odd) * block + within % block;
  };
  return __builtin_shufflevector(a, b, source(i, 0)...) + __builtin_shufflevector(a, b, source(i, 1)...);
}

template <class E, int block, int scope, int count> PRNN_INLINE void add_all_neighbours(typename Vec<E>::Raw* v) {
#pragma GCC unroll 8
  for (int i = 0; i < count / 2; i++)
    v[i] = add_neighbours<E, block, scope>(v[2 * i], v[2 * i + 1], std::make_integer_sequence<int, Vec<E>::width>{});
}

// The horizontal sums of `width` vectors, as one vector, in two steps. Within blocks of 16 bytes, which shuffle fast: as many vectors as
// a block has lanes become one. Then across the blocks of what is left.
template <class E> constexpr int block_lanes = 16 / sizeof(E);
template <class E, int count> PRNN_INLINE void sum_within_blocks(typename Vec<E>::Raw* v) {
  add_all_neighbours<E, 1, block_lanes<E>, count>(v);
  if constexpr (block_lanes<E> == 4) add_all_neighbours<E, 1, block_lanes<E>, count / 2>(v);
}
template <class E> PRNN_INLINE typename Vec<E>::Raw sum_across_blocks(typename Vec<E>::Raw* v) {
  constexpr int width = Vec<E>::width, block = block_lanes<E>;
  if constexpr (width >= 2 * block) add_all_neighbours<E, block, width, width / block>(v);
  if constexpr (width >= 4 * block) add_all_neighbours<E, block, width, width / block / 2>(v);
  return v[0];
}

// How far ahead rows of W are fetched, in bytes: nearer, they come late from L3 and from memory.
constexpr int64_t row_prefetch_bytes = 4096;
constexpr int dot_tile_rows = 3;

// c[m][0..width) += a[m] . W[lane, :] for M rows of A and `lanes` rows of W, read where they lie. `whole`: lanes is the width.
template <class E, int M, bool whole>
inline void dot_tile(const E* w, int64_t w_row, int64_t lanes, const E* a, int64_t a_row, int64_t depth, E* c, int64_t c_row) {
  using Raw = typename Vec<E>::Raw;
  constexpr int width = Vec<E>::width, block = block_lanes<E>, line_vectors = 64 / PRNN_VECTOR_BYTES;
  constexpr int at_once = M == 1 ? 8 : 4, N = width < at_once ? width : at_once;  // rows of W whose sums fit in registers
  Raw sum[M][width / block];
  const char* ahead = reinterpret_cast<const char*>(w) + row_prefetch_bytes;  // in the order of memory, whatever the order of reading
#pragma GCC unroll 4
  for (int first = 0; first < width; first += N) {
    const E* row[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) row[n] = w + (whole ? first + n : min_of(first + n, lanes - 1)) * w_row;
    Raw part[M][N] = {};
    int64_t k = 0;
    for (; k + width <= depth; k += width) {
      Raw value[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) value[m] = Vec<E>::load(a + m * a_row + k).raw;
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        if (n % line_vectors == 0) __builtin_prefetch(ahead + n / line_vectors * 64);
        Raw weight = Vec<E>::load(row[n] + k).raw;
        if (M > 1) PRNN_IN_REGISTER(weight);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) part[m][n] += weight * value[m];
      }
      ahead += N * PRNN_VECTOR_BYTES;
    }
    if (k < depth) {
      Raw value[M];
      for (int m = 0; m < M; m++) value[m] = load_first(a + m * a_row + k, depth - k);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        const Raw weight = load_first(row[n] + k, depth - k);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) part[m][n] += weight * value[m];
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      sum_within_blocks<E, N>(part[m]);
#pragma GCC unroll 8
      for (int i = 0; i < N / block; i++) sum[m][first / block + i] = part[m][i];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++) {
    Raw total = sum_across_blocks<E>(sum[m]);
    if constexpr (!whole)
      for (int64_t lane = lanes; lane < width; lane++) total[lane] = 0;
    (Vec<E>::load(c + m * c_row) + Vec<E>(total)).store(c + m * c_row);
  }
}

// All rows of A against `width` rows of W, which stay in the first-level cache.
template <class E, bool whole>
inline void dot_rows(const E* w, int64_t w_row, int64_t lanes, const E* a, int64_t a_row, int64_t depth, E* c, int64_t c_row, int64_t rows) {
  for (; rows > 0;) {
    const int64_t count = divide_up(rows, divide_up(rows, dot_tile_rows));  // 4 rows are 2 + 2, not 3 + 1
    (count == 3 ? dot_tile<E, 3, whole> : count == 2 ? dot_tile<E, 2, whole> : dot_tile<E, 1, whole>)(w, w_row, lanes, a, a_row, depth, c, c_row);
    a += count * a_row, c += count * c_row, rows -= count;
  }
}

// C[rows, columns [begin, end)) += A * W^T with W read where it lies; a column is a row of W, beyond `columns` there are none.
template <class E>
inline void multiply_in_place(const E* w, int64_t columns, int64_t depth, int64_t begin, int64_t end, const E* a, int64_t a_row, E* c,
                              int64_t c_row, int64_t rows) {
  constexpr int width = Vec<E>::width;
  int64_t column = begin;
  for (; column + width <= min_of(end, columns); column += width)
    dot_rows<E, true>(w + column * depth, depth, width, a, a_row, depth, c + column, c_row, rows);
  if (column < end) dot_rows<E, false>(w + column * depth, depth, columns - column, a, a_row, depth, c + column, c_row, rows);
}

}  // namespace prnn::PRNN_ISA
