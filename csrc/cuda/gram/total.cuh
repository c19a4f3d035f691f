// The sum of parts that several thread blocks have written, in a fixed order.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T, int results>
struct GramTotalArguments {
  const T* parts;
  T* sums[results];
  Index count, blocks;  // elements of all sums, and how many parts they have
  Index ends[results];  // elements of the results up to each
};

// Element i of all results, one after another, is Σ parts[b, i] over the blocks b. Thread t of a block
// of `threads` adds every `shares`-th part of element t % (threads / shares); then halves of the shares
// are added, as long as there are several. Shares are a power of two.
template <class T, int results, int threads, int shares>
__global__ void __launch_bounds__(threads) gram_total(GramTotalArguments<T, results> a) {
  wait_for_earlier_kernels();
  constexpr int elements = threads / shares;
  extern __shared__ __align__(16) unsigned char shared_memory[];  // an element of T for each thread
  T* const shared = reinterpret_cast<T*>(shared_memory);
  const int element = int(threadIdx.x) % elements, share = int(threadIdx.x) / elements;
  const Index i = Index(blockIdx.x) * elements + element;
  T sum{};
  if (i < a.count)
    UNROLLED_BY(4) for (Index b = share; b < a.blocks; b += shares)
      sum = add(sum, a.parts[b * a.count + i]);
  UNROLLED for (int left = shares / 2; left > 0; left /= 2) {
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (share < left) sum = add(sum, shared[threadIdx.x + left * elements]);
    __syncthreads();
  }
  if (share != 0 || i >= a.count) return;
  Index begin = 0;
  T* sums = a.sums[0];
  UNROLLED for (int k = 1; k < results; ++k)
    if (i >= a.ends[k - 1]) {
      begin = a.ends[k - 1];
      sums = a.sums[k];
    }
  sums[i - begin] = sum;
}

}  // namespace batchkron
