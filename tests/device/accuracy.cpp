// How far sigmoid, tanh and exp of kernels/cpu/simd.h are from the truth; prints one line for each: name, dtype, worst error.
//
// float: every number whose size is in [2^-16, 2^7], both signs, infinities and NaN, in units in the last place of the true result,
// against the double functions. double: random arguments against long double, relative.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simd.h"

using namespace prnn::PRNN_ISA;

template <class F> double worst_of_floats(F function) {
  constexpr int width = Vec<float>::width;
  double worst = 0;
  const auto check = [&](uint32_t first) {
    float x[width], y[width];
    double wide[width], truth[width];
    for (int i = 0; i < width; i++) {
      const uint32_t bits = first + i;
      std::memcpy(x + i, &bits, sizeof(float));
      wide[i] = x[i];
    }
    function(Vec<float>::load(x)).store(y);
    for (int i = 0; i < width; i += Vec<double>::width) function(Vec<double>::load(wide + i)).store(truth + i);
    for (int i = 0; i < width; i++) {
      if (x[i] != x[i]) {
        if (y[i] == y[i]) worst = 1e30;  // NaN must stay
        continue;
      }
      constexpr double smallest = 0x1p-126;  // results below the normal numbers may be flushed to zero
      if (y[i] == static_cast<float>(truth[i]) || (truth[i] < smallest && y[i] <= smallest && x[i] < -80)) continue;
      int exponent;
      std::frexp(truth[i], &exponent);
      const double error = std::abs(y[i] - truth[i]) / std::ldexp(1.0, exponent - 24);
      if (!(error <= worst)) worst = error;
    }
  };
  const auto range = [&](float low, float high) {
    uint32_t first, last;
    std::memcpy(&first, &low, sizeof first);
    std::memcpy(&last, &high, sizeof last);
    for (uint32_t bits = first; bits < last; bits += width) check(bits), check(bits | 0x80000000u);
  };
  range(0x1p-16f, 0x1p7f);
  for (const uint32_t special : {0u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u}) check(special);
  return worst;
}

template <class F, class G> double worst_of_doubles(F function, G truth, double limit) {
  constexpr int width = Vec<double>::width;
  double worst = 0;
  std::srand(1);
  for (int n = 0; n < 500000; n++) {
    double x[width], y[width];
    for (double& each : x) each = limit * (2.0 * std::rand() / RAND_MAX - 1) * (n % 3 ? 1 : 1e-3);
    function(Vec<double>::load(x)).store(y);
    for (int i = 0; i < width; i++) {
      const long double expected = truth(static_cast<long double>(x[i]));
      const double error = static_cast<double>(std::abs((y[i] - expected) / expected));
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

int main() {
  const auto report = [](const char* name, const char* dtype, double worst) { std::printf("%s %s %.3g\n", name, dtype, worst); };
  const auto s = [](auto x) { return sigmoid(x); };
  const auto t = [](auto x) { return tanh(x); };
  const auto e = [](auto x) { return exp(x); };
  report("sigmoid", "float32", worst_of_floats(s));
  report("tanh", "float32", worst_of_floats(t));
  report("exp", "float32", worst_of_floats(e));
  report("sigmoid", "float64", worst_of_doubles(s, [](long double x) { return 1 / (1 + std::exp(-x)); }, 50));
  report("tanh", "float64", worst_of_doubles(t, [](long double x) { return std::tanh(x); }, 20));
  report("exp", "float64", worst_of_doubles(e, [](long double x) { return std::exp(x); }, 700));
}
