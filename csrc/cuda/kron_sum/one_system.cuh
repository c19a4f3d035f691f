// A Kronecker sum that one thread block applies to one vector in shared memory:
//
//   y[i_1, …, i_d] = Σ_m Σ_c A_m[i_m, c] x[i_1, …, c, …, i_d]
//
// Thread t has elements t, t + threads, t + 2 threads, … of y in registers; x and the matrices are
// in shared memory, so that neighbouring threads read neighbouring elements, or the same one.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// Where the matrices of each mode are, column by column: from one system to the next it is `system`
// elements, 0 where all share one.
template <class T, int modes>
struct SumFactors {
  const T* data[modes];
  Index system[modes];
};

template <class T, int block, int... sizes>
struct SystemSum {
  using Factors = SumFactors<T, sizeof...(sizes)>;
  static constexpr int threads = block;
  static constexpr int modes = sizeof...(sizes);
  static constexpr int elements = (sizes * ...);
  static constexpr int held = (elements + threads - 1) / threads;  // elements of a thread
  static constexpr int matrix_elements = ((sizes * sizes) + ...);
  static constexpr int kMaxUnrolled = 128;  // multiply-adds

  static constexpr int size(int mode) {
    const int all[] = {sizes...};
    return all[mode];
  }
  static constexpr int behind(int mode) {
    int product = 1;
    for (int m = mode + 1; m < modes; ++m) product *= size(m);
    return product;
  }
  static constexpr int begin(int mode) {
    int sum = 0;
    for (int m = 0; m < mode; ++m) sum += size(m) * size(m);
    return sum;
  }

  // Whether the thread has an element e, and which it is of the vector.
  static bool has(int e) {
    return (e + 1) * threads <= elements || index(e) < elements;
  }
  static int index(int e) { return int(threadIdx.x) + e * threads; }

  // Copies the matrices of a system to shared memory, one mode after another.
  template <int mode = 0>
  static void load(const Factors& factors, Index system, T* matrices) {
    constexpr int n = size(mode);
    const T* source = factors.data[mode] + system * factors.system[mode];
    for (int i = threadIdx.x; i < n * n; i += threads) matrices[begin(mode) + i] = source[i];
    if constexpr (mode + 1 < modes) load<mode + 1>(factors, system, matrices);
  }

  // y += A x from `mode` on, for the elements of the thread.
  template <int mode = 0>
  static void multiply(const T* matrices, const T* x, T (&y)[held]) {
    constexpr int n = size(mode), stride = behind(mode);
    constexpr bool one_row = threads % (stride * n) == 0;  // all elements of a thread have one
    constexpr int wanted = kMaxUnrolled / held;
    constexpr int unrolled = n <= wanted ? n : wanted > 0 ? wanted : 1;
    const T* const matrix = matrices + begin(mode);
    int row[held], first[held];
    for (int e = 0; e < held; ++e) {
      // where `stride` threads are a block, the compiler knows the row
      const int along = threads == stride ? e : index(e) / stride;
      row[e] = has(e) ? along % n : 0;
      first[e] = has(e) ? index(e) - row[e] * stride : 0;
    }
#pragma unroll unrolled
    for (int c = 0; c < n; ++c) {
      if constexpr (one_row) {
        const T entry = matrix[c * n + row[0]];
#pragma unroll
        for (int e = 0; e < held; ++e) y[e] = multiply_add(y[e], entry, x[first[e] + c * stride]);
      } else {
#pragma unroll
        for (int e = 0; e < held; ++e)
          y[e] = multiply_add(y[e], matrix[c * n + row[e]], x[first[e] + c * stride]);
      }
    }
    if constexpr (mode + 1 < modes) multiply<mode + 1>(matrices, x, y);
  }
};

}  // namespace batchkron
