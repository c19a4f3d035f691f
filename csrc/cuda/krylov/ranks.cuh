// Kernels for passes over vectors of which each process (rank) has a part, on a device of its own.
//
// A pass with sums is two kernels. The first one is the pass over this rank's elements; it leaves
// the sums of each system, `count` of them, at `sums` (systems, count). The ranks then exchange
// these. The second kernel adds the sums of all ranks, `gathered` (ranks, systems, count), in the
// order of ranks, and goes on with the scalars: so all ranks have the same ones, in every run.
// The sums of systems that a pass is not for are exchanged, too, and not used.
#pragma once

#include "cuda/krylov/basis.cuh"
#include "cuda/krylov/passes.cuh"

namespace batchkron {
namespace device {

template <class T>
struct RankArguments {
  KrylovArguments<T> own;
  double* sums;            // (systems, count)
  const double* gathered;  // (ranks, systems, count)
  Index ranks, count;
};

// Sum number k of a system over all ranks, or the maximum.
template <bool maxima, class T>
inline double over_ranks(const RankArguments<T>& a, Index system, Index k) {
  const Index distance = a.own.systems * a.count;
  const double* one = a.gathered + system * a.count + k;
  double all = *one;
  for (Index rank = 1; rank < a.ranks; ++rank) {
    one += distance;
    all = maxima ? (*one > all ? *one : all) : all + *one;
  }
  return all;
}

}  // namespace device

template <class T, int threads, class Pass>
__global__ void __launch_bounds__(threads) krylov_part_sums(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const room = reinterpret_cast<double*>(shared_memory);
  const device::KrylovArguments<T>& a = r.own;
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
  if (!device::passes(Pass::gate, a.progress[system])) return;
  device::do_elements<Pass, threads>(a, system, part * threads + threadIdx.x, a.parts * threads,
                                     room);
  double* const flag = room + device::room_of_sums(threads, Pass::sums) - 1;
  if (!device::all_parts<T, Pass::maxima>(a, system, part, Pass::sums, room, flag)) return;
  if (threadIdx.x < Pass::sums) r.sums[system * r.count + threadIdx.x] = room[threadIdx.x];
}

// A thread for each system.
template <class T, int threads, class Pass>
__global__ void __launch_bounds__(threads) krylov_after_sums(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  const Index system = Index(blockIdx.x) * threads + threadIdx.x;
  if (system >= r.own.systems) return;
  if (!device::passes(Pass::gate, r.own.progress[system])) return;
  double sums[Pass::sums];
  for (int k = 0; k < Pass::sums; ++k) sums[k] = device::over_ranks<Pass::maxima>(r, system, k);
  Pass::after(device::System<T>{r.own, system}, sums);
}

// The inner products of a step of GMRES. Shared memory: (warps, count) sums and a flag.
template <class T, int threads>
__global__ void __launch_bounds__(threads, 512 / threads)
    krylov_project_sums(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const KrylovArguments<T>& a = r.own;
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts, count = products(a);
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  project_part<T, threads>({a, system}, part, count, room);
  if (!all_parts<T, false>(a, system, part, count, room, room + threads / 32 * count)) return;
  for (Index k = threadIdx.x; k < count; k += threads) r.sums[system * r.count + k] = room[k];
}

// What follows from them: a warp for each system. Shared memory: `count` sums.
template <class T>
__global__ void __launch_bounds__(32) krylov_after_project(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  double* const room = reinterpret_cast<double*>(shared_memory);
  const Index system = blockIdx.x;
  if (r.own.progress[system] != kRunning) return;
  for (Index k = lane(); k < r.count; k += 32) room[k] = over_ranks<false>(r, system, k);
  __syncwarp();
  const System<T> own{r.own, system};
  gmres::projected(own, gmres::Triangle<T>(own), room, Warp{});
}

// The next vectors of the basis. Shared memory: sums of a block, a flag, 2 m coefficients.
template <class T, int threads>
__global__ void __launch_bounds__(threads) krylov_extend_sums(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const KrylovArguments<T>& a = r.own;
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  double* const flag = room + room_of_sums(threads, 1) - 1;
  const System<T> own{a, system};
  extend_part<T, threads>({a, system}, part, gmres::Triangle<T>(own),
                          reinterpret_cast<Value<T>*>(flag + 1), room);
  if (!all_parts<T, false>(a, system, part, 1, room, flag)) return;
  if (threadIdx.x == 0) r.sums[system * r.count] = room[0];
}

template <class T>
__global__ void __launch_bounds__(32) krylov_after_extend(device::RankArguments<T> r) {
  wait_for_earlier_kernels();
  using namespace device;
  const Index system = blockIdx.x;
  if (r.own.progress[system] != kRunning) return;
  const System<T> own{r.own, system};
  gmres::extended(own, gmres::Triangle<T>(own), over_ranks<false>(r, system, 0), Warp{});
}

}  // namespace batchkron
