// How passes of Krylov methods (krylov/common.hpp) run on a device: elements, sums of a thread block,
// and sums of all blocks of a system, after which the last block to end goes on with its scalars.
#pragma once

#include "cuda/common/unrolled.cuh"
#include "krylov/common.hpp"

namespace batchkron {
namespace device {

// Several numbers that a thread holds.
template <class R, int count>
struct Several {
  R at[count];
};

template <class R, int count>
inline Several<R, count> operator+(Several<R, count> a, const Several<R, count>& b) {
  for (int e = 0; e < count; ++e) a.at[e] = a.at[e] + b.at[e];
  return a;
}
template <class R, int count>
inline Several<R, count> operator-(Several<R, count> a, const Several<R, count>& b) {
  for (int e = 0; e < count; ++e) a.at[e] = a.at[e] - b.at[e];
  return a;
}
template <class R, int count>
inline Several<R, count> operator*(R c, Several<R, count> x) {
  for (int e = 0; e < count; ++e) x.at[e] = c * x.at[e];
  return x;
}

// Where a thread is in a pass: `count` elements of each vector, `stride` from one to the next. They
// are loaded before any is used, so that the device has many loads under way.
template <class T, int count = 1>
struct ElementCursor {
  using R = Real<T>;
  T* const* vectors;
  Index i;
  double* sums;
  Index stride = 0;

  static R value(R x) { return x; }
  static Pair<R> value(Complex<R> x) { return {x.real, x.imag}; }
  static void store(R* p, R x) { *p = x; }
  static void store(Complex<R>* p, Pair<R> x) { *p = {x.real, x.imag}; }

  auto operator[](int k) const {
    const T* const p = vectors[k] + i;
    if constexpr (count == 1) {
      return value(*p);
    } else if constexpr (Field<T>::reals == 1) {
      Several<R, count> x;
      for (int e = 0; e < count; ++e) x.at[e] = p[e * stride];
      return x;
    } else {
      Pair<Several<R, count>> x;
      for (int e = 0; e < count; ++e) {
        const T one = p[e * stride];
        x.real.at[e] = one.real;
        x.imag.at[e] = one.imag;
      }
      return x;
    }
  }
  template <class Value>
  void put(int k, Value x) const {
    store(vectors[k] + i, x);
  }
  void put(int k, Several<R, count> x) const {
    for (int e = 0; e < count; ++e) store(vectors[k] + i + e * stride, x.at[e]);
  }
  void put(int k, Pair<Several<R, count>> x) const {
    for (int e = 0; e < count; ++e)
      store(vectors[k] + i + e * stride, Pair<R>{x.real.at[e], x.imag.at[e]});
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
  void add_product(int k, const Several<R, count>& a, const Several<R, count>& b) const {
    for (int e = 0; e < count; ++e) add_product(k, a.at[e], b.at[e]);
  }
  void add_product(int k, const Pair<Several<R, count>>& a,
                   const Pair<Several<R, count>>& b) const {
    for (int e = 0; e < count; ++e)
      add_product(k, Pair<R>{a.real.at[e], a.imag.at[e]}, Pair<R>{b.real.at[e], b.imag.at[e]});
  }
  void add_real_product(int k, double a, double b) const { sums[k] += a * b; }
  template <class V>
  void add_real_product(int k, Pair<V> a, Pair<V> b) const {
    add_real_product(k, a.real, b.real);
    add_real_product(k, a.imag, b.imag);
  }
  void add_real_product(int k, const Several<R, count>& a, const Several<R, count>& b) const {
    for (int e = 0; e < count; ++e) sums[k] += double(a.at[e]) * double(b.at[e]);
  }
  template <class Value>
  void add_square(int k, Value a) const {
    add_real_product(k, a, a);
  }
  void maximum(int k, double a) const { sums[k] = fabs(a) > sums[k] ? fabs(a) : sums[k]; }
  void maximum(int k, const Several<R, count>& a) const {
    for (int e = 0; e < count; ++e) maximum(k, double(a.at[e]));
  }
  template <class V>
  void maximum(int k, Pair<V> a) const {
    maximum(k, a.real);
    maximum(k, a.imag);
  }
};

inline int lane() { return int(threadIdx.x) % 32; }
inline int warp() { return int(threadIdx.x) / 32; }

// The sum over a warp, or the maximum, in all its lanes, in the same order every time.
template <bool maxima = false>
inline double sum_of_warp(double value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, value, distance);
    if constexpr (maxima) value = other > value ? other : value;
    else value += other;
  }
  return value;
}

// The sums over a warp of several numbers at once: halves of the lanes take halves of the sums as
// long as there are several. Lane l gets number l count / 32.
template <int count, int distance = 16>
inline double sums_of_warp(const double (&value)[count]) {
  if constexpr (count == 1) {
    double sum = value[0];
    UNROLLED for (int d = distance; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    return sum;
  } else {
    static_assert(count % 2 == 0 && distance > 0, "a power of two, at most 32");
    constexpr int half = count / 2;
    const bool upper = lane() & distance;
    double sums[half];
    UNROLLED for (int k = 0; k < half; ++k) {
      const double given = upper ? value[k] : value[k + half];
      const double kept = upper ? value[k + half] : value[k];
      sums[k] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
    }
    return sums_of_warp<half, distance / 2>(sums);
  }
}

// The lanes of a warp as those who do the small arithmetic of a system together.
struct Warp {
  static constexpr Index size = 32;
  Index index() const { return lane(); }
  bool first() const { return lane() == 0; }
  void wait() const { __syncwarp(); }
};

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

// Adds what all parts of a system left of each sum, in the same order every time. A warp takes
// `together` sums at once: one block waits for memory here, and all others for it.
template <bool maxima, int together>
inline void add_parts(const volatile double* all, Index parts, Index count, double* room) {
  constexpr int ahead = 16 / together;  // loads under way of each sum
  const Index warps = blockDim.x / 32;
  for (Index k = warp(); k < count; k += together * warps) {
    double sums[together] = {};
    for (Index first = lane(); first < parts; first += 32 * ahead) {
      double one[together][ahead];
      UNROLLED for (int s = 0; s < together; ++s)
        UNROLLED for (int e = 0; e < ahead; ++e) {
          const Index p = first + 32 * e, number = k + s * warps;
          one[s][e] = p < parts && number < count ? all[number * parts + p] : 0;
        }
      UNROLLED for (int s = 0; s < together; ++s)
        UNROLLED for (int e = 0; e < ahead; ++e)
          sums[s] = maxima ? (one[s][e] > sums[s] ? one[s][e] : sums[s]) : sums[s] + one[s][e];
    }
    UNROLLED for (int s = 0; s < together; ++s) {
      const double sum = sum_of_warp<maxima>(sums[s]);
      if (lane() == 0 && k + s * warps < count) room[k + s * warps] = sum;
    }
  }
}

// Takes the sums of one block, room[0 … count), for those of its part of a system. Returns whether
// the block is the last one; then room holds the sums over all parts. `flag` is a double of shared
// memory.
template <class T, bool maxima>
inline bool all_parts(const KrylovArguments<T>& a, Index system, Index part, Index count,
                      double* room, double* flag) {
  if (a.parts <= 1) return true;
  double* const all = a.partial + system * a.parts * count;
  for (Index k = threadIdx.x; k < count; k += blockDim.x) all[k * a.parts + part] = room[k];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // for all threads of the block: they have waited for each other
    const unsigned before = atomicAdd(a.tickets + system, 1u);
    *flag = before + 1 == unsigned(a.parts);
    if (*flag != 0) {
      a.tickets[system] = 0;
      __threadfence();
    }
  }
  __syncthreads();
  if (*flag == 0) return false;
  if (count > Index(blockDim.x) / 32) add_parts<maxima, 4>(all, a.parts, count, room);
  else add_parts<maxima, 1>(all, a.parts, count, room);
  __syncthreads();
  return true;
}

}  // namespace device
}  // namespace batchkron
