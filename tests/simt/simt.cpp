// See simt.h. This file is never compiled with -fsanitize=thread: ThreadSanitizer then sees the kernel's own memory accesses and,
// of all orderings, only those told to it here, TSAN(...): those that the CUDA memory model gives.
#include "simt.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_write8(void*);
void __tsan_atomic32_store(volatile int*, int, int order);
long __tsan_atomic64_load(const volatile long*, int order);
}
#define TSAN(...) __VA_ARGS__
constexpr bool under_tsan = true;
#else
#define TSAN(...)
constexpr bool under_tsan = false;
#endif

// ---- switching stacks: saves the callee's registers, swaps the stack pointer
#ifndef __x86_64__
#error "simt.cpp knows x86-64 only; add a switch of 15 lines for another CPU"
#endif
extern "C" void simt_switch(void** save_sp, void* load_sp);
asm(R"(
.text
.globl simt_switch
simt_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
)");

namespace simt {
namespace {

constexpr size_t stack_bytes = 64 * 1024;
constexpr uint64_t stack_canary = 0x5afe57acc0ffee00, max_switches = 1ull << 32;

struct Random {  // splitmix64
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return next() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
};

constexpr std::align_val_t alignment{128};
struct Free { void operator()(std::byte* p) const { operator delete[](p, alignment); } };
using Bytes = std::unique_ptr<std::byte[], Free>;
Bytes allocate(size_t n) { return Bytes(new (alignment) std::byte[n]); }  // exact, so that AddressSanitizer sees its end

struct Barrier {
  const char* name;
  int expected, arrived = 0;
  uint64_t generation = 0;
  char order_tag[2] = {};  // for TSan: two addresses, so that a fast thread's next arrival orders nothing of this one
};

struct Warp;
struct Cta;
struct Fiber : ThreadInfo {
  Cta* cta_state;
  Warp* warp;
  void* stack_pointer;
  uint64_t* stack_bottom;
  std::function<bool()> wait_over;  // empty: can run
  std::function<std::string()> waits_for;
  Where where;
  uint64_t seen_progress = 0, num_pauses = 0;
  std::deque<std::vector<std::pair<float*, const float*>>> copies{1};  // groups, the open one last
  bool done = false, in_timed_wait = false, expired = false;
  void* tsan = nullptr;
  bool can_run() const { return !done && (!wait_over || wait_over()); }
};
struct Warp {
  Fiber* lanes;
  uint64_t eagerness, last_pause_ended = 0;
  const char* operation = nullptr;
  Barrier meeting{"a warp collective", 32};
  Words words[2][32];  // of this gather and of the one before, which slow lanes may still read
};
struct Cta {
  Bytes shared;
  Barrier barrier{"block_barrier", 0};
  Barrier* cluster_barrier;
  int num_alive;
};
struct Store {  // on its way to another CTA
  Cta* from;
  void* address;
  uint64_t value;
  int num_bytes;  // 4 or 8
  uint64_t serial;
  ptx::Mbarrier* completes = nullptr;  // of a store_async
  Cta* to = nullptr;
};

struct Machine {
  Launch config;
  const std::function<void()>& kernel;
  Random random;
  std::vector<Cta> ctas;
  std::vector<Barrier> cluster_barriers;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
  Bytes stacks;
  std::vector<Store> in_flight;
  Fiber* running = nullptr;
  void *scheduler_stack = nullptr, *scheduler_tsan = nullptr;
  std::string fault;
  int num_alive;
  uint64_t progress = 1, num_switches = 0, num_stores = 0;

  Machine(const Launch&, const std::function<void()>&);
  ~Machine();
  void run();
  void resume(Fiber&);
  void deliver(size_t index);
  void deliver_from(const Cta*, const void* address_or_all);
  void deliver_some();
  bool expire_waits();
  std::string who_waits() const;
};
thread_local Machine* machine;

void leave_fiber() {
  TSAN(__tsan_switch_to_fiber(machine->scheduler_tsan, __tsan_switch_to_fiber_no_sync));
  simt_switch(&machine->running->stack_pointer, machine->scheduler_stack);
}
std::string place(const Where& w) {
  const char* slash = std::strrchr(w.file_name(), '/');
  return std::string(slash ? slash + 1 : w.file_name()) + ":" + std::to_string(w.line());
}
std::string name_of(const Fiber& f) { return "CTA " + std::to_string(f.cta) + " thread " + std::to_string(f.thread); }
void fail(const std::string& message) {  // from inside a fiber: ends the launch
  machine->fault = name_of(*machine->running) + ": " + message;
  leave_fiber();
}
void wait_until(const auto& over, const Where& where, const auto& waits_for) {
  Fiber& f = *machine->running;
  f.wait_over = std::ref(over), f.waits_for = std::ref(waits_for), f.where = where;
  leave_fiber();
  f.wait_over = nullptr;
}

void meet(Barrier& b, const Where& where, bool orders_memory) {
  const uint64_t generation = b.generation;
  [[maybe_unused]] char* tag = &b.order_tag[generation & 1];
  TSAN(if (orders_memory) __tsan_release(tag));
  if (++b.arrived == b.expected) {
    b.arrived = 0, b.generation++;
    if (orders_memory) machine->progress++;  // a mere warp collective, as in a polling loop, is no progress
  }
  wait_until([&] { return b.generation != generation; }, where, [&] {
    return b.name + (", " + std::to_string(b.arrived)) + " of " + std::to_string(b.expected) + " arrived";
  });
  TSAN(if (orders_memory) __tsan_acquire(tag));
}

// ---- mbarrier: 8 bytes in the CTA's shared memory
struct BarState { uint8_t magic, parity, expected, pending; int32_t missing_bytes; };
constexpr uint8_t bar_magic = 0xb7;
static_assert(sizeof(BarState) == 8);
BarState& state_of(ptx::Mbarrier* bar) {
  BarState& s = *reinterpret_cast<BarState*>(bar);
  if (s.magic != bar_magic) fail("uses an mbarrier that was not initialised");
  TSAN(__tsan_atomic64_load(reinterpret_cast<long*>(bar), 0));  // seen as a read: races with an unordered init
  return s;
}
// For TSan: what happened before a phase's arrivals is ordered before its waiters; two addresses for two successive phases.
[[maybe_unused]] char* order_tag(ptx::Mbarrier* bar, int parity) { return reinterpret_cast<char*>(bar) + parity; }
void flip_if_complete(BarState& s) {
  if (s.pending == 0 && s.missing_bytes == 0) s.parity ^= 1, s.pending = s.expected;
  machine->progress++;
}

// ---- stores in flight
void Machine::deliver(size_t index) {
  for (size_t i = 0; i < in_flight.size(); i++)  // two stores to one address keep their order
    if (in_flight[i].address == in_flight[index].address && in_flight[i].serial < in_flight[index].serial) index = i;
  const Store s = in_flight[index];
  in_flight[index] = in_flight.back(), in_flight.pop_back();
  if (s.to && s.to->num_alive == 0) {
    fault = "store_async into the shared memory of CTA " + std::to_string(s.to - ctas.data()) + ", which has already ended";
    return;
  }
  if (s.num_bytes == 8) std::atomic_ref(*static_cast<uint64_t*>(s.address)).store(s.value, std::memory_order_relaxed);
  else std::atomic_ref(*static_cast<uint32_t*>(s.address)).store(static_cast<uint32_t>(s.value), std::memory_order_relaxed);
  progress++;
  if (!s.completes) return;
  BarState& bar = *reinterpret_cast<BarState*>(s.completes);
  bar.missing_bytes -= 4;
  flip_if_complete(bar);
}
void Machine::deliver_from(const Cta* cta, const void* address) {  // its relaxed stores to one address or, with nullptr, to all
  for (size_t i = 0; i < in_flight.size();)
    if (in_flight[i].from == cta && !in_flight[i].completes && (!address || in_flight[i].address == address)) deliver(i), i = 0;
    else i++;
}
void Machine::deliver_some() {
  for (uint64_t n = 1 + random.below(2 * in_flight.size()); n > 0 && !in_flight.empty() && fault.empty(); n--)
    deliver(random.below(in_flight.size()));
}

void fiber_main() {
  machine->kernel();
  Fiber& f = *machine->running;
  f.done = true, f.cta_state->num_alive--, machine->num_alive--, machine->progress++;
  leave_fiber();
}

Machine::Machine(const Launch& launch, const std::function<void()>& body) : config(launch), kernel(body), random{launch.seed} {
  machine = this;
  const int num_threads = config.num_threads;
  num_alive = config.num_ctas * num_threads;
  ctas.resize(config.num_ctas), warps.resize(num_alive / 32), fibers.resize(num_alive);
  cluster_barriers.assign(config.num_ctas / config.cluster_size, {"cluster_barrier", config.cluster_size * num_threads});
  for (int i = 0; i < config.num_ctas; i++) {
    Cta& c = ctas[i];
    c.shared = allocate(config.shared_bytes);
    std::memset(c.shared.get(), 0xff, config.shared_bytes);
    c.barrier.expected = c.num_alive = num_threads, c.cluster_barrier = &cluster_barriers[i / config.cluster_size];
  }
  for (size_t i = 0; i < warps.size(); i++) warps[i].lanes = &fibers[i * 32], warps[i].eagerness = random.next();
  stacks = allocate(fibers.size() * stack_bytes);  // a page that no fiber reaches costs nothing
  TSAN(scheduler_tsan = __tsan_get_current_fiber());
  for (int i = 0; i < num_alive; i++) {
    Fiber& f = fibers[i];
    const int cta = i / num_threads;
    static_cast<ThreadInfo&>(f) = {i % num_threads, num_threads, cta, cta % config.cluster_size, ctas[cta].shared.get()};
    f.cta_state = &ctas[cta], f.warp = &warps[i / 32];
    f.stack_bottom = reinterpret_cast<uint64_t*>(&stacks[i * stack_bytes]);
    *f.stack_bottom = stack_canary;
    auto* top = reinterpret_cast<void**>(&stacks[i * stack_bytes] + stack_bytes);
    top[-2] = reinterpret_cast<void*>(&fiber_main);  // simt_switch pops six registers (any value), then returns to it
    f.stack_pointer = top - 8;
    TSAN(f.tsan = __tsan_create_fiber(0); __tsan_set_fiber_name(f.tsan, name_of(f).c_str()));
  }
}
Machine::~Machine() {
  TSAN(for (Fiber& f : fibers) {  // the host comes after every fiber, also after one that never finished
    __tsan_switch_to_fiber(f.tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_release(this);
    __tsan_switch_to_fiber(scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_destroy_fiber(f.tsan);
  } __tsan_acquire(this));
  machine = nullptr;
}

// ---- the scheduler
void Machine::resume(Fiber& f) {
  running = &f, num_switches++;
  TSAN(__tsan_switch_to_fiber(f.tsan, __tsan_switch_to_fiber_no_sync));
  simt_switch(&scheduler_stack, f.stack_pointer);
  if (*f.stack_bottom != stack_canary) fault = name_of(f) + ": overflow of the fiber's stack";
  if (num_switches > max_switches) fault = "livelock? " + who_waits();
}
// The most eager warp that can run does so until it must wait (or, rarely, before); now and then it gets a new, random eagerness.
// So some warps run far ahead of others, which a fair order would never show.
void Machine::run() {
  while (num_alive > 0 && fault.empty()) {
    if (!in_flight.empty() && random.one_in(8)) deliver_some();
    Warp* chosen = nullptr;
    for (Warp& w : warps)
      if (!chosen || w.eagerness > chosen->eagerness)
        for (int l = 0; l < 32; l++)
          if (w.lanes[l].can_run()) { chosen = &w; break; }
    if (!chosen && in_flight.empty() && config.waits_expire && expire_waits()) continue;
    if (!chosen && in_flight.empty()) fault = "deadlock: nothing can run, nothing is in flight\n" + who_waits();
    else if (!chosen) deliver_some();
    else {
      bool any;
      do {
        any = false;
        const uint64_t first = random.below(32), stride = 2 * random.below(16) + 1;
        for (int i = 0; i < 32 && fault.empty(); i++)
          if (Fiber& f = chosen->lanes[(first + i * stride) % 32]; f.can_run()) resume(f), any = true;
      } while (any && fault.empty() && !random.one_in(32));
      if (random.one_in(4)) chosen->eagerness = random.next();
    }
  }
  while (!in_flight.empty() && fault.empty()) deliver_some();
  if (!fault.empty()) throw Fault("seed " + std::to_string(config.seed) + ": " + fault);
}
// What a time limit does on the GPU, at the moment when waiting longer would be in vain. True if anybody waited.
bool Machine::expire_waits() {
  bool any = false;
  for (Fiber& f : fibers)
    if (!f.done && f.in_timed_wait) f.expired = any = true;
  return any;
}
std::string Machine::who_waits() const {
  std::map<std::string, int> lanes;
  for (const Fiber& f : fibers)
    if (!f.done && f.wait_over)
      lanes["CTA " + std::to_string(f.cta) + " warp " + std::to_string(f.thread / 32) + " at " + place(f.where) + " waits for " +
            f.waits_for()]++;
  std::string all;
  for (auto& [text, n] : lanes) all += "  " + text + " [" + std::to_string(n) + " lanes]\n";
  return all;
}
}  // namespace

uint64_t launch(const Launch& config, const std::function<void()>& kernel) {
  if (config.num_threads % 32 || config.num_ctas % config.cluster_size) throw Fault("launch: whole warps and whole clusters only");
  Machine m(config, kernel);
  m.run();
  return m.num_switches;
}

const ThreadInfo& self() { return *machine->running; }
const Words* gather(const char* operation, const Words& mine, Where where) {
  Fiber& f = *machine->running;
  Warp& w = *f.warp;
  if (w.meeting.arrived == 0) w.operation = operation;
  if (w.operation != operation && std::strcmp(w.operation, operation))
    fail("the warp has diverged: this lane calls " + std::string(operation) + " at " + place(where) + ", others " + w.operation);
  Words* words = w.words[w.meeting.generation & 1];
  words[f.thread % 32] = mine;
  meet(w.meeting, where, false);
  return words;
}
void block_barrier(Where where) { meet(machine->running->cta_state->barrier, where, true); }
void cluster_barrier(Where where) {
  Cta& c = *machine->running->cta_state;
  machine->deliver_from(&c, nullptr);
  meet(*c.cluster_barrier, where, true);
}
bool pause(const char* waiting_for, Where where) {
  Fiber& f = *machine->running;
  f.num_pauses++;  // lanes that poll together must wake together: one may have looked earlier than another
  f.in_timed_wait = true, f.expired = false;
  wait_until([&] { return machine->progress != f.seen_progress || f.warp->last_pause_ended >= f.num_pauses || f.expired; }, where,
             [&] { return std::string(waiting_for) + " (polling)"; });
  f.in_timed_wait = false;
  f.warp->last_pause_ended = std::max(f.warp->last_pause_ended, f.num_pauses);
  f.seen_progress = machine->progress;
  return !f.expired;
}

// Relaxed words: other CTAs see them late; a load sees every earlier store of its own CTA. Under TSan they land at once.
void store_relaxed(void* p, uint64_t v, int num_bytes) {
  const Store s{machine->running->cta_state, p, v, num_bytes, machine->num_stores++};
  if (s.serial == machine->config.lost_store) return;
  machine->in_flight.push_back(s);
  if (under_tsan) machine->deliver(machine->in_flight.size() - 1);
}
uint64_t load_relaxed(const void* p, int num_bytes) {
  machine->deliver_from(machine->running->cta_state, p);
  if (num_bytes == 8) return std::atomic_ref(*static_cast<uint64_t*>(const_cast<void*>(p))).load(std::memory_order_relaxed);
  return std::atomic_ref(*static_cast<uint32_t*>(const_cast<void*>(p))).load(std::memory_order_relaxed);
}

void mbarrier_init(ptx::Mbarrier* bar, int num_arrivals) {
  TSAN(__tsan_write8(bar));
  *reinterpret_cast<BarState*>(bar) = {bar_magic, 0, static_cast<uint8_t>(num_arrivals), static_cast<uint8_t>(num_arrivals), 0};
}
void mbarrier_arrive_expect_bytes(ptx::Mbarrier* bar, int bytes) {
  BarState& s = state_of(bar);
  if (s.pending == 0) fail("arrives at an mbarrier more often than it expects");
  TSAN(__tsan_release(order_tag(bar, s.parity)));
  s.missing_bytes += bytes, s.pending--;
  flip_if_complete(s);
}
bool mbarrier_wait(ptx::Mbarrier* bar, int parity, Where where) {
  const BarState& s = state_of(bar);
  Fiber& f = *machine->running;
  f.in_timed_wait = true, f.expired = false;
  wait_until([&] { return s.parity != parity || f.expired; }, where, [&] {
    return "mbarrier phase of parity " + std::to_string(parity) + ": " + std::to_string(s.pending) + " arrivals missing, " +
           std::to_string(std::abs(s.missing_bytes)) + (s.missing_bytes < 0 ? " bytes came too early" : " bytes missing");
  });
  f.in_timed_wait = false;
  TSAN(__tsan_acquire(order_tag(bar, parity)));
  return s.parity != parity;
}
void store_async(uint32_t* dst, uint32_t v, ptx::Mbarrier* bar, int rank) {
  Fiber& f = *machine->running;
  if (rank >= machine->config.cluster_size) fail("store_async to rank " + std::to_string(rank) + ", beyond the cluster");
  Cta& to = machine->ctas[f.cta - f.cluster_rank + rank];
  const size_t offset = reinterpret_cast<std::byte*>(dst) - f.shared;  // huge if dst lies below
  if (offset >= machine->config.shared_bytes) fail("store_async to an address outside shared memory");
  auto there = [&]<class T>(T* p) { return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(p) - f.shared + to.shared.get()); };
  [[maybe_unused]] const BarState& state = state_of(there(bar));
  const Store s{f.cta_state, there(dst), v, 4, machine->num_stores++, there(bar), &to};
  TSAN(__tsan_atomic32_store(static_cast<int*>(s.address), std::bit_cast<int>(v), 0));
  TSAN(__tsan_release(order_tag(s.completes, state.parity)));
  if (s.serial == machine->config.lost_store) return;
  machine->in_flight.push_back(s);
  if (under_tsan) machine->deliver(machine->in_flight.size() - 1);
}

void copy_async(float* dst, const float* src) { machine->running->copies.back().emplace_back(dst, src); }
void copy_async_commit() { machine->running->copies.emplace_back(); }
void copy_async_wait(int groups) {
  auto& copies = machine->running->copies;
  for (; copies.size() > static_cast<size_t>(groups) + 1; copies.pop_front())
    for (const auto& [dst, src] : copies.front()) *dst = src ? *src : 0.0f;
}
}  // namespace simt
