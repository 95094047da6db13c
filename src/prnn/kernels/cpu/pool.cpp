#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace prnn {
namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int max_threads = 255;
constexpr auto spin_time = std::chrono::microseconds(50);

struct Pool {
  std::mutex in_use;  // held for a whole parallel call
  std::mutex mutex;
  std::condition_variable wake;
  // Call counter and, in the low byte, its number of threads: read together, so that a worker which sleeps through a call it had no
  // part in cannot mistake the next one for it.
  std::atomic<long> ticket{0};
  std::atomic<int> sleeping{0};
  std::atomic<int> running{0};  // workers of this call that are not done
  int num_workers = 0;

  void (*work)(void*, int, int) = nullptr;
  void* context = nullptr;

  void wait_for_ticket(long seen) {
    const auto start = std::chrono::steady_clock::now();
    for (int spins = 0; ticket.load(std::memory_order_acquire) == seen; spins++) {
      pause_briefly();
      if (spins % 64 == 63 && std::chrono::steady_clock::now() - start > spin_time) {
        std::unique_lock lock(mutex);
        sleeping++;
        wake.wait(lock, [&] { return ticket.load() != seen; });
        sleeping--;
        return;
      }
    }
  }

  void worker(int index, long seen) {
    for (;;) {
      wait_for_ticket(seen);
      seen = ticket.load(std::memory_order_acquire);
      const int num_threads = static_cast<int>(seen & 255);
      if (index < num_threads) {
        work(context, index, num_threads);
        running.fetch_sub(1, std::memory_order_release);
      }
    }
  }
};

// A fork copies the pool's memory but not its workers, and any lock may be held: the child starts with a new pool.
Pool* pool = nullptr;
std::once_flag once;

void make_pool() { pool = new Pool; }

Pool& get_pool() {
  std::call_once(once, [] {
    make_pool();
    pthread_atfork(nullptr, nullptr, make_pool);
  });
  return *pool;
}

}  // namespace

void run_parallel(int num_threads, void (*work)(void*, int, int), void* context) {
  if (num_threads <= 1) return work(context, 0, 1);
  Pool& p = get_pool();
  std::unique_lock lock(p.in_use, std::try_to_lock);
  if (!lock.owns_lock()) return work(context, 0, 1);
  num_threads = num_threads > max_threads ? max_threads : num_threads;
  try {
    for (; p.num_workers < num_threads - 1; p.num_workers++) {
      const long seen = p.ticket.load();
      std::thread([&p, index = p.num_workers + 1, seen] { p.worker(index, seen); }).detach();
    }
  } catch (const std::system_error&) {  // the system gives no more threads: those that are there share the work
    num_threads = p.num_workers + 1;
    if (num_threads == 1) return work(context, 0, 1);
  }
  p.work = work;
  p.context = context;
  p.running.store(num_threads - 1, std::memory_order_relaxed);
  p.ticket.store(((p.ticket.load() >> 8) + 1) << 8 | num_threads);
  if (p.sleeping.load() > 0) {
    std::lock_guard wake_lock(p.mutex);
    p.wake.notify_all();
  }
  work(context, 0, num_threads);
  for (int spins = 0; p.running.load(std::memory_order_acquire) > 0; spins++) {
    pause_briefly();
    if (spins > 4000) sched_yield(), spins = 0;
  }
}

void Barrier::wait(int num_threads) {
  if (num_threads == 1) return;
  const int current = __atomic_load_n(&phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == num_threads) {
    __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&phase, current + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int spins = 0; __atomic_load_n(&phase, __ATOMIC_ACQUIRE) == current; spins++) {
    pause_briefly();
    if (spins > 4000) sched_yield(), spins = 0;
  }
}

void* scratch(unsigned long bytes) {
  struct Holder {
    void* memory = nullptr;
    unsigned long size = 0;
    ~Holder() { std::free(memory); }
  };
  static thread_local Holder holder;
  if (holder.size < bytes) {
    const unsigned long size = (bytes + 4095) / 4096 * 4096;
    std::free(holder.memory);
    holder.size = 0;
    holder.memory = std::aligned_alloc(4096, size);
    if (holder.memory == nullptr) throw std::bad_alloc();
    holder.size = size;
  }
  return holder.memory;
}

}  // namespace prnn
