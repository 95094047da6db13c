// A product R h, for every type of its factors: which lane holds what, and in which order K is summed.
//
// The order in which an mma sums over K is free as long as R and h agree. So a lane reads 16 contiguous bytes of a row of R, as the
// parameter lies in memory, and 16 contiguous bytes of h: `units_per_block` units. The four lanes of a row (column) read a chunk of K
// together, which is two mma's: words 0 and 1 are the factors of the first, words 2 and 3 of the second.
//
//   factors     mma       lane l of a row reads   chunk
//   16 bits     m16n8k16  units 8*(l%4) .. +7     32 units
//   float       m16n8k8   units 4*(l%4) .. +3     16 units
//
// h lies in blocks of `units_per_block` units x 8 sequences, 128 bytes each, whatever the type.
//
// TF32 rounds both factors to 10 bits of mantissa. IEEE has no instruction: a factor is split into two such numbers, v = hi + lo, and a
// product is lo*hi + hi*lo + hi*hi (lo*lo is below the last bit). The mma cuts its sums where a float would be rounded, and cuts pile up
// over K, so each mma of hi*hi starts from zero and its result is added as a float. An infinite factor gives NaN.
#pragma once
#include "parts/ptx.cuh"

namespace prnn {
template <class Scalar> constexpr int units_per_word = 4 / sizeof(typename Scalar::Storage);
template <class Scalar> constexpr int units_per_block = 4 * units_per_word<Scalar>;
template <class Scalar> constexpr int units_per_chunk = 4 * units_per_block<Scalar>;

struct SplitFloat { ptx::u32 hi, lo; };
PTX_FN SplitFloat split(ptx::u32 bits) {
  const ptx::u32 hi = (bits + 0x1000) & ~0x1fffu;  // to nearest; of NaN it makes a number, and lo keeps the NaN
  return {hi, ptx::bits_of(ptx::float_of(bits) - ptx::float_of(hi))};
}

// A lane's part of 16 rows of R (lane/4 and lane/4 + 8) over one chunk of K.
template <class Scalar> struct Weights {
  ptx::u32 factors[2][4];  // [mma][register]

  // What the lane has read of row lane/4 + 8*half.
  PTX_FN void set(int half, const ptx::Word4& words) {
    PTX_UNROLL for (int i = 0; i < 4; i++) factors[i / 2][half + i % 2 * 2] = words.w[i];
  }
  // Adds the rows times h, of which the lane has read `words` of column lane/4, to one sum or to two, one for each mma.
  template <int count> PTX_FN void multiply(float (&sums)[count][4], const ptx::Word4& words) const {
    PTX_UNROLL for (int i = 0; i < 2; i++) ptx::mma_m16n8k16(sums[i % count], factors[i], words.w[2 * i], words.w[2 * i + 1], Scalar{});
  }
};

template <> struct Weights<ptx::Tf32> {
  ptx::u32 factors[2][4];

  PTX_FN void set(int half, const ptx::Word4& words) {
    PTX_UNROLL for (int i = 0; i < 4; i++) factors[i / 2][half + i % 2 * 2] = ptx::round_tf32(ptx::float_of(words.w[i]));
  }
  template <int count> PTX_FN void multiply(float (&sums)[count][4], const ptx::Word4& words) const {
    PTX_UNROLL for (int i = 0; i < 2; i++) ptx::mma_m16n8k8(sums[i % count], factors[i], words.w[2 * i], words.w[2 * i + 1]);
  }
};

template <> struct Weights<ptx::Ieee> {
  ptx::u32 hi[2][4], lo[2][4];

  PTX_FN void set(int half, const ptx::Word4& words) {
    PTX_UNROLL for (int i = 0; i < 4; i++) {
      const SplitFloat v = split(words.w[i]);
      hi[i / 2][half + i % 2 * 2] = v.hi, lo[i / 2][half + i % 2 * 2] = v.lo;
    }
  }
  template <int count> PTX_FN void multiply(float (&sums)[count][4], const ptx::Word4& words) const {
    float z[2][4] = {};
    SplitFloat h[4];
    PTX_UNROLL for (int i = 0; i < 4; i++) h[i] = split(words.w[i]);
    PTX_UNROLL for (int i = 0; i < 2; i++) ptx::mma_m16n8k8(z[i], lo[i], h[2 * i].hi, h[2 * i + 1].hi);
    PTX_UNROLL for (int i = 0; i < 2; i++) ptx::mma_m16n8k8(z[i], hi[i], h[2 * i].lo, h[2 * i + 1].lo);
    PTX_UNROLL for (int i = 0; i < 2; i++) ptx::mma_m16n8k8(z[i], hi[i], h[2 * i].hi, h[2 * i + 1].hi);
    PTX_UNROLL for (int i = 0; i < 8; i++) sums[i / 4 % count][i % 4] += z[i / 4][i % 4];
  }
};

// A word of h as the products take it; only 16-bit types have a second unit in it.
template <class Scalar> PTX_FN ptx::u32 factor_of(float unit, float next, Scalar tag) { return ptx::pack(unit, next, tag); }
PTX_FN ptx::u32 factor_of(float unit, float, ptx::Tf32) { return ptx::round_tf32(unit); }
PTX_FN ptx::u32 factor_of(float unit, float, ptx::Ieee) { return ptx::bits_of(unit); }

// Two neighbouring units of one sequence, as they are stored. The warp makes them of 8 units x 8 sequences, of which a lane brings unit
// lane/4, sequences lane%4*2 and +1: a product's sums.
template <class Scalar, class Storage = typename Scalar::Storage> struct Pair {
  ptx::u32 words[1];

  PTX_FN Storage number(int i) const { return static_cast<Storage>(words[0] >> 16 * i); }
  static PTX_FN int unit(int lane) { return lane % 4 * 2; }
  static PTX_FN int sequence(int lane) { return lane / 4; }
  static PTX_FN Pair of(float unit, float next) { return {{ptx::pack(unit, next, Scalar{})}}; }
  static PTX_FN Pair of(const float (&v)[2], int) { return {{ptx::transpose_8x8(ptx::pack(v[0], v[1], Scalar{}))}}; }
  PTX_FN Pair factors() const { return *this; }
};

template <class Scalar> struct alignas(8) Pair<Scalar, ptx::u32> {
  ptx::u32 words[2];

  PTX_FN ptx::u32 number(int i) const { return words[i]; }
  static PTX_FN int unit(int lane) { return lane / 8 * 2; }
  static PTX_FN int sequence(int lane) { return lane % 4 * 2 + lane / 4 % 2; }
  static PTX_FN Pair of(float unit, float next) { return {{ptx::bits_of(unit), ptx::bits_of(next)}}; }
  static PTX_FN Pair of(const float (&v)[2], int lane) {
    const bool odd = lane / 4 % 2;  // an odd unit's lane keeps its second sequence and gets its neighbour's
    const float other = ptx::shuffle_xor(odd ? v[0] : v[1], 4);
    return {{ptx::bits_of(odd ? other : v[0]), ptx::bits_of(odd ? v[1] : other)}};
  }
  PTX_FN Pair factors() const {
    return {{factor_of(ptx::float_of(words[0]), 0.0f, Scalar{}), factor_of(ptx::float_of(words[1]), 0.0f, Scalar{})}};
  }
};
}  // namespace prnn
