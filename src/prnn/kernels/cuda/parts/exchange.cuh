// h through global memory (the GPU's L2) among the CTAs that hold a copy of R: no flag, no fence, no reset between steps.
//
// READINESS TRAVELS IN THE DATA. The top exponent bit of a number below 2 in magnitude is 0 in every type, so it carries an epoch: h of
// step s lies in buffer s % 2 with epoch 1, 1, 0, 0, 1, 1, ... for s = 0, 1, 2, 3, ..., and a reader takes a word once its epoch is
// right. Zeroed memory is stale in both buffers.
//
// WHAT DOES NOT FIT, from 1.999 on, infinity and NaN included, goes beside the words, as a 64-bit number that holds the exact word and
// its step; the word itself then says so by a value that nothing else has. Any cell may therefore have any state; large ones are slower.
//
// TWO BUFFERS ARE ENOUGH if no CTA stores a word of step s + 1 before all its warps have all their words of step s: whoever stores into
// the buffer of step s has received s + 1 from everybody, so everybody had finished with s.
#pragma once
#include "parts/products.cuh"

#ifndef MUTATION  // deliberate faults, for the test of the tests
#define MUTATION 0
#endif

namespace prnn {
// How one 32-bit word carries its epoch. `mask`: the top exponent bit of each number in it; `one`: the last bit of each.
template <ptx::u32 mask, ptx::u32 one> struct Epochs {
  static constexpr ptx::u32 escape = mask - one;
  static PTX_FN ptx::u32 of(int step) { return step >> 1 & 1 ? 0u : mask; }
  static PTX_FN bool fits(ptx::u32 word) { return (((word & (2 * mask - one)) + one) & 3 * mask) == 0; }
  // Of words without their epochs, any of them.
  static PTX_FN ptx::u32 escaped(ptx::u32 word) { return word + one; }
  static PTX_FN bool is_escape(ptx::u32 escaped) { return (escaped & mask) != 0; }
  static PTX_FN bool is_stale(const ptx::Word4& words, ptx::u32 epoch) {
    return (((words.w[0] ^ epoch) | (words.w[1] ^ epoch) | (words.w[2] ^ epoch) | (words.w[3] ^ epoch)) & mask) != 0;
  }
};
template <class Storage> struct EpochsOf { using type = Epochs<0x40000000u, 1u>; };
template <> struct EpochsOf<ptx::u16> { using type = Epochs<0x40004000u, 0x00010001u>; };

// The buffers of one copy of R. 32 Word4, one a lane, hold 8 sequences of one chunk of the sum over K; a warp's fragment is 16 bytes a lane.
template <class Scalar, int batch_tiles, int chunks> struct Exchange {
  using Epoch = typename EpochsOf<typename Scalar::Storage>::type;
  static constexpr int words = batch_tiles * chunks * 128, num_bytes = 2 * words * 12;  // of a buffer; of both and what is beside them

  ptx::u32* buffers;  // [2][tile][chunk][column 8][16]
  ptx::u64* exact;    // the same for words that do not fit; the upper half is the step + 1

  PTX_FN Exchange(void* memory, int copy) {
    buffers = reinterpret_cast<ptx::u32*>(static_cast<ptx::u8*>(memory) + static_cast<int64_t>(copy) * num_bytes);
    exact = reinterpret_cast<ptx::u64*>(buffers + 2 * words);
  }

  // The words of neighbouring units, of which `unit` is the first.
  template <int count> PTX_FN void send(int step, int tile, int unit, int column, const ptx::u32 (&values)[count]) const {
    const int chunk = tile * chunks + unit / units_per_chunk<Scalar>, in_column = unit % units_per_chunk<Scalar> / units_per_word<Scalar>;
    const int index = (step & 1) * words + (chunk * 8 + column) * 16 + in_column;
    PTX_UNROLL for (int i = 0; i < count; i++) {
      ptx::u32 word = values[i];
      if (!Epoch::fits(word) && MUTATION != 2) {
        ptx::store_relaxed(exact + index + i, static_cast<ptx::u64>(step + 1) << 32 | word);
        word = Epoch::escape;
      }
      ptx::store_relaxed(buffers + index + i, word | Epoch::of(step));
    }
  }

  // A lane's words of a warp's chunks of some tiles; where `is_live(n, k)` is false nobody sends, and it gets 0. False, for all lanes, if a
  // word did not come in time. All that is missing is looked at again in one batch: one round trip for all, not one for each.
  template <int num_tiles, int num_chunks, class IsLive>
  PTX_FN bool receive(ptx::Word4 (&h)[num_tiles][num_chunks], int step, int first_tile, int first_chunk, int lane, const IsLive& is_live,
                      const ptx::Patience& patience) const {
    const ptx::u32 epoch = Epoch::of(step), stale = Epoch::of(step + 2);
    const int first = (step & 1) * words + (first_tile * chunks + first_chunk) * 128 + lane * 4;
    PTX_UNROLL for (int n = 0; n < num_tiles; n++)
      PTX_UNROLL for (int k = 0; k < num_chunks; k++)
        PTX_UNROLL for (int i = 0; i < 4; i++) h[n][k].w[i] = is_live(n, k) ? stale : epoch;
    bool has_all = true;
    for (ptx::Wait wait;;) {
      bool is_fresh = patience.cycles > 0;
      PTX_UNROLL for (int n = 0; n < num_tiles; n++)
        PTX_UNROLL for (int k = 0; k < num_chunks; k++) {
          const auto* const source = reinterpret_cast<const ptx::Word4*>(buffers + first + (n * chunks + k) * 128);
          ptx::load_relaxed_if(Epoch::is_stale(h[n][k], epoch), h[n][k], source);
        }
      PTX_UNROLL for (int n = 0; n < num_tiles; n++)
        PTX_UNROLL for (int k = 0; k < num_chunks; k++) is_fresh &= !Epoch::is_stale(h[n][k], epoch);
      if (is_fresh || MUTATION == 1) break;
      has_all = wait.goes_on(patience);
      if (!has_all) break;
    }
    ptx::warp_barrier();  // lanes that came apart would each run all that follows
    ptx::u32 escapes = 0;
    PTX_UNROLL for (int n = 0; n < num_tiles; n++)
      PTX_UNROLL for (int k = 0; k < num_chunks; k++)
        PTX_UNROLL for (int i = 0; i < 4; i++) {
          h[n][k].w[i] = MUTATION == 1 ? h[n][k].w[i] & ~Epoch::of(0) : h[n][k].w[i] ^ epoch;
          escapes |= Epoch::escaped(h[n][k].w[i]);
        }
    if (ptx::all_lanes(has_all && !Epoch::is_escape(escapes))) return true;
    PTX_UNROLL for (int n = 0; n < num_tiles; n++)
      PTX_UNROLL for (int k = 0; k < num_chunks; k++)
        if (has_all) has_all = receive_exact(h[n][k], step, exact + first + (n * chunks + k) * 128, patience);
    return ptx::all_lanes(has_all);
  }

  static PTX_FN bool receive_exact(ptx::Word4& h, int step, const ptx::u64* source, const ptx::Patience& patience) {
    bool is_missing[4];
    PTX_UNROLL for (int i = 0; i < 4; i++) is_missing[i] = Epoch::is_escape(Epoch::escaped(h.w[i]));
    for (ptx::Wait wait;;) {
      ptx::u64 found[4];
      PTX_UNROLL for (int i = 0; i < 4; i++) found[i] = is_missing[i] ? ptx::load_relaxed(source + i) : 0;
      PTX_UNROLL for (int i = 0; i < 4; i++)
        if (found[i] >> 32 == static_cast<ptx::u32>(step + 1)) h.w[i] = static_cast<ptx::u32>(found[i]), is_missing[i] = false;
      if (!(is_missing[0] | is_missing[1] | is_missing[2] | is_missing[3])) return true;
      if (!wait.goes_on(patience)) return false;
    }
  }
};
}  // namespace prnn
