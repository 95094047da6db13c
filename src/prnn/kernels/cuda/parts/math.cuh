// The functions that a cell's printed text calls, for V = float and V = double.
#pragma once
#include "parts/ptx.cuh"

#define PRNN_CELL PTX_FN

namespace prnn {
template <int k> struct Stage {};  // picks an overload of a cell's functions

PTX_FN int least(int a, int b) { return a < b ? a : b; }
PTX_FN float not_a_number() { return ptx::float_of(0x7fffffffu); }

PTX_FN float exp(float x) { return ptx::exp(x); }
PTX_FN float log(float x) { return ptx::log(x); }
PTX_FN float sqrt(float x) { return ptx::sqrt(x); }

// Not 0.5 * tanh.approx + 0.5, which errs by 2^-12: a forget gate near 1 would drift over thousands of steps. An overflow of the
// power gives exactly 0.
PTX_FN float sigmoid(float x) { return ptx::reciprocal_fast(1.0f + ptx::exp2_fast(-1.4426950408889634f * x)); }

#if PRNN_IS_EXACT
// (1 - e) / (1 + e) with e = exp(-2|x|) loses its relative accuracy near 0, where four terms of the series are good to 6e-8.
PTX_FN float tanh(float x) {
  const float magnitude = x < 0 ? -x : x, square = x * x;
  const float e = ptx::exp2_fast(-2.8853900817779268f * magnitude);
  const float far = (1.0f - e) * ptx::reciprocal_fast(1.0f + e);
  const float near = x * (1.0f + square * (-0.33333333f + square * (0.13333333f + square * -0.053968254f)));
  return magnitude < 0.2f ? near : x < 0 ? -far : far;
}
#else  // the products' factors are rounded to 11 bits or fewer, so 2e-7 of 1, not of the result, is enough
PTX_FN float tanh(float x) { return 1.0f - 2.0f * ptx::reciprocal_fast(1.0f + ptx::exp2_fast(2.8853900817779268f * x)); }
#endif

// In double the library's own: nothing here waits for them.
PTX_FN double exp(double x) { return ptx::exp(x); }
PTX_FN double log(double x) { return ptx::log(x); }
PTX_FN double sqrt(double x) { return ptx::sqrt(x); }
PTX_FN double sigmoid(double x) { return 1.0 / (1.0 + ptx::exp(-x)); }
PTX_FN double tanh(double x) { return ptx::tanh(x); }

template <class V> PTX_FN V relu(V x) { return x <= V(0) ? V(0) : x; }  // keeps NaN
template <class V> PTX_FN V maximum(V a, V b) { return a > b || a != a ? a : b; }
template <class V> PTX_FN V greater(V a, V b) { return a > b ? V(1) : V(0); }
}  // namespace prnn
