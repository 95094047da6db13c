// Our own threads: never torch's, OpenMP's or MKL's, so that a forked child can compute.
#pragma once

namespace prnn {

// Calls work(context, thread, num_threads) on `num_threads` threads at once, the calling one included, and returns when all are done.
// num_threads may come out smaller than asked: when another Python thread is using the pool the caller works alone.
void run_parallel(int num_threads, void (*work)(void* context, int thread, int num_threads), void* context);

// Where all threads of a parallel call meet. Spins, then yields: a thread may have lost its core.
struct alignas(64) Barrier {
  int arrived = 0;
  alignas(64) int phase = 0;

  void wait(int num_threads);
};

// Scratch memory of the calling thread, kept for its next call; at least `bytes`, aligned to a cache line.
void* scratch(unsigned long bytes);

}  // namespace prnn
