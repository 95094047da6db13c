// What no kernel can beat: loads that do nothing but add, and multiply-adds that load nothing.
#pragma once

#include <cstdint>

#include "simd.h"

namespace prnn::PRNN_ISA {

inline float read_all(const float* memory, int64_t count) {
  constexpr int chains = 8;  // an addition takes up to four cycles and two can start in each
  Vec<float> sums[chains];
  for (Vec<float>& sum : sums) sum = Vec<float>(0.0);
  for (int64_t i = 0; i < count; i += chains * Vec<float>::width)
#pragma GCC unroll 8
    for (int chain = 0; chain < chains; chain++) sums[chain] = sums[chain] + Vec<float>::load(memory + i + chain * Vec<float>::width);
  for (int chain = 1; chain < chains; chain++) sums[0] = sums[0] + sums[chain];
  float total = 0;
  for (int lane = 0; lane < Vec<float>::width; lane++) total += sums[0].raw[lane];
  return total;
}

inline int64_t multiply_add(int64_t rounds, float* result) {
  constexpr int chains = 12;  // a multiply-add takes up to five cycles and two can start in each; 14 values fit 16 registers
  Vec<float> sums[chains];
  for (int chain = 0; chain < chains; chain++) sums[chain] = Vec<float>{double(chain)};
  const Vec<float> factor{double(result[0])}, term{double(result[1])};
  for (int64_t i = 0; i < rounds; i++)
#pragma GCC unroll 12
    for (int chain = 0; chain < chains; chain++) sums[chain] = sums[chain] * factor + term;
  for (int chain = 1; chain < chains; chain++) sums[0] = sums[0] + sums[chain];
  result[0] = sums[0].raw[0];
  return rounds * chains * Vec<float>::width * 2;
}

}  // namespace prnn::PRNN_ISA
