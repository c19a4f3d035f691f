// Sums of vectors as a step of a time stepper takes them:
//   y[i] = sum over k < vectors of numbers[k] x[k][i]   for i < count,
// with numbers that change from step to step while the kernel's arguments, in a CUDA graph, stay:
// they are in a table with a row for each step, and *step is the row. The arithmetic is that of
// cuda/vector_sum.cuh. If result >= 0, the sum over i of y[i]^2 goes to that column of the step's
// row of results, added up in an order that depends on the grid alone; y may be null then. The
// kernel that `ends` a step sets *step to the next row.
// All vectors are contiguous and aligned to an element. y may be one of the x[k], and overlaps the
// others nowhere. Any count.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"
#include "cuda/krylov/block_sums.cuh"

namespace batchkron {

template <class T, int vectors>
struct StepSumArguments {
  const T* x[vectors];
  T* y;
  const double* rows;  // (steps, width)
  Index* step;
  double* results;  // (steps, columns)
  double* partial;  // for a sum of each thread block
  unsigned* ended;  // thread blocks that have ended; 0 between kernels
  Index count, width, first, columns, result, ends;
};

template <class T, int threads, int vectors>
__global__ void __launch_bounds__(threads) step_sum(StepSumArguments<T, vectors> a) {
  wait_for_earlier_kernels();
  constexpr int held = 4;  // elements that a thread has at once; chosen by hand
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const room = reinterpret_cast<double*>(shared_memory);  // threads / 32 + 2 numbers
  const Index step = *a.step;
  const double* const row = a.rows + step * a.width + a.first;
  const Index stride = Index(gridDim.x) * threads;
  double squares[1] = {};
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < a.count; i += held * stride) {
    T sum[held];
    UNROLLED for (int k = 0; k < vectors; ++k) {
      const T number = T(row[k]);
      UNROLLED for (int e = 0; e < held; ++e) {
        const Index at = i + e * stride;
        if (at >= a.count) continue;
        const T x = a.x[k][at];
        sum[e] = k == 0 ? number * x : multiply_add(sum[e], number, x);
      }
    }
    UNROLLED for (int e = 0; e < held; ++e) {
      if (i + e * stride >= a.count) continue;
      if (a.y) a.y[i + e * stride] = sum[e];
      squares[0] += double(sum[e]) * double(sum[e]);
    }
  }
  if (a.result < 0 && !a.ends) return;
  device::sum_of_block<threads, 1, false>(squares, room);
  if (threadIdx.x == 0) {
    a.partial[blockIdx.x] = room[0];
    __threadfence();
    const bool is_last = atomicAdd(a.ended, 1u) + 1 == gridDim.x;
    room[threads / 32 + 1] = is_last;
    if (is_last) {
      *a.ended = 0;
      __threadfence();
    }
  }
  __syncthreads();
  if (room[threads / 32 + 1] == 0) return;
  device::add_parts<false, 1>(a.partial, Index(gridDim.x), 1, room);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (a.result >= 0) a.results[step * a.columns + a.result] = room[0];
  if (a.ends) *a.step = step + 1;
}

}  // namespace batchkron
