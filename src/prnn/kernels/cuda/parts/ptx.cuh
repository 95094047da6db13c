// Every hardware primitive the kernels use, one small function each. Kernels include no other header of the platform.
// NVRTC sees inline PTX; a plain C++20 compiler sees the CPU twin of each, which runs on the emulator of tests/simt.
#pragma once

namespace ptx {
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
struct alignas(8) Mbarrier { u64 state; };  // lives in shared memory; only the mbarrier_* functions look inside
struct alignas(16) Word4 { u32 w[4]; };
struct alignas(8) Float2 { float lo, hi; };
// Tags: how the factors of a product are encoded, and as what they lie in memory. Sums are always floats.
struct Half { using Storage = u16; };
struct Bfloat16 { using Storage = u16; };
struct Tf32 { using Storage = u32; };  // 10 bits of a float's mantissa
struct Ieee { using Storage = u32; };  // all 23
// No wait is endless.
struct Patience {
  long long cycles;  // before a wait fails; 0: every wait fails
  u32* stopped;      // in memory that the host sees too: the number of the last launch that gave up
  u32 launch;        // number of this launch
};
constexpr u32 all_mask = 0xffffffffu;
}  // namespace ptx

#ifdef __CUDACC__  // ------------------------------------------------------------------------------ GPU: inline PTX

#define PTX_FN __device__ __forceinline__
#define PTX_KERNEL(num_threads) extern "C" __global__ void __launch_bounds__(num_threads, 1)
#define PTX_PARAMETER const __grid_constant__  // read where the launch put it, never copied
#define PTX_UNROLL _Pragma("unroll")
#define PTX_UNROLL_BY_4 _Pragma("unroll 4")
#define PTX_NO_UNROLL _Pragma("unroll 1")

using int32_t = int;  // NVRTC has no <cstdint>
using int64_t = long long;

namespace ptx {

// ---- where am I
PTX_FN int thread_index() { return threadIdx.x; }
PTX_FN int block_index() { return blockIdx.x; }
PTX_FN int cluster_rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }

// ---- shared memory: one dynamic allocation a CTA, laid out by a struct of the kernel
template <class Layout> PTX_FN Layout& shared_memory() {
  extern __shared__ __align__(128) unsigned char ptx_shared_storage[];
  return *reinterpret_cast<Layout*>(ptx_shared_storage);
}
using Address = u32;  // of shared memory, as its own instructions want it
// Asked for once, since the compiler computes it anew wherever it can: members are reached from it by their distance.
PTX_FN Address address_of(const void* p) {
  u32 a; asm volatile("{.reg .u64 p;\ncvta.to.shared.u64 p, %1;\ncvt.u32.u64 %0, p;}" : "=r"(a) : "l"(p)); return a;
}
PTX_FN u32 distance(const void* from, const void* to) { return static_cast<u32>(static_cast<const u8*>(to) - static_cast<const u8*>(from)); }

// ---- barriers
PTX_FN void block_barrier() { __syncthreads(); }
PTX_FN void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// ---- warp collectives: all 32 lanes call them together
PTX_FN bool all_lanes(bool v) { return __all_sync(all_mask, v); }
PTX_FN void warp_barrier() { __syncwarp(); }
PTX_FN float shuffle_xor(float v, int mask) { return __shfl_xor_sync(all_mask, v, mask); }  // of the lane whose number differs in `mask`
// 8x8 matrix of 16-bit numbers, transposed across the warp: lane l holds row l/4, columns (l%4)*2 and +1.
PTX_FN u32 transpose_8x8(u32 v) {
  u32 d; asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(v)); return d;
}
// c[16x8] += a[16x16] * b[16x8]; 16-bit numbers in, float accumulators.
#define PTX_MMA(shape, type) \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 " \
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
PTX_FN void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Half) { PTX_MMA("m16n8k16", "f16"); }
PTX_FN void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Bfloat16) { PTX_MMA("m16n8k16", "bf16"); }
// c[16x8] += a[16x8] * b[8x8]; of the floats a and b it reads the upper 19 bits.
PTX_FN void mma_m16n8k8(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { PTX_MMA("m16n8k8", "tf32"); }
#undef PTX_MMA

// ---- numbers
PTX_FN u32 bits_of(float v) { return __float_as_uint(v); }
PTX_FN float float_of(u32 v) { return __uint_as_float(v); }
PTX_FN float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }  // 2 ulp
PTX_FN float reciprocal_fast(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }  // 1 ulp
PTX_FN float exp(float x) { return expf(x); }
PTX_FN float log(float x) { return logf(x); }
PTX_FN float sqrt(float x) { return sqrtf(x); }
PTX_FN double exp(double x) { return ::exp(x); }
PTX_FN double log(double x) { return ::log(x); }
PTX_FN double sqrt(double x) { return ::sqrt(x); }
PTX_FN double tanh(double x) { return ::tanh(x); }
PTX_FN u32 pack(float lo, float hi, Half) {
  u32 d; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo)); return d;
}
PTX_FN u32 pack(float lo, float hi, Bfloat16) {
  u32 d; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo)); return d;
}
// The nearest number with 10 bits of mantissa; what its other 13 bits are is not said.
PTX_FN u32 round_tf32(float v) { u32 d; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(v)); return d; }
PTX_FN u16 narrow(float v, Half) { return static_cast<u16>(pack(v, 0.0f, Half{})); }
PTX_FN u16 narrow(float v, Bfloat16) { return static_cast<u16>(pack(v, 0.0f, Bfloat16{})); }
PTX_FN float widen(u16 v, Half) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v)); return f; }
PTX_FN float widen(u16 v, Bfloat16) { return float_of(static_cast<u32>(v) << 16); }

// ---- global memory that nobody writes while the kernel runs: lets the compiler move the load across barriers and fences
template <class T> PTX_FN T load_constant(const T* p) { return __ldg(p); }
PTX_FN Word4 load_constant(const Word4* p) {
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(p));
  return {v.x, v.y, v.z, v.w};
}

// The same address, but what is loaded from it is loaded here, not once before a loop.
template <class T> PTX_FN const T* here(const T* p) { asm volatile("" : "+l"(p)); return p; }

// ---- words that other CTAs write and read meanwhile: each number is whole (of a Word4, each of the four), nothing orders two of them
PTX_FN void store_relaxed(u32* p, u32 v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
PTX_FN void store_relaxed(u64* p, u64 v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
PTX_FN u64 load_relaxed(const u64* p) {
  u64 v; asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v;
}
// Without a branch, so that several are on their way at once.
PTX_FN void load_relaxed_if(bool is_wanted, Word4& v, const Word4* p) {
  asm volatile("{.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];}"
               : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(p), "r"(static_cast<u32>(is_wanted)) : "memory");
}

// ---- copies to shared memory in the background, seen by the lane that asked for them. Waits count groups of copies.
PTX_FN void copy_async(Address dst, const float* src, bool exists) {  // zero if there is nothing to copy
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(exists ? 4 : 0) : "memory");
}
PTX_FN void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> PTX_FN void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }  // but for the last

// ---- memory that the host sees
PTX_FN u32 load_system(const u32* p) {
  u32 v; asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v;
}
PTX_FN void store_system(u32* p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

// ---- a loop that waits asks goes_on() after every look that failed; each lane for itself
struct Wait {
  long long start = 0;
  u32 num_looks = 0;
  // False, which ends the waits of others too, once the time is over or another CTA has given up.
  PTX_FN bool goes_on(const Patience& patience) {
    // Looking for the words comes first; the clock, and the host's memory, which is far away, are for waits that are out of the ordinary.
    if (++num_looks % 32 != 0) return true;
    const long long now = clock64();
    if (num_looks == 32) start = now;
    if (now - start < patience.cycles && load_system(patience.stopped) != patience.launch) return true;
    store_system(patience.stopped, patience.launch);
    return false;
  }
};

// ---- mbarrier, and stores into another CTA of the cluster that complete on it
PTX_FN void mbarrier_init(Address bar, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(num_arrivals) : "memory");
}
PTX_FN void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
PTX_FN void mbarrier_arrive_expect_bytes(Address bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
PTX_FN bool mbarrier_try_wait(Address bar, int parity) {
  u32 done;
  asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;}"
               : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done;
}
// Waits for the phase of this parity. False if it did not come in time, or if another CTA gave up. Each lane for itself.
PTX_FN bool mbarrier_wait(Address bar, int parity, const Patience& patience) {
  for (Wait wait;;) {
    if (patience.cycles > 0 && mbarrier_try_wait(bar, parity)) return true;
    if (!wait.goes_on(patience)) return false;
  }
}
PTX_FN Address map_to_rank(Address address, int rank) {
  u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r;
}
// Writes a word, or two at a multiple of 8 bytes, where `dst` lies in the CTA of that rank, and completes as many bytes on `bar` there.
PTX_FN void store_async(Address dst, const u32 (&v)[1], Address bar, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               ::"r"(map_to_rank(dst, rank)), "r"(v[0]), "r"(map_to_rank(bar, rank)) : "memory");
}
PTX_FN void store_async(Address dst, const u32 (&v)[2], Address bar, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
               ::"r"(map_to_rank(dst, rank)), "r"(v[0]), "r"(v[1]), "r"(map_to_rank(bar, rank)) : "memory");
}
}  // namespace ptx

#else  // ------------------------------------------------------------------------------------------- CPU: twins

#include <bit>
#include <cmath>
#include <cstdint>

#include "simt.h"

#define PTX_FN inline
#define PTX_KERNEL(num_threads) inline void
#define PTX_PARAMETER const
#define PTX_UNROLL
#define PTX_UNROLL_BY_4
#define PTX_NO_UNROLL
#define PTX_WHERE simt::Where where = simt::Where::current()  // the kernel's own line, for reports

namespace ptx {

inline int thread_index() { return simt::self().thread; }
inline int block_index() { return simt::self().cta; }
inline int cluster_rank() { return simt::self().cluster_rank; }

template <class Layout> Layout& shared_memory() { return *reinterpret_cast<Layout*>(simt::self().shared); }
struct Address {
  std::byte* p;
  Address operator+(std::ptrdiff_t bytes) const { return {p + bytes}; }
  template <class T> T* as() const { return reinterpret_cast<T*>(p); }
};
inline Address address_of(void* p) { return {static_cast<std::byte*>(p)}; }
inline std::ptrdiff_t distance(const void* from, const void* to) { return static_cast<const u8*>(to) - static_cast<const u8*>(from); }

inline void block_barrier(PTX_WHERE) { simt::block_barrier(where); }
inline void cluster_barrier(PTX_WHERE) { simt::cluster_barrier(where); }

inline u32 bits_of(float v) { return std::bit_cast<u32>(v); }
inline float float_of(u32 v) { return std::bit_cast<float>(v); }
inline float widen(u16 v, Half) { return static_cast<float>(std::bit_cast<_Float16>(v)); }
inline float widen(u16 v, Bfloat16) { return float_of(static_cast<u32>(v) << 16); }
inline u16 narrow(float v, Half) { return std::bit_cast<u16>(static_cast<_Float16>(v)); }
inline u16 narrow(float v, Bfloat16) {
  const u32 bits = bits_of(v);
  return v != v ? 0x7fff : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class Tag> u32 pack(float lo, float hi, Tag tag) { return narrow(lo, tag) | static_cast<u32>(narrow(hi, tag)) << 16; }
inline u32 round_tf32(float v) { return v != v ? 0x7fffffffu : (bits_of(v) + 0x1000) & ~0x1fffu; }
inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }
inline float exp(float x) { return std::exp(x); }
inline float log(float x) { return std::log(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline double sqrt(double x) { return std::sqrt(x); }
inline double tanh(double x) { return std::tanh(x); }

inline bool all_lanes(bool v, PTX_WHERE) {
  const simt::Words* lanes = simt::gather("vote.all", {v}, where);
  bool all = true;
  for (int l = 0; l < 32; l++) all &= lanes[l][0] != 0;
  return all;
}
inline float shuffle_xor(float v, int mask, PTX_WHERE) {
  return float_of(simt::gather("shfl", {bits_of(v)}, where)[thread_index() % 32 ^ mask][0]);
}
inline void warp_barrier(PTX_WHERE) { simt::gather("warp barrier", {}, where); }
inline u32 transpose_8x8(u32 v, PTX_WHERE) {
  const simt::Words* lanes = simt::gather("movmatrix", {v}, where);
  const int lane = thread_index() % 32, row = lane / 4, col = lane % 4 * 2;  // element (row, col) comes from (col, row)
  auto from = [&](int c) { return lanes[c * 4 + row / 2][0] >> (16 * (row & 1)) & 0xffffu; };
  return from(col) | from(col + 1) << 16;
}
template <class Tag> void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Tag tag, PTX_WHERE) {
  const simt::Words* lanes = simt::gather("mma", {a[0], a[1], a[2], a[3], b0, b1}, where);
  const int lane = thread_index() % 32;
  auto value = [&](u32 word, int which) { return widen(static_cast<u16>(word >> (16 * which)), tag); };
  float rows[2][16], cols[2][16];  // of A: lane/4 and lane/4 + 8; of B: (lane%4)*2 and +1
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 16; k++) {
      const int owner = k % 8 / 2, upper = k / 8;  // which of the 4 lanes of a row (column) holds k, and in which register
      rows[i][k] = value(lanes[lane / 4 * 4 + owner][i + 2 * upper], k & 1);
      cols[i][k] = value(lanes[(lane % 4 * 2 + i) * 4 + owner][4 + upper], k & 1);
    }
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) c[i] += rows[i >> 1][k] * cols[i & 1][k];
}
inline void mma_m16n8k8(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, PTX_WHERE) {
  const simt::Words* lanes = simt::gather("mma", {a[0], a[1], a[2], a[3], b0, b1}, where);
  const int lane = thread_index() % 32;
  auto value = [&](int owner, int word) { return static_cast<double>(float_of(lanes[owner][word] & ~0x1fffu)); };
  for (int i = 0; i < 4; i++) {
    double sum = c[i];
    for (int k = 0; k < 8; k++)
      sum += value(lane / 4 * 4 + k % 4, i / 2 + k / 4 * 2) * value((lane % 4 * 2 + i % 2) * 4 + k % 4, 4 + k / 4);
    const float nearest = static_cast<float>(sum);  // the hardware cuts what does not fit instead
    c[i] = std::fabs(nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
  }
}

template <class T> T load_constant(const T* p) { return *p; }
template <class T> const T* here(const T* p) { return p; }

inline void store_relaxed(u32* p, u32 v) { simt::store_relaxed(p, v, 4); }
inline void store_relaxed(u64* p, u64 v) { simt::store_relaxed(p, v, 8); }
inline u64 load_relaxed(const u64* p) { return simt::load_relaxed(p, 8); }
inline void load_relaxed_if(bool is_wanted, Word4& v, const Word4* p) {
  for (int i = 0; i < 4 && is_wanted; i++) v.w[i] = static_cast<u32>(simt::load_relaxed(&p->w[i], 4));
}

inline void copy_async(Address dst, const float* src, bool exists) { simt::copy_async(dst.as<float>(), exists ? src : nullptr); }
inline void copy_async_commit() { simt::copy_async_commit(); }
template <int groups> void copy_async_wait() { simt::copy_async_wait(groups); }

inline void store_system(u32* p, u32 v) { *p = v; }

struct Wait {
  bool goes_on(const Patience& patience, PTX_WHERE) {
    const bool in_time = simt::pause("words from other CTAs", where);
    if (!in_time) store_system(patience.stopped, patience.launch);
    return in_time;
  }
};

inline void mbarrier_init(Address bar, int num_arrivals) { simt::mbarrier_init(bar.as<Mbarrier>(), num_arrivals); }
inline void mbarrier_init_fence() {}  // the cluster barrier that must follow orders the emulator's memory
inline void mbarrier_arrive_expect_bytes(Address bar, int bytes) { simt::mbarrier_arrive_expect_bytes(bar.as<Mbarrier>(), bytes); }
inline bool mbarrier_wait(Address bar, int parity, const Patience& patience, PTX_WHERE) {
  const bool has_come = simt::mbarrier_wait(bar.as<Mbarrier>(), parity, where);
  if (!has_come) store_system(patience.stopped, patience.launch);
  return has_come;
}
template <int count> void store_async(Address dst, const u32 (&v)[count], Address bar, int rank) {
  for (int i = 0; i < count; i++) simt::store_async(dst.as<u32>() + i, v[i], bar.as<Mbarrier>(), rank);
}
}  // namespace ptx
#endif

namespace ptx {
PTX_FN float widen(u32 v, Tf32) { return float_of(v); }
PTX_FN float widen(u32 v, Ieee) { return float_of(v); }
PTX_FN u32 narrow(float v, Tf32) { return bits_of(v); }
PTX_FN u32 narrow(float v, Ieee) { return bits_of(v); }
}  // namespace ptx
