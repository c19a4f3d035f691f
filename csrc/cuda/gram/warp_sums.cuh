// Several sums over the lanes of a warp, each of which is left with a share of them.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// Halves of the lanes take halves of the sums over a warp, until each lane has ceil(count / 32).
template <int count, int distance, class T>
__device__ void share_out(T* sums, int lane) {
  if constexpr (distance > 0) {
    constexpr int half = (count + 1) / 2;
    const bool upper = lane & distance;
    UNROLLED for (int i = 0; i < half; ++i) {
      const T high = i + half < count ? sums[i + half < count ? i + half : 0] : T{};
      const T kept = upper ? high : sums[i], given = upper ? sums[i] : high;
      sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
    }
    share_out<half, distance / 2>(sums, lane);
  }
}

// The number of the sum that is then a lane's number i; `count` or more where there is none.
template <int count, int distance>
__device__ int shared_out(int i, int lane) {
  if constexpr (distance == 0) {
    return i;
  } else {
    constexpr int half = (count + 1) / 2, none = 1 << 20;
    const int number = shared_out<half, distance / 2>(i, lane);
    return number >= half ? none : lane & distance ? number + half : number;
  }
}

}  // namespace batchkron
