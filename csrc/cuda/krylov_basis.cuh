// Kernels for the passes of GMRES over its basis (krylov_gmres.cuh), which is (m + 1, systems, n).
//
// Thread blocks have `parts` parts of every system each; the last one of a system goes on with its
// scalars. A thread holds some elements of u and w while the basis passes by, once.
#pragma once

#include "krylov_device.cuh"
#include "krylov_gmres.cuh"

namespace batchkron {
namespace device {

constexpr int kHeld = 4;  // elements of a vector that a thread holds

template <class T>
using Value = Coefficient<T>;

template <class T>
struct BasisPart {
  using Cursor = ElementCursor<T>;
  const KrylovArguments<T>& a;
  Index system;

  T* slot(int vectors, Index k) const {
    return a.vectors[vectors] + (k * a.systems + system) * a.n;
  }
  static Value<T> load(const T* p, Index i, Index n) {
    return i < n ? Cursor::value(p[i]) : Value<T>{};
  }
};

// After the first exchange the lower half of a warp adds up one sum, the upper half the other.
// Lane 0 gets the sum of a, lane 16 that of b.
inline double sum_of_two(double a, double b) {
  const bool upper = lane() >= 16;
  double sum = (upper ? b : a) + __shfl_xor_sync(0xffffffffu, upper ? a : b, 16);
  for (int distance = 8; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

}  // namespace device

// a_i = q_i* u and c_i = q_i* w for i < column, |u|^2, u* w and |w|^2. A warp takes 32 kHeld
// elements at a time, and adds what it finds to sums of its own in shared memory, (warps, count).
template <class T, int threads>
__global__ void __launch_bounds__(threads) krylov_project(device::KrylovArguments<T> a) {
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  constexpr int reals = Field<T>::reals, warps = threads / 32;
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts, j = a.column;
  if (a.progress[system] != kRunning) return;
  const Index count = 2 * j * reals + 2 + reals;
  double* const room = reinterpret_cast<double*>(shared_memory);
  double* const flag = room + warps * count;
  double* const own = room + warp() * count;
  for (Index k = lane(); k < count; k += 32) own[k] = 0;
  __syncwarp();
  const BasisPart<T> at{a, system};
  const Real<T> unit = Real<T>(System<T>{a, system}.at(kOperator));
  const T* const u = at.slot(gmres::Basis, j);
  const T* const w = at.slot(gmres::Basis, j + 1);
  double last[2 + reals] = {};
  const Index stride = a.parts * warps * 32 * kHeld;
  for (Index tile = (part * warps + warp()) * 32 * kHeld; tile < a.n; tile += stride) {
    Value<T> held_u[kHeld], held_w[kHeld];
    for (int e = 0; e < kHeld; ++e) {
      const Index i = tile + e * 32 + lane();
      held_u[e] = at.load(u, i, a.n);
      held_w[e] = times(unit, at.load(w, i, a.n));
      const ElementCursor<T> sums{nullptr, 0, last};
      sums.add_real_product(0, held_u[e], held_u[e]);
      sums.add_product(1, held_u[e], held_w[e]);
      sums.add_real_product(1 + reals, held_w[e], held_w[e]);
    }
    for (Index k = 0; k < j; ++k) {
      const T* const q = at.slot(gmres::Basis, k);
      double both[2 * reals] = {};
      const ElementCursor<T> sums{nullptr, 0, both};
      for (int e = 0; e < kHeld; ++e) {
        const Value<T> value = at.load(q, tile + e * 32 + lane(), a.n);
        sums.add_product(0, value, held_u[e]);
        sums.add_product(reals, value, held_w[e]);
      }
      for (int r = 0; r < reals; ++r) {
        const double sum = sum_of_two(both[r], both[reals + r]);
        if (lane() % 16 == 0) own[(2 * k + lane() / 16) * reals + r] += sum;
      }
    }
  }
  for (int k = 0; k < 2 + reals; ++k) {
    const double sum = sum_of_warp(last[k]);
    if (lane() == 0) own[2 * j * reals + k] = sum;
  }
  __syncthreads();
  for (Index k = threadIdx.x; k < count; k += threads) {
    double sum = 0;
    for (int each = 0; each < warps; ++each) sum += room[each * count + k];
    room[k] = sum;
  }
  __syncthreads();
  if (!all_parts<T, false>(a, system, part, count, room, flag)) return;
  if (threadIdx.x == 0) gmres::projected(System<T>{a, system}, room);
}

// q = (u - Σ a_i q_i) / alpha, u' = (w - Σ c_i q_i - d q) / alpha, |u'|^2. The coefficients lie in
// shared memory behind the room for sums.
template <class T, int threads>
__global__ void __launch_bounds__(threads) krylov_extend(device::KrylovArguments<T> a) {
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts, j = a.column;
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  Value<T>* const first = reinterpret_cast<Value<T>*>(room + room_of_sums(threads, 1) + 1);
  Value<T>* const second = first + j;
  const System<T> own{a, system};
  const gmres::Triangle<T> t(own);
  for (Index k = threadIdx.x; k < j; k += threads) {
    first[k] = coefficient<T>(times(-1.0, t.first[k]));
    second[k] = coefficient<T>(times(-1.0, t.second[k]));
  }
  const Real<T> unit = Real<T>(own.at(kOperator)), inverse = Real<T>(own.at(gmres::kInverse));
  const Value<T> share = coefficient<T>(own.number(gmres::kShare));
  __syncthreads();
  const BasisPart<T> at{a, system};
  T* const u = at.slot(gmres::Basis, j);
  T* const w = at.slot(gmres::Basis, j + 1);
  double sum[1] = {};
  const Index stride = a.parts * threads * kHeld;
  for (Index tile = part * threads * kHeld; tile < a.n; tile += stride) {
    Value<T> held_u[kHeld], held_w[kHeld];
    for (int e = 0; e < kHeld; ++e) {
      const Index i = tile + e * threads + threadIdx.x;
      held_u[e] = at.load(u, i, a.n);
      held_w[e] = times(unit, at.load(w, i, a.n));
    }
#pragma unroll 2
    for (Index k = 0; k < j; ++k) {
      const T* const q = at.slot(gmres::Basis, k);
      for (int e = 0; e < kHeld; ++e) {
        const Value<T> value = at.load(q, tile + e * threads + threadIdx.x, a.n);
        held_u[e] = held_u[e] + times(first[k], value);
        held_w[e] = held_w[e] + times(second[k], value);
      }
    }
    for (int e = 0; e < kHeld; ++e) {
      const Index i = tile + e * threads + threadIdx.x;
      const Value<T> q = times(inverse, held_u[e]);
      const Value<T> next = times(inverse, held_w[e] - times(share, q));
      if (i < a.n) {
        ElementCursor<T>::store(u + i, q);
        ElementCursor<T>::store(w + i, next);
        ElementCursor<T>{nullptr, 0, sum}.add_real_product(0, next, next);
      }
    }
  }
  sum_of_block<threads, 1, false>(sum, room);
  if (!all_parts<T, false>(a, system, part, 1, room, room + room_of_sums(threads, 1) - 1)) return;
  if (threadIdx.x == 0) gmres::extended(own, *room);
}

// The trial solution: x + Σ y_i q_i; with an M that is still to be applied the sum alone.
template <class T, int threads>
__global__ void __launch_bounds__(threads) krylov_combine(device::KrylovArguments<T> a) {
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
  if (!passes(Gate::waiting, a.progress[system])) return;
  Value<T>* const shares = reinterpret_cast<Value<T>*>(shared_memory);
  const System<T> own{a, system};
  const gmres::Triangle<T> t(own);
  const Index count = Index(own.at(gmres::kKept));
  for (Index k = threadIdx.x; k < count; k += threads) shares[k] = coefficient<T>(t.solution[k]);
  __syncthreads();
  const bool flexible = own.has(kFlexible);
  const bool alone = own.has(kPreconditioned) && !flexible;
  const int basis = flexible ? gmres::Solutions : gmres::Basis;
  const BasisPart<T> at{a, system};
  const T* const x = at.slot(gmres::X, 0);
  T* const y = at.slot(gmres::Work, 0);
  const Index stride = a.parts * threads;
  for (Index i = part * threads + threadIdx.x; i < a.n; i += stride) {
    Value<T> sum = alone ? Value<T>{} : at.load(x, i, a.n);
    for (Index k = 0; k < count; ++k)
      sum = sum + times(shares[k], at.load(at.slot(basis, k), i, a.n));
    ElementCursor<T>::store(y + i, sum);
  }
}

}  // namespace batchkron
