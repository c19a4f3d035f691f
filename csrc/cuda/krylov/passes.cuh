// Kernels for passes of Krylov methods that are over single elements.
//
// Vectors are (systems, n), C-contiguous; they may be one and the same where a pass says so.
// krylov_whole: a thread block owns a system and does all passes, one after another, each thread
// always the same elements. krylov_part: one pass, in blocks of `parts` parts of every system; the
// last block of a system goes on with its scalars.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/krylov/block_sums.cuh"
#include "krylov/bicgstab.hpp"
#include "krylov/cg.hpp"
#include "krylov/gmres.hpp"
#include "krylov/minres.hpp"
#include "krylov/residual.hpp"

namespace batchkron {
namespace device {

// Passes that go through long vectors from their end. Every other one of an iteration does: it begins
// with what the one before, or the product with A, has left in the second-level cache.
template <class Pass>
constexpr bool kDescends = false;
template <class T>
constexpr bool kDescends<CgCurvature<T>> = true;
template <class T>
constexpr bool kDescends<CgDirection<T>> = true;
template <class T>
constexpr bool kDescends<MinresDiagonal<T>> = true;
template <class T>
constexpr bool kDescends<MinresUpdate<T>> = true;
template <class T>
constexpr bool kDescends<BicgstabProject<T>> = true;
template <class T>
constexpr bool kDescends<BicgstabSmoothing<T>> = true;
template <class T>
constexpr bool kDescends<BicgstabDirection<T>> = true;

// Elements `first`, first + stride, … of a system, and the sums of the thread block over them.
template <class Pass, int threads, class T>
void do_elements(const KrylovArguments<T>& a, Index system, Index first, Index stride,
                 double* room) {
  static_assert(Pass::sums <= kMaxSums, "the launch has room for so many");
  const typename Pass::Coefficients coefficients(System<T>{a, system});
  constexpr int sums = Pass::sums ? Pass::sums : 1;
  T* vectors[kVectors];
  for (int k = 0; k < kVectors; ++k) vectors[k] = a.vectors[k] + system * a.n;
  double sum[sums] = {};
  const Index count = first < a.n ? (a.n - first + stride - 1) / stride : 0, fours = count / 4;
  const auto do_fours = [&] {
    for (Index n = 0; n < fours; ++n) {
      const Index four = kDescends<Pass> ? fours - 1 - n : n;
      ElementCursor<T, 4> at{vectors, first + 4 * four * stride, sum, stride};
      Pass::each(coefficients, at);
    }
  };
  if constexpr (!kDescends<Pass>) do_fours();
  if (count % 4 >= 2) {
    ElementCursor<T, 2> at{vectors, first + 4 * fours * stride, sum, stride};
    Pass::each(coefficients, at);
  }
  if (count % 2 == 1) {
    ElementCursor<T> at{vectors, first + (count - 1) * stride, sum};
    Pass::each(coefficients, at);
  }
  if constexpr (kDescends<Pass>) do_fours();
  if constexpr (Pass::sums > 0)
    sum_of_block<threads, sums, Pass::maxima>(sum, room);
  else
    __syncthreads();  // all have read their coefficients
}

template <class Pass, int threads, class T>
void do_pass(const KrylovArguments<T>& a, double* room) {
  __syncthreads();  // the scalars that the pass before left
  const Index system = blockIdx.x;
  if (!passes(Pass::gate, a.progress[system])) return;
  do_elements<Pass, threads>(a, system, threadIdx.x, threads, room);
  if (threadIdx.x == 0) Pass::after(System<T>{a, system}, room);
}

}  // namespace device

template <class T, int threads, class... Passes>
__global__ void __launch_bounds__(threads) krylov_whole(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const room = reinterpret_cast<double*>(shared_memory);
  (device::do_pass<Passes, threads>(a, room), ...);
}

template <class T, int threads, class Pass>
__global__ void __launch_bounds__(threads) krylov_part(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const room = reinterpret_cast<double*>(shared_memory);
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
  if (!device::passes(Pass::gate, a.progress[system])) return;
  device::do_elements<Pass, threads>(a, system, part * threads + threadIdx.x, a.parts * threads,
                                     room);
  double* const flag = room + device::room_of_sums(threads, Pass::sums) - 1;
  if (!device::all_parts<T, Pass::maxima>(a, system, part, Pass::sums, room, flag)) return;
  if (threadIdx.x == 0) Pass::after(device::System<T>{a, system}, room);
}

}  // namespace batchkron
