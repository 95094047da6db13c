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

// Good to 2e-7 of 1, not of the result: near 0 a product of 16-bit numbers is known no better.
PTX_FN float tanh(float x) { return 1.0f - 2.0f * ptx::reciprocal_fast(1.0f + ptx::exp2_fast(2.8853900817779268f * x)); }

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
