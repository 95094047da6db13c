// Measures the machine's limits, for the floors of results: time to read memory, rate of multiply-adds. Each function returns 0, 1 when
// memory ran out, or 2 when another call had the threads all the time.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine_isa.h"
#include "pool.h"

namespace prnn {
namespace {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr double never = 1e30;

// Seconds that one pass of `work` takes at its best; many passes a round, so that handing work to threads does not count. `never` if
// another call kept the threads from it.
template <class Work> double best_seconds(int threads, double seconds, Work& work) {
  const double begin = seconds_now();
  double best = never;
  for (int rounds = 0; rounds < 3 || seconds_now() - begin < seconds; rounds++) {
    const double start = seconds_now();
    run_parallel(threads, [](void* w, int thread, int n) { static_cast<Work*>(w)->run(thread, n); }, &work);
    const double elapsed = seconds_now() - start;
    if (work.num_threads == threads) best = std::min(best, elapsed / work.passes);
    if (elapsed < 2e-3) work.passes *= 2;
  }
  return best;
}

struct Reading {
  const Engine& engine;
  const float* memory;
  int64_t slice;  // elements of each thread
  int64_t passes = 1;
  int num_threads = 0;

  void run(int thread, int n) {
    if (thread == 0) num_threads = n;
    volatile float sink;
    for (int64_t pass = 0; pass < passes; pass++) sink = engine.read(memory + thread * slice, slice);
    static_cast<void>(sink);
  }
};

struct Arithmetic {
  const Engine& engine;
  int64_t flops = 0;  // of one thread in one pass
  int64_t passes = 1;
  int num_threads = 0;

  void run(int thread, int n) {
    float values[2] = {0.5f, 1.0f};
    const int64_t done = engine.multiply_add(1000 * passes, values) / passes;
    if (thread == 0) num_threads = n, flops = done;
    volatile float sink = values[0];
    static_cast<void>(sink);
  }
};

}  // namespace
}  // namespace prnn

#define PRNN_EXPORT extern "C" __attribute__((visibility("default")))

// Microseconds to read `bytes` again and again, an equal slice on each thread: from whichever caches keep them.
PRNN_EXPORT int prnn_read_us(const void* engine, int64_t bytes, int threads, double seconds, double* microseconds) {
  const int64_t grain = 128;  // elements; what Engine::read asks for
  const int64_t slice = (bytes / int64_t(sizeof(float)) + threads * grain - 1) / (threads * grain) * grain;
  const int64_t huge = 2 << 20, whole = (slice * threads * int64_t(sizeof(float)) + huge - 1) / huge * huge;
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(huge, whole), std::free);
  if (!memory) return 1;
#ifdef MADV_HUGEPAGE
  madvise(memory.get(), whole, MADV_HUGEPAGE);
#endif
  std::memset(memory.get(), 0, whole);
  prnn::Reading reading{*static_cast<const prnn::Engine*>(engine), static_cast<const float*>(memory.get()), slice};
  const double pass_seconds = prnn::best_seconds(threads, seconds, reading);
  *microseconds = pass_seconds * 1e6;
  return pass_seconds < prnn::never ? 0 : 2;
}

// Billions of float32 operations a second, all threads together.
PRNN_EXPORT int prnn_gflops(const void* engine, int threads, double seconds, double* gflops) {
  prnn::Arithmetic arithmetic{*static_cast<const prnn::Engine*>(engine)};
  const double pass_seconds = prnn::best_seconds(threads, seconds, arithmetic);
  *gflops = threads * arithmetic.flops / pass_seconds * 1e-9;
  return pass_seconds < prnn::never ? 0 : 2;
}
