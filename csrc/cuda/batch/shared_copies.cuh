// How the threads that load together share the copies of its products to shared memory.
#pragma once

#include "cuda/common/unrolled.cuh"

namespace batchkron {

// Threads that copy so many products at a time, each to a slot of its own.
template <int loaders, int products>
struct SharedCopies {
  // How many threads share the copy of `chunks` words of a product: the number with the least cost,
  // which is a thread's copies times 8 plus the products that are copied at once. The 8, the cost
  // of a copy besides, was chosen by hand.
  static constexpr int sharing(int chunks) {
    int best = 1;
    long long minimum = 1ll << 60;
    for (int threads = 1; threads <= loaders; threads *= 2) {
      const int at_once = loaders / threads;
      const long long copies = 1ll * ((products + at_once - 1) / at_once) *
                               ((chunks + threads - 1) / threads);
      const long long cost = copies * (8 + (at_once < products ? at_once : products));
      if (cost <= minimum) best = threads, minimum = cost;
    }
    return best;
  }
  // The words that one of `threads` threads copies.
  template <int threads>
  struct Share {
    int first;

    template <int chunks, class Copy>
    __device__ void each(Copy copy) const {
      UNROLLED_BY(8) for (int i = 0; i < chunks; i += threads)
        if (i + threads <= chunks || first + i < chunks) copy(first + i);
    }
  };
  // Calls copy(slot, share) for every product of which the thread copies words.
  template <int chunks, class Copy>
  __device__ static void each_slot(int lane, Copy copy) {
    constexpr int threads = sharing(chunks), at_once = loaders / threads;
    UNROLLED_BY(8) for (int i = 0; i < products; i += at_once) {
      const int slot = i + lane / threads;
      if ((i + at_once <= products || slot < products) && lane < at_once * threads)
        copy(slot, Share<threads>{lane % threads});
    }
  }
};

}  // namespace batchkron
