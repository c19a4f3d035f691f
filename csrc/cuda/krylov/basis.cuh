// Kernels for the passes of GMRES over its basis (krylov/gmres.hpp), which is (m + 1, systems, n).
//
// Thread blocks have `parts` parts of every system each; the last one of a system goes on with its
// scalars. A thread holds some elements of u and w while the basis passes by, once, a few vectors
// at a time, whose loads are all under way before the first is used. Where a block owns a system, a
// step is one kernel.
//
// With `staged` the small arrays of a system are in shared memory while a warp works on them.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/krylov/block_sums.cuh"
#include "krylov/gmres.hpp"

namespace batchkron {
namespace device {

constexpr int kThreadElements = 4;  // elements of a vector that a thread holds
// Threads that share the elements of a vector; as many more share the basis in the inner products,
// and hold fewer elements in the corrections.
constexpr int kRow = 256;
// Basis vectors whose elements it loads at once: 128 bytes, with which a chip full of threads keeps
// the memory busy.
template <class T>
constexpr int kTogether = sizeof(T) > 8 ? 2 : 4;

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

// The small arrays of a system where a warp works on them, and back to where they are kept.
template <class T, int threads, bool staged>
struct SmallArrays {
  const System<T> system;
  double* const shared;

  gmres::Triangle<T> arrays() const {
    return {system, staged ? shared : gmres::Triangle<T>::vectors_of(system)};
  }
  // All threads call these; what other threads wrote is there after a barrier.
  void fetch() const { copy(gmres::Triangle<T>::vectors_of(system), shared); }
  void keep() const { copy(shared, gmres::Triangle<T>::vectors_of(system)); }

  void copy(const double* from, double* to) const {
    if constexpr (staged) {
      const Index count = gmres::Triangle<T>::vectors_size(system.arguments.restart);
      for (Index i = threadIdx.x; i < count; i += threads) to[i] = from[i];
    }
  }
};

// Adds a_k = q_k* u and c_k = q_k* w for k < column, |u|^2, u* w and |w|^2 over a part of a system,
// to room[0 … count) for all threads after the call. A warp takes 32 kThreadElements at a time of
// its share of the basis where there are more threads than kRow, and adds what it finds to sums of
// its own, (warps, count) of them in `room`.
template <class T, int threads>
inline void project_part(const BasisPart<T>& at, Index part, Index count, double* room) {
  constexpr int reals = Field<T>::reals, warps = threads / 32;
  constexpr int together = kTogether<T>, sums = 2 * reals * together;
  constexpr int shares = threads > kRow ? threads / kRow : 1, row = warps / shares;
  const Index share = warp() / row;
  const KrylovArguments<T>& a = at.a;
  const Index j = a.column;
  double* const own = room + warp() * count;
  for (Index k = lane(); k < count; k += 32) own[k] = 0;
  __syncwarp();
  const Real<T> unit = Real<T>(System<T>{a, at.system}.at(kOperator));
  const T* const u = at.slot(GmresVectors::basis, j);
  const T* const w = at.slot(GmresVectors::basis, j + 1);
  double last[2 + reals] = {};
  const Index step = 32 * kThreadElements, stride = a.parts * row * step;
  for (Index tile = (part * row + warp() % row) * step; tile < a.n; tile += stride) {
    Value<T> held_u[kThreadElements], held_w[kThreadElements];
    for (int e = 0; e < kThreadElements; ++e) {
      const Index i = tile + e * 32 + lane();
      held_u[e] = at.load(u, i, a.n);
      held_w[e] = at.load(w, i, a.n);
    }
    Value<T> q[together][kThreadElements];
    const auto ask = [&](Index k) {
      UNROLLED for (int s = 0; s < together; ++s) {
        const T* const p = at.slot(GmresVectors::basis, k + s);
        for (int e = 0; e < kThreadElements; ++e)
          q[s][e] = at.load(p, tile + e * 32 + lane(), k + s < j ? a.n : 0);
      }
    };
    constexpr bool early = reals == 1;  // complex ones would take too many registers
    if constexpr (early) ask(share * together);  // on their way while u and w come
    for (int e = 0; e < kThreadElements; ++e) held_w[e] = times(unit, held_w[e]);
    const ElementCursor<T> ends{nullptr, 0, last};
    for (int e = 0; e < kThreadElements && share == 0; ++e) {
      ends.add_real_product(0, held_u[e], held_u[e]);
      ends.add_product(1, held_u[e], held_w[e]);
      ends.add_real_product(1 + reals, held_w[e], held_w[e]);
    }
    for (Index k = share * together; k < j; k += shares * together) {
      if constexpr (!early) ask(k);
      double found[sums] = {};
      UNROLLED for (int s = 0; s < together; ++s) {
        const ElementCursor<T> both{nullptr, 0, found + 2 * reals * s};
        for (int e = 0; e < kThreadElements; ++e) {
          both.add_product(0, q[s][e], held_u[e]);
          both.add_product(reals, q[s][e], held_w[e]);
        }
      }
      if constexpr (early) ask(k + shares * together);
      const double sum = sums_of_warp(found);
      const Index place = 2 * reals * k + lane() * sums / 32;
      if (lane() % (32 / sums) == 0 && place < 2 * reals * j) own[place] += sum;
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
}

// q = (u - Σ a_k q_k) / alpha, u' = (w - Σ c_k q_k - d q) / alpha over a part of a system, and |u'|^2
// to room[0] for all threads after the call. `shares` is shared memory for 2 m coefficients.
template <class T, int threads>
inline void extend_part(const BasisPart<T>& at, Index part, const gmres::Triangle<T>& t,
                        Value<T>* shares, double* room) {
  const KrylovArguments<T>& a = at.a;
  const System<T> own{a, at.system};
  const Index j = a.column;
  Value<T>* const first = shares;
  Value<T>* const second = shares + j;
  for (Index k = threadIdx.x; k < j; k += threads) {
    first[k] = coefficient<T>(times(-1.0, t.first[k]));
    second[k] = coefficient<T>(times(-1.0, t.second[k]));
  }
  const Real<T> unit = Real<T>(own.at(kOperator)), inverse = Real<T>(own.at(gmres::kInverse));
  const Value<T> share = coefficient<T>(own.number(gmres::kShare));
  __syncthreads();
  T* const u = at.slot(GmresVectors::basis, j);
  T* const w = at.slot(GmresVectors::basis, j + 1);
  double sum[1] = {};
  constexpr int held = threads > kRow ? kThreadElements * kRow / threads : kThreadElements;
  constexpr int together = 4 * kThreadElements / (held * Field<T>::reals);  // loads under way
  const Index slots = a.systems * a.n;  // elements from a vector of the basis to the next one
  const Index stride = a.parts * threads * held;
  for (Index tile = part * threads * held; tile < a.n; tile += stride) {
    Value<T> held_u[held], held_w[held];
    for (int e = 0; e < held; ++e) {
      const Index i = tile + e * threads + threadIdx.x;
      held_u[e] = at.load(u, i, a.n);
      held_w[e] = times(unit, at.load(w, i, a.n));
    }
    for (Index k = 0; k < j; k += together) {
      Value<T> q[together][held];
      const T* p = at.slot(GmresVectors::basis, k);
      UNROLLED for (int s = 0; s < together; ++s, p += slots)
        for (int e = 0; e < held; ++e)
          q[s][e] = at.load(p, tile + e * threads + threadIdx.x, k + s < j ? a.n : 0);
      UNROLLED for (int s = 0; s < together; ++s) {
        if (k + s >= j) break;
        for (int e = 0; e < held; ++e) {
          held_u[e] = held_u[e] + times(first[k + s], q[s][e]);
          held_w[e] = held_w[e] + times(second[k + s], q[s][e]);
        }
      }
    }
    for (int e = 0; e < held; ++e) {
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
}

// How many sums krylov_project leaves.
template <class T>
inline Index products(const KrylovArguments<T>& a) {
  constexpr int reals = Field<T>::reals;
  return 2 * a.column * reals + 2 + reals;
}

}  // namespace device

// The inner products of a step, and what follows from them. Shared memory: (warps, count) sums, a
// flag, with `staged` the small arrays.
template <class T, int threads, bool staged>
__global__ void __launch_bounds__(threads, 512 / threads) krylov_project(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts, count = products(a);
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  double* const flag = room + threads / 32 * count;
  const SmallArrays<T, threads, staged> small{{a, system}, flag + 1};
  small.fetch();  // by all blocks: the last one will not have to wait for them
  project_part<T, threads>({a, system}, part, count, room);
  if (!all_parts<T, false>(a, system, part, count, room, flag)) return;
  if (warp() == 0) gmres::projected(small.system, small.arrays(), room, Warp{});
  __syncthreads();
  small.keep();
}

// The next vectors of the basis, and what follows from their norm. Shared memory: sums of a block,
// a flag, with `staged` the small arrays, 2 m coefficients.
template <class T, int threads, bool staged>
__global__ void __launch_bounds__(threads) krylov_extend(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Index system = blockIdx.x / a.parts, part = blockIdx.x % a.parts;
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  double* const flag = room + room_of_sums(threads, 1) - 1;
  const SmallArrays<T, threads, staged> small{{a, system}, flag + 1};
  double* const behind =
      small.shared + (staged ? gmres::Triangle<T>::vectors_size(a.restart) : 0);
  small.fetch();
  __syncthreads();
  extend_part<T, threads>({a, system}, part, small.arrays(), reinterpret_cast<Value<T>*>(behind),
                          room);
  if (!all_parts<T, false>(a, system, part, 1, room, flag)) return;
  if (warp() == 0) gmres::extended(small.system, small.arrays(), room[0], Warp{});
  __syncthreads();
  small.keep();
}

// Both, where a thread block owns a system. Shared memory: (warps, count) sums, a flag, with
// `staged` the small arrays, 2 m coefficients.
template <class T, int threads, bool staged>
__global__ void __launch_bounds__(threads, 512 / threads) krylov_step(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
  using namespace device;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Index system = blockIdx.x, count = products(a);
  if (a.progress[system] != kRunning) return;
  double* const room = reinterpret_cast<double*>(shared_memory);
  const SmallArrays<T, threads, staged> small{{a, system}, room + threads / 32 * count + 1};
  double* const behind =
      small.shared + (staged ? gmres::Triangle<T>::vectors_size(a.restart) : 0);
  const gmres::Triangle<T> t = small.arrays();
  small.fetch();
  project_part<T, threads>({a, system}, 0, count, room);
  if (warp() == 0) gmres::projected(small.system, t, room, Warp{});
  __syncthreads();
  if (a.progress[system] == kRunning) {
    extend_part<T, threads>({a, system}, 0, t, reinterpret_cast<Value<T>*>(behind), room);
    if (warp() == 0) gmres::extended(small.system, t, room[0], Warp{});
    __syncthreads();
  }
  small.keep();
}

// The trial solution: x + Σ y_i q_i; with an M that is still to be applied the sum alone.
template <class T, int threads>
__global__ void __launch_bounds__(threads) krylov_combine(device::KrylovArguments<T> a) {
  wait_for_earlier_kernels();
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
  const int basis = flexible ? GmresVectors::solutions : GmresVectors::basis;
  const BasisPart<T> at{a, system};
  const T* const x = at.slot(GmresVectors::x, 0);
  T* const y = at.slot(GmresVectors::work, 0);
  const Index stride = a.parts * threads;
  for (Index i = part * threads + threadIdx.x; i < a.n; i += stride) {
    Value<T> sum = alone ? Value<T>{} : at.load(x, i, a.n);
    constexpr int together = 8;
    for (Index k = 0; k < count; k += together) {
      Value<T> q[together];
      UNROLLED for (int s = 0; s < together; ++s)
        q[s] = at.load(at.slot(basis, k + s), i, k + s < count ? a.n : 0);
      UNROLLED for (int s = 0; s < together; ++s)
        if (k + s < count) sum = sum + times(shares[k + s], q[s]);
    }
    ElementCursor<T>::store(y + i, sum);
  }
}

}  // namespace batchkron
