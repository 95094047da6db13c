// The portable vector layer: a vector of E with the operators and functions that emitted cells use.
//
// Built on the vector extensions of GCC and Clang, so one source serves SSE2, AVX2, AVX-512 and NEON. Everything lives in a
// namespace named after the instruction set: the library holds several builds of these templates, and the linker must not merge them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#if defined(__AVX512F__)
#define PRNN_ISA avx512
#define PRNN_ISA_NAME "x86-64-v4"
#define PRNN_VECTOR_BYTES 64
#define PRNN_VECTOR_REGISTERS 32
#elif defined(__AVX2__)
#define PRNN_ISA avx2
#define PRNN_ISA_NAME "x86-64-v3"
#define PRNN_VECTOR_BYTES 32
#define PRNN_VECTOR_REGISTERS 16
#else
#define PRNN_ISA baseline
#define PRNN_VECTOR_BYTES 16
#if defined(__aarch64__)
#define PRNN_ISA_NAME "neon"
#define PRNN_VECTOR_REGISTERS 32
#else
#define PRNN_ISA_NAME "x86-64"
#define PRNN_VECTOR_REGISTERS 16
#endif
#endif

#define PRNN_INLINE inline __attribute__((always_inline))
#define PRNN_CELL PRNN_INLINE

namespace prnn::PRNN_ISA {

template <class E> struct Traits;
template <> struct Traits<float> {
  using Bits = int32_t;
  static constexpr int mantissa_bits = 23, bias = 127;
  static constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
};
template <> struct Traits<double> {
  using Bits = int64_t;
  static constexpr int mantissa_bits = 52, bias = 1023;
  static constexpr double round_magic = 6755399441055744.0;
};

template <class E> struct Vec {
  using Bits = typename Traits<E>::Bits;
  typedef E Raw __attribute__((vector_size(PRNN_VECTOR_BYTES)));
  typedef Bits Mask __attribute__((vector_size(PRNN_VECTOR_BYTES)));
  typedef E Unaligned __attribute__((vector_size(PRNN_VECTOR_BYTES), aligned(sizeof(E)), may_alias));
  static constexpr int width = PRNN_VECTOR_BYTES / sizeof(E);

  Raw raw;

  Vec() = default;
  PRNN_INLINE Vec(Raw value) : raw(value) {}
  PRNN_INLINE explicit Vec(double value) : raw(broadcast(static_cast<E>(value), std::make_integer_sequence<int, width>{})) {}
  // Written lane by lane, since `Raw{} + value` is an addition to a compiler that minds -0.
  template <int... lane> static PRNN_INLINE Raw broadcast(E value, std::integer_sequence<int, lane...>) {
    return Raw{(static_cast<void>(lane), value)...};
  }
  static PRNN_INLINE Vec load(const E* from) { return Vec(Raw(*reinterpret_cast<const Unaligned*>(from))); }
  PRNN_INLINE void store(E* to) const { *reinterpret_cast<Unaligned*>(to) = raw; }
};

template <class E> PRNN_INLINE Vec<E> operator+(Vec<E> a, Vec<E> b) { return a.raw + b.raw; }
template <class E> PRNN_INLINE Vec<E> operator-(Vec<E> a, Vec<E> b) { return a.raw - b.raw; }
template <class E> PRNN_INLINE Vec<E> operator*(Vec<E> a, Vec<E> b) { return a.raw * b.raw; }
template <class E> PRNN_INLINE Vec<E> operator/(Vec<E> a, Vec<E> b) { return a.raw / b.raw; }
template <class E> PRNN_INLINE Vec<E> operator-(Vec<E> a) { return -a.raw; }

template <class E> PRNN_INLINE Vec<E> select(typename Vec<E>::Mask mask, Vec<E> yes, Vec<E> no) {
  return mask ? yes.raw : no.raw;
}
template <class E> PRNN_INLINE typename Vec<E>::Mask bits(Vec<E> a) { return (typename Vec<E>::Mask)a.raw; }
template <class E> PRNN_INLINE Vec<E> from_bits(typename Vec<E>::Mask a) { return Vec<E>((typename Vec<E>::Raw)a); }

template <class E> PRNN_INLINE typename Vec<E>::Mask sign_mask() {
  return typename Vec<E>::Mask{} + std::numeric_limits<typename Traits<E>::Bits>::min();
}
template <class E> PRNN_INLINE Vec<E> abs(Vec<E> a) { return from_bits<E>(bits(a) & ~sign_mask<E>()); }
template <class E> PRNN_INLINE Vec<E> copy_sign(Vec<E> size, Vec<E> sign) {
  return from_bits<E>(bits(abs(size)) | (bits(sign) & sign_mask<E>()));
}

// 1 where a > b, else 0.
template <class E> PRNN_INLINE Vec<E> greater(Vec<E> a, Vec<E> b) { return select<E>(a.raw > b.raw, Vec<E>(1.0), Vec<E>(0.0)); }
// NaN if either is NaN.
template <class E> PRNN_INLINE Vec<E> maximum(Vec<E> a, Vec<E> b) {
  return select<E>((a.raw > b.raw) | (a.raw != a.raw), a, b);
}
template <class E> PRNN_INLINE Vec<E> relu(Vec<E> a) { return select<E>(a.raw <= Vec<E>(0.0).raw, Vec<E>(0.0), a); }

template <class E, class F> PRNN_INLINE Vec<E> lane_by_lane(Vec<E> a, F function) {
  for (int lane = 0; lane < Vec<E>::width; lane++) a.raw[lane] = function(a.raw[lane]);
  return a;
}
template <class E> PRNN_INLINE Vec<E> log(Vec<E> a) { return lane_by_lane(a, [](E x) { return __builtin_log(x); }); }
template <class E> PRNN_INLINE Vec<E> sqrt(Vec<E> a) { return lane_by_lane(a, [](E x) { return E(__builtin_sqrt(x)); }); }

// Horner's rule, highest power first.
template <class E> PRNN_INLINE Vec<E> polynomial(Vec<E>, Vec<E> sum) { return sum; }
template <class E, class... Rest> PRNN_INLINE Vec<E> polynomial(Vec<E> x, Vec<E> sum, double next, Rest... rest) {
  return polynomial(x, sum * x + Vec<E>(next), rest...);
}

// exp(r) - 1 for |r| <= ln(2)/2. The expansions are those of Cephes (S. Moshier, netlib).
PRNN_INLINE Vec<float> expm1_reduced(Vec<float> r) {
  const Vec<float> p = polynomial(r, Vec<float>(1.9875691500e-4), 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                                  1.6666665459e-1, 5.0000001201e-1);
  return p * (r * r) + r;
}
PRNN_INLINE Vec<double> expm1_reduced(Vec<double> r) {
  const Vec<double> z = r * r;
  const Vec<double> p = r * polynomial(z, Vec<double>(1.26177193074810590878e-4), 3.02994407707441961300e-2,
                                       9.99999999999999999910e-1);
  const Vec<double> q = polynomial(z, Vec<double>(3.00198505138664455042e-6), 2.52448340349684104192e-3,
                                   2.27265548208155028766e-1, 2.00000000000000000005e0);
  return Vec<double>(2.0) * (p / (q - p));
}
PRNN_INLINE Vec<float> minus_n_ln2(Vec<float> x, Vec<float> n) {
  return x - n * Vec<float>(0.693359375) - n * Vec<float>(-2.12194440e-4);
}
PRNN_INLINE Vec<double> minus_n_ln2(Vec<double> x, Vec<double> n) {
  return x - n * Vec<double>(6.93145751953125e-1) - n * Vec<double>(1.42860682030941723212e-6);
}

template <class E> PRNN_INLINE Vec<E> power_of_two(typename Vec<E>::Mask n) {
  return from_bits<E>((n + Traits<E>::bias) << Traits<E>::mantissa_bits);
}

// x in parts: exp(x) = 2^n * (1 + tail).
template <class E> struct ExpParts {
  typename Vec<E>::Mask n;
  Vec<E> tail;
};
template <class E> PRNN_INLINE ExpParts<E> exp_parts(Vec<E> x) {
  const Vec<E> magic(double(Traits<E>::round_magic));
  const Vec<E> rounded = x * Vec<E>(1.44269504088896340736) + magic;
  return {bits(rounded) - bits(magic), expm1_reduced(minus_n_ln2(x, rounded - magic))};
}

template <class E> PRNN_INLINE Vec<E> at_most(Vec<E> limit, Vec<E> x) { return select<E>(x.raw > limit.raw, limit, x); }  // NaN stays
template <class E> PRNN_INLINE Vec<E> within(Vec<E> limit, Vec<E> x) {
  return at_most(limit, select<E>(x.raw < (-limit).raw, -limit, x));
}

template <class E> PRNN_INLINE Vec<E> exp(Vec<E> x) {
  // 2^n as a product of two: reaches overflow and zero where 2^n itself has no number.
  const ExpParts<E> e = exp_parts<E>(within(Vec<E>(sizeof(E) == 4 ? 89.1 : 722.6), x));
  const typename Vec<E>::Mask half = e.n >> 1;
  return (e.tail + Vec<E>(1.0)) * power_of_two<E>(half) * power_of_two<E>(e.n - half);
}

template <class E> PRNN_INLINE Vec<E> sigmoid(Vec<E> x) {
  // At the lower end 2^n is 0, as the result is to the nearest normal number; at the upper end 1 + exp(x) is a number still.
  const ExpParts<E> e = exp_parts<E>(within(Vec<E>(sizeof(E) == 4 ? 88.0 : 709.0), x));
  const Vec<E> scale = power_of_two<E>(e.n), size = e.tail * scale + scale;
  return size / (size + Vec<E>(1.0));
}

template <class E> PRNN_INLINE Vec<E> tanh(Vec<E> x) {
  const Vec<E> bounded = at_most(Vec<E>(sizeof(E) == 4 ? 20.0 : 40.0), abs(x));  // tanh is 1 from there on
  const ExpParts<E> e = exp_parts<E>(bounded + bounded);
  const Vec<E> scale = power_of_two<E>(e.n), expm1 = e.tail * scale + (scale - Vec<E>(1.0));  // keeps the digits of a small x
  return copy_sign(expm1 / (expm1 + Vec<E>(2.0)), x);
}

}  // namespace prnn::PRNN_ISA
