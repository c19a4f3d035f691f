// How passes of Krylov methods (krylov.cuh) run on a device: elements, sums of a thread block, and
// sums of all blocks of a system, after which the last block to end goes on with its scalars.
#pragma once

#include "krylov.cuh"

namespace batchkron {
namespace device {

// Where a thread is in a pass: one element of each vector.
template <class T>
struct ElementCursor {
  T* const* vectors;
  Index i;
  double* sums;

  static Real<T> value(Real<T> x) { return x; }
  static Pair<Real<T>> value(Complex<Real<T>> x) { return {x.real, x.imag}; }
  static void store(Real<T>* p, Real<T> x) { *p = x; }
  static void store(Complex<Real<T>>* p, Pair<Real<T>> x) { *p = {x.real, x.imag}; }

  auto get(int k) const { return value(vectors[k][i]); }
  template <class Value>
  void put(int k, Value x) const {
    store(vectors[k] + i, x);
  }
  void add_product(int k, double a, double b) const { sums[k] += a * b; }
  void add_product(int k, Pair<double> a, Pair<double> b) const {
    sums[k] += a.real * b.real;
    sums[k] += a.imag * b.imag;
    sums[k + 1] += a.real * b.imag;
    sums[k + 1] -= a.imag * b.real;
  }
  void add_product(int k, Pair<float> a, Pair<float> b) const {
    add_product(k, Pair<double>{a.real, a.imag}, Pair<double>{b.real, b.imag});
  }
  void add_real_product(int k, double a, double b) const { sums[k] += a * b; }
  template <class R>
  void add_real_product(int k, Pair<R> a, Pair<R> b) const {
    sums[k] += double(a.real) * double(b.real);
    sums[k] += double(a.imag) * double(b.imag);
  }
  template <class Value>
  void add_square(int k, Value a) const {
    add_real_product(k, a, a);
  }
  void maximum(int k, double a) const { sums[k] = fabs(a) > sums[k] ? fabs(a) : sums[k]; }
  template <class R>
  void maximum(int k, Pair<R> a) const {
    maximum(k, double(a.real));
    maximum(k, double(a.imag));
  }
};

inline int lane() { return int(threadIdx.x) % 32; }
inline int warp() { return int(threadIdx.x) / 32; }

// The sum over a warp, or the maximum, in all its lanes, in the same order every time.
template <bool maxima = false>
inline double sum_of_warp(double value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, value, distance);
    if constexpr (maxima)
      value = other > value ? other : value;
    else
      value += other;
  }
  return value;
}

// Doubles of shared memory that the sums of a thread block take.
constexpr int room_of_sums(int threads, int sums) { return (threads / 32 + 1) * sums + 1; }

// Sums over the thread block, in room[0 … count): for all threads after the call.
template <int threads, int count, bool maxima>
inline void sum_of_block(const double (&value)[count], double* room) {
  for (int k = 0; k < count; ++k) {
    const double sum = sum_of_warp<maxima>(value[k]);
    if (lane() == 0) room[(1 + warp()) * count + k] = sum;
  }
  __syncthreads();
  if (int(threadIdx.x) < count) {
    double all = 0;
    for (int w = 1; w <= threads / 32; ++w) {
      const double sum = room[w * count + int(threadIdx.x)];
      all = maxima ? (sum > all ? sum : all) : all + sum;
    }
    room[threadIdx.x] = all;
  }
  __syncthreads();
}

// Takes the sums of one block, room[0 … count), for those of its part of a system. Returns whether
// the block is the last one; then room holds the sums over all parts, added in their order. `flag`
// is a double of shared memory.
template <class T, bool maxima>
inline bool all_parts(const KrylovArguments<T>& a, Index system, Index part, Index count,
                      double* room, double* flag) {
  if (a.parts <= 1) return true;
  double* mine = a.partial + (system * a.parts + part) * count;
  for (Index k = threadIdx.x; k < count; k += blockDim.x) mine[k] = room[k];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned before = atomicAdd(a.tickets + system, 1u);
    *flag = before + 1 == unsigned(a.parts);
    if (*flag != 0) a.tickets[system] = 0;
  }
  __syncthreads();
  if (*flag == 0) return false;
  __threadfence();
  const volatile double* all = a.partial + system * a.parts * count;
  for (Index k = warp(); k < count; k += int(blockDim.x) / 32) {
    double sum = 0;
    for (Index p = lane(); p < a.parts; p += 32) {
      const double one = all[p * count + k];
      sum = maxima ? (one > sum ? one : sum) : sum + one;
    }
    sum = sum_of_warp<maxima>(sum);
    if (lane() == 0) room[k] = sum;
  }
  __syncthreads();
  return true;
}

}  // namespace device
}  // namespace batchkron
