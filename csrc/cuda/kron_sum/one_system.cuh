// A Kronecker sum that one thread block applies to one vector in shared memory:
//   y[i_1, …, i_d] = Σ_m Σ_c A_m[i_m, c] x[i_1, …, c, …, i_d]
// x and the matrices are in shared memory; thread t computes elements t, t + threads, t + 2
// threads, … of y in registers, so that neighbouring threads read neighbouring elements, or the
// same one. Sums run over m, then over c in order, with one accumulator.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// The matrices of each mode in global memory: A_m[k, c] of system s is data[m][s * system[m] +
// c * n_m + k]. system[m] is 0 if all systems share the matrix.
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
  static constexpr int held = (elements + threads - 1) / threads;  // elements of y of a thread
  static constexpr int matrix_elements = ((sizes * sizes) + ...);  // of all modes
  // Multiply-adds of a thread up to which the loop over c is unrolled; chosen by hand.
  static constexpr int kMaxUnrolled = 128;

  static constexpr int size(int mode) {
    const int all[] = {sizes...};
    return all[mode];
  }
  // The product of the sizes of the modes behind this one: elements between its neighbours.
  static constexpr int behind(int mode) {
    int product = 1;
    for (int m = mode + 1; m < modes; ++m) product *= size(m);
    return product;
  }
  // Where a mode's matrix begins in shared memory.
  static constexpr int begin(int mode) {
    int sum = 0;
    for (int m = 0; m < mode; ++m) sum += size(m) * size(m);
    return sum;
  }

  // Whether the thread has a register e, and which element of the vector is in it.
  static bool has(int e) { return (e + 1) * threads <= elements || index(e) < elements; }
  static int index(int e) { return int(threadIdx.x) + e * threads; }

  // Copies the matrices of a system to shared memory, one mode after another.
  template <int mode = 0>
  static void load(const Factors& factors, Index system, T* matrices) {
    constexpr int n = size(mode);
    const T* source = factors.data[mode] + system * factors.system[mode];
    for (int i = threadIdx.x; i < n * n; i += threads) matrices[begin(mode) + i] = source[i];
    if constexpr (mode + 1 < modes) load<mode + 1>(factors, system, matrices);
  }

  // Adds the terms of `mode` and of all modes behind it to the thread's elements of y.
  template <int mode = 0>
  static void multiply(const T* matrices, const T* x, T (&y)[held]) {
    constexpr int n = size(mode), stride = behind(mode);
    // Whether all elements of a thread have the same index i_m, so that they share a load of A_m.
    constexpr bool one_row = threads % (stride * n) == 0;
    constexpr int wanted = kMaxUnrolled / held;
    constexpr int unrolled = n <= wanted ? n : wanted > 0 ? wanted : 1;
    const T* const matrix = matrices + begin(mode);
    int row[held], first[held];
    for (int e = 0; e < held; ++e) {
      // If the thread block has `stride` threads, the index is known at compile time.
      const int along = threads == stride ? e : index(e) / stride;
      row[e] = has(e) ? along % n : 0;
      first[e] = has(e) ? index(e) - row[e] * stride : 0;
    }
    UNROLLED_BY(unrolled) for (int c = 0; c < n; ++c) {
      if constexpr (one_row) {
        const T entry = matrix[c * n + row[0]];
        UNROLLED for (int e = 0; e < held; ++e)
          y[e] = multiply_add(y[e], entry, x[first[e] + c * stride]);
      } else {
        UNROLLED for (int e = 0; e < held; ++e)
          y[e] = multiply_add(y[e], matrix[c * n + row[e]], x[first[e] + c * stride]);
      }
    }
    if constexpr (mode + 1 < modes) multiply<mode + 1>(matrices, x, y);
  }
};

}  // namespace batchkron
