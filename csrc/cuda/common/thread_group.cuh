// A thread group: the threads that work on one block together. It is a part of a warp (a power of
// two of threads), a warp, or a whole thread block.
#pragma once

namespace batchkron {

template <int threads>
struct ThreadGroup {
  static constexpr bool whole_block = threads > 32;
  static constexpr int size = threads;
  static constexpr int block = whole_block ? threads : 128;  // threads of a thread block
  static constexpr int count = block / threads;              // thread groups of a thread block

  __device__ static int rank() { return int(threadIdx.x) % threads; }
  __device__ static int index() { return int(threadIdx.x) / threads; }

  // A barrier of the thread group; what its threads wrote before is seen by all of them behind it.
  __device__ static void sync() {
    if constexpr (whole_block) {
      __syncthreads();
    } else {
      constexpr unsigned members = threads == 32 ? 0xffffffffu : (1u << (threads % 32)) - 1;
      __syncwarp(members << (threadIdx.x % 32 / threads * threads));
    }
  }
};

}  // namespace batchkron
