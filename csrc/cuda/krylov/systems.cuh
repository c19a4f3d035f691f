// Whole iterations of a Krylov method for small systems, each its own Kronecker sum.
//
// A thread block owns a system: its matrices are in shared memory and its vectors in registers,
// from one iteration to the next, until the system stops running or a.column iterations are done.
// The first `kept` of `count` vectors are read before and written after that, the others are
// scratch. What an iteration does are Stages: products with A (Product) and the passes of the
// method (Do), which are the same as for vectors in memory.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sum/one_system.cuh"
#include "cuda/krylov/passes.cuh"

namespace batchkron {
namespace device {

// What a thread block has of its system.
template <class T, class Sum, int count>
struct Place {
  const KrylovArguments<T>& arguments;
  const T* matrices;
  T* vector;     // that a product is taken with
  double* room;  // for sums
  T held[count][Sum::held];
};

// One element of each vector of a thread; vector k of a pass is the one at `order` k.
template <class T, int held, int... order>
struct HeldCursor : ElementCursor<T> {
  T (*own)[held];
  int e;

  static constexpr int which(int k) {
    const int all[] = {order...};
    return all[k];
  }
  auto operator[](int k) const { return this->value(own[which(k)][e]); }
  template <class Value>
  void put(int k, Value x) const {
    this->store(&own[which(k)][e], x);
  }
};

// A pass, of which vector k is the place's vector `order` k.
template <class Pass, int... order>
struct Do {
  template <class T, class Sum, int count>
  static void run(Place<T, Sum, count>& place) {
    static_assert(Pass::sums <= kMaxSums, "the launch has room for so many");
    __syncthreads();  // the scalars that the stage before left
    const System<T> system{place.arguments, Index(blockIdx.x)};
    if (!passes(Pass::gate, system.status())) return;
    const typename Pass::Coefficients coefficients(system);
    constexpr int sums = Pass::sums ? Pass::sums : 1;
    double sum[sums] = {};
    UNROLLED for (int e = 0; e < Sum::held; ++e) {
      if (!Sum::has(e)) continue;
      HeldCursor<T, Sum::held, order...> at{{nullptr, 0, sum}, place.held, e};
      Pass::each(coefficients, at);
    }
    if constexpr (Pass::sums > 0)
      sum_of_block<Sum::threads, sums, Pass::maxima>(sum, place.room);
    else
      __syncthreads();  // all have read their coefficients
    if (threadIdx.x == 0) Pass::after(system, place.room);
  }
};

// Vector `to` = A times vector `from`.
template <int from, int to>
struct Product {
  template <class T, class Sum, int count>
  static void run(Place<T, Sum, count>& place) {
    __syncthreads();
    const Index system = blockIdx.x;
    if (!passes(Gate::running, place.arguments.progress[system])) return;
    UNROLLED for (int e = 0; e < Sum::held; ++e)
      if (Sum::has(e)) place.vector[Sum::index(e)] = place.held[from][e];
    if (threadIdx.x == 0) System<T>{place.arguments, system}.at(kProducts) += 1;
    __syncthreads();
    T product[Sum::held] = {};
    Sum::multiply(place.matrices, place.vector, product);
    UNROLLED for (int e = 0; e < Sum::held; ++e) place.held[to][e] = product[e];
  }
};

}  // namespace device

template <class T, int modes>
struct SystemsArguments {
  device::KrylovArguments<T> krylov;
  SumFactors<T, modes> factors;
};

template <class T, class Sum, int kept, int count, class... Stages>
__global__ void __launch_bounds__(Sum::threads)
    krylov_systems(SystemsArguments<T, Sum::modes> arguments) {
  wait_for_earlier_kernels();
  const device::KrylovArguments<T>& a = arguments.krylov;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  T* const matrices = reinterpret_cast<T*>(shared_memory);
  T* const vector = matrices + Sum::matrix_elements;
  double* const room = reinterpret_cast<double*>(shared_memory) +
                       (Sum::matrix_elements + Sum::elements) * sizeof(T) / sizeof(double) + 1;
  const Index system = blockIdx.x;
  if (!device::passes(device::Gate::running, a.progress[system])) return;
  Sum::load(arguments.factors, system, matrices);
  device::Place<T, Sum, count> place{a, matrices, vector, room, {}};
  UNROLLED for (int k = 0; k < kept; ++k)
    UNROLLED for (int e = 0; e < Sum::held; ++e)
      if (Sum::has(e)) place.held[k][e] = a.vectors[k][system * Sum::elements + Sum::index(e)];
  for (Index step = 0; step < a.column; ++step) {
    (Stages::run(place), ...);
    __syncthreads();
    if (a.progress[system] != device::kRunning) break;
  }
  UNROLLED for (int k = 0; k < kept; ++k)
    UNROLLED for (int e = 0; e < Sum::held; ++e)
      if (Sum::has(e)) a.vectors[k][system * Sum::elements + Sum::index(e)] = place.held[k][e];
}

}  // namespace batchkron
