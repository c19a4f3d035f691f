// Gram matrices of one small mode: with x (outer, P, inner) and y (outer, Q, inner) of real numbers,
//   sums[b, p, q] = Σ x[l, p, r] y[l, q, r]   over the pairs (l, r) of thread block b.
// x and y are contiguous and aligned to an element; sums overlaps neither. A thread has all P x Q
// sums in registers, and goes through pairs a grid apart, of which neighbouring threads have
// neighbouring ones; the next pair is read while one is multiplied. gram_total (cuda/gram/total.cuh)
// adds the parts of several blocks. All additions have a fixed order.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"
#include "cuda/gram/warp_sums.cuh"

namespace batchkron {

template <class T>
struct SmallGramArguments {
  const T* x;
  const T* y;
  T* sums;
  Index pairs, inner;
  Index l_step, r_step;  // a grid's threads, divided by inner, and what is left
};

// Reads a pair's elements of x or y. Where inner is 1 they are neighbours, which are read as words of
// up to 16 bytes if they lie at whole ones.
template <int count, bool neighbours>
struct PairReader {
  template <class T>
  static constexpr int word() {
    int bytes = 16;
    while (count * int(sizeof(T)) % bytes) bytes /= 2;
    return bytes > int(sizeof(T)) ? bytes / int(sizeof(T)) : 1;
  }
  template <class T>
  static __device__ bool is_whole(const T* first) {
    return neighbours && word<T>() > 1 &&
           reinterpret_cast<unsigned long long>(first) % (word<T>() * sizeof(T)) == 0;
  }
  template <class T>
  static __device__ void read(T* values, const T* from, Index inner, bool whole) {
    constexpr int size = word<T>();
    if (neighbours && size > 1 && whole) {
      UNROLLED for (int k = 0; k < count; k += size)
        *reinterpret_cast<Elements<T, size>*>(values + k) =
            *reinterpret_cast<const Elements<T, size>*>(from + k);
      return;
    }
    UNROLLED for (int k = 0; k < count; ++k) values[k] = from[neighbours ? k : k * inner];
  }
};

// neighbours: whether inner is 1. resident: thread blocks that a multiprocessor has at a time.
template <class T, int P, int Q, bool neighbours, int threads, int resident>
__global__ void __launch_bounds__(threads, resident) gram_registers(SmallGramArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int count = P * Q, warps = threads / 32, each = (count + 31) / 32;
  extern __shared__ __align__(16) unsigned char shared_memory[];  // warps * count elements of T
  T* const shared = reinterpret_cast<T*>(shared_memory);
  using XReader = PairReader<P, neighbours>;
  using YReader = PairReader<Q, neighbours>;
  const bool x_whole = XReader::is_whole(a.x), y_whole = YReader::is_whole(a.y);

  const Index step = Index(gridDim.x) * threads;
  Index n = Index(blockIdx.x) * threads + threadIdx.x;
  Index l = n / a.inner, r = n % a.inner;
  alignas(16) T x[P], y[Q];
  const auto read = [&] {
    XReader::read(x, a.x + l * P * a.inner + r, a.inner, x_whole);
    YReader::read(y, a.y + l * Q * a.inner + r, a.inner, y_whole);
  };
  T sums[count] = {};
  if (n < a.pairs) read();
  while (n < a.pairs) {
    alignas(16) T x_now[P], y_now[Q];
    UNROLLED for (int p = 0; p < P; ++p) x_now[p] = x[p];
    UNROLLED for (int q = 0; q < Q; ++q) y_now[q] = y[q];
    n += step;
    l += a.l_step;
    r += a.r_step;
    if (r >= a.inner) r -= a.inner, ++l;
    if (n < a.pairs) read();
    UNROLLED for (int p = 0; p < P; ++p)
      UNROLLED for (int q = 0; q < Q; ++q)
        sums[p * Q + q] = multiply_add(sums[p * Q + q], x_now[p], y_now[q]);
  }

  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  share_out<count, 16>(sums, lane);
  UNROLLED for (int i = 0; i < each; ++i) {
    const int number = shared_out<count, 16>(i, lane);
    if (number < count) shared[warp * count + number] = sums[i];
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < count; i += threads) {
    T sum{};
    for (int w = 0; w < warps; ++w) sum = add(sum, shared[w * count + i]);
    a.sums[Index(blockIdx.x) * count + i] = sum;
  }
}

}  // namespace batchkron
