// A small CPU emulator of a CUDA grid, for testing kernels that wait for one another. Every CUDA thread is a fiber; all fibers
// share one OS thread and a scheduler whose whole order follows from a seed. ptx.cuh calls the functions below.
//
// Stores to other CTAs do not land at once: they stay in flight and land later, in random order, as the hardware allows. If nothing
// can run and nothing is in flight, launch() throws a Fault that says who waits for what.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

namespace ptx { struct Mbarrier; }

namespace simt {
using Where = std::source_location;
using Words = std::array<uint32_t, 8>;  // what one lane brings to a warp collective

struct Fault : std::runtime_error { using runtime_error::runtime_error; };

struct Launch {
  int num_ctas, num_threads;  // threads a CTA: a multiple of 32
  int cluster_size = 1;
  size_t shared_bytes = 0;    // a CTA; filled with 0xff (NaN) at the start
  uint64_t seed = 0;
  bool waits_expire = false;        // where nothing can run any more, waits with a time limit fail instead of a report
  uint64_t lost_store = ~0ull;      // serial number of a store that never arrives: a fault to be survived
};
uint64_t launch(const Launch&, const std::function<void()>& kernel);  // runs the grid; returns the number of fiber switches

// ---- called from inside a kernel
struct ThreadInfo { int thread, num_threads, cta, cluster_rank; std::byte* shared; };
const ThreadInfo& self();

const Words* gather(const char* operation, const Words& mine, Where);  // all 32 lanes' words; valid until the next gather
void block_barrier(Where);
void cluster_barrier(Where);
bool pause(const char* waiting_for, Where);  // in a polling loop: sleep until something has changed; false: the wait has expired

void store_relaxed(void* p, uint64_t v, int num_bytes);  // 4 or 8
uint64_t load_relaxed(const void* p, int num_bytes);

void mbarrier_init(ptx::Mbarrier*, int num_arrivals);
void mbarrier_arrive_expect_bytes(ptx::Mbarrier*, int bytes);
bool mbarrier_wait(ptx::Mbarrier*, int parity, Where);  // false: the wait has expired
void store_async(uint32_t* dst, uint32_t v, ptx::Mbarrier*, int rank);

// A thread's own background copies of one float each, null for zero: they land when it waits for them, not before.
void copy_async(float* dst, const float* src);
void copy_async_commit();
void copy_async_wait(int groups);  // for all committed groups but the last `groups`
}  // namespace simt
