// The passes of Krylov methods (krylov/common.hpp) over vectors of lanes.
#pragma once

#include "krylov/common.hpp"
#include "simd/common/vectors.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

struct EvenNumbers {
  static constexpr int at(int i) { return 2 * i; }
};
struct OddNumbers {
  static constexpr int at(int i) { return 2 * i + 1; }
};
template <int lanes, int first>
struct InTurns {
  static constexpr int at(int i) { return first + i / 2 + (i % 2 ? lanes : 0); }
};

// Several elements of T at once, and the same in double precision.
template <class R, int lanes>
struct LaneTypes {
  typedef R V __attribute__((vector_size(lanes * sizeof(R))));
  typedef double W __attribute__((vector_size(lanes * sizeof(double))));
  static BATCHKRON_INLINE W wide(V v) { return __builtin_convertvector(v, W); }
  static BATCHKRON_INLINE double sum(W w) {
    double parts[lanes], total = 0;
    __builtin_memcpy(parts, &w, sizeof w);
    for (double part : parts) total += part;
    return total;
  }
  static BATCHKRON_INLINE double maximum(W w) {
    double parts[lanes], limit = 0;
    __builtin_memcpy(parts, &w, sizeof w);
    for (double part : parts) limit = part > limit ? part : limit;
    return limit;
  }
};
template <class R>
struct LaneTypes<R, 1> {
  typedef R V;
  typedef double W;
  static double wide(V v) { return v; }
  static double sum(W w) { return w; }
  static double maximum(W w) { return w; }
};

template <class T, int lanes>
struct KrylovLanes : LaneTypes<Real<T>, lanes> {
  using V = typename LaneTypes<Real<T>, lanes>::V;
  static BATCHKRON_INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static BATCHKRON_INLINE void store(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
};
template <class R, int lanes>
struct KrylovLanes<Complex<R>, lanes> : LaneTypes<R, lanes> {
  using V = typename LaneTypes<R, lanes>::V;
  static BATCHKRON_INLINE Pair<V> load(const Complex<R>* p) {
    if constexpr (lanes == 1) {
      return {p->real, p->imag};
    } else {
      V a, b;
      __builtin_memcpy(&a, p, sizeof a);
      __builtin_memcpy(&b, p + lanes / 2, sizeof b);
      return {arrange<EvenNumbers>(a, b), arrange<OddNumbers>(a, b)};
    }
  }
  static BATCHKRON_INLINE void store(Complex<R>* p, Pair<V> v) {
    if constexpr (lanes == 1) {
      p->real = v.real;
      p->imag = v.imag;
    } else {
      const V a = arrange<InTurns<lanes, 0>>(v.real, v.imag);
      const V b = arrange<InTurns<lanes, lanes / 2>>(v.real, v.imag);
      __builtin_memcpy(static_cast<void*>(p), &a, sizeof a);
      __builtin_memcpy(static_cast<void*>(p + lanes / 2), &b, sizeof b);
    }
  }
};

// As many as fit in a vector in double precision, where they are summed.
template <class T>
constexpr int kKrylovLanes = BATCHKRON_VECTOR_BYTES / int(sizeof(double));

// Sums of lanes: products are formed in double precision.
template <class T, int lanes>
struct LaneSums {
  using L = KrylovLanes<T, lanes>;
  using V = typename L::V;
  using W = typename L::W;

  static BATCHKRON_INLINE void add_product(W* sum, V a, V b) { sum[0] += L::wide(a) * L::wide(b); }
  static BATCHKRON_INLINE void add_product(W* sum, Pair<V> a, Pair<V> b) {
    const W ar = L::wide(a.real), ai = L::wide(a.imag);
    const W br = L::wide(b.real), bi = L::wide(b.imag);
    sum[0] += ar * br;
    sum[0] += ai * bi;
    sum[1] += ar * bi;
    sum[1] -= ai * br;
  }
  static BATCHKRON_INLINE void add_real_product(W* sum, V a, V b) { add_product(sum, a, b); }
  static BATCHKRON_INLINE void add_real_product(W* sum, Pair<V> a, Pair<V> b) {
    sum[0] += L::wide(a.real) * L::wide(b.real);
    sum[0] += L::wide(a.imag) * L::wide(b.imag);
  }
  static BATCHKRON_INLINE void maximum(W* limit, V a) {
    const W wide = L::wide(a), size = wide < 0 ? -wide : wide;
    *limit = size > *limit ? size : *limit;
  }
  static BATCHKRON_INLINE void maximum(W* limit, Pair<V> a) {
    maximum(limit, a.real);
    maximum(limit, a.imag);
  }
};

// Where a pass is: `lanes` elements of each vector, from element i on.
template <class T, int lanes>
struct KrylovCursor {
  using L = KrylovLanes<T, lanes>;
  using S = LaneSums<T, lanes>;
  T* const* vectors;
  Index i;
  typename L::W* sums;

  BATCHKRON_INLINE auto operator[](int k) const { return L::load(vectors[k] + i); }
  template <class Value>
  BATCHKRON_INLINE void put(int k, Value value) const {
    L::store(vectors[k] + i, value);
  }
  template <class Value>
  BATCHKRON_INLINE void add_product(int k, Value a, Value b) const {
    S::add_product(sums + k, a, b);
  }
  template <class Value>
  BATCHKRON_INLINE void add_real_product(int k, Value a, Value b) const {
    S::add_real_product(sums + k, a, b);
  }
  template <class Value>
  BATCHKRON_INLINE void add_square(int k, Value a) const {
    S::add_real_product(sums + k, a, a);
  }
  template <class Value>
  BATCHKRON_INLINE void maximum(int k, Value a) const {
    S::maximum(sums + k, a);
  }
};

template <class Pass, class T>
struct PassOnLanes {
  static constexpr int lanes = kKrylovLanes<T>;
  static constexpr int copies = Pass::sums ? 4 : 1;  // of the sums: additions overlap
  static constexpr int sums = Pass::sums ? Pass::sums : 1;
  using Wide = typename KrylovLanes<T, lanes>::W;

  static Index count(const void*) { return Pass::sums; }
  static bool is_for(int progress) { return passes(Pass::gate, progress); }

  static void after(const void* arguments, Index system, const double* total) {
    Pass::after(System<T>{*static_cast<const KrylovArguments<T>*>(arguments), system}, total);
  }

  static void part(const void* given, Index system, Index begin, Index end, double* total) {
    const auto& arguments = *static_cast<const KrylovArguments<T>*>(given);
    const typename Pass::Coefficients coefficients(System<T>{arguments, system});
    T* vectors[kVectors];
    for (int k = 0; k < kVectors; ++k) vectors[k] = arguments.vectors[k] + system * arguments.n;
    Wide sum[copies * sums] = {};
    Index i = begin;
    for (; i + copies * lanes <= end; i += copies * lanes) {
      BATCHKRON_UNROLL
      for (int copy = 0; copy < copies; ++copy) {
        KrylovCursor<T, lanes> at{vectors, i + copy * lanes, sum + copy * sums};
        Pass::each(coefficients, at);
      }
    }
    for (; i + lanes <= end; i += lanes) {
      KrylovCursor<T, lanes> at{vectors, i, sum};
      Pass::each(coefficients, at);
    }
    double rest[sums] = {};
    for (; i < end; ++i) {
      KrylovCursor<T, 1> at{vectors, i, rest};
      Pass::each(coefficients, at);
    }
    using L = KrylovLanes<T, lanes>;
    for (int k = 0; k < Pass::sums; ++k) {
      if constexpr (Pass::maxima) {
        total[k] = rest[k];
        for (int copy = 0; copy < copies; ++copy) {
          const double limit = L::maximum(sum[copy * sums + k]);
          total[k] = limit > total[k] ? limit : total[k];
        }
      } else {
        Wide all = sum[k];
        for (int copy = 1; copy < copies; ++copy) all += sum[copy * sums + k];
        total[k] = L::sum(all) + rest[k];
      }
    }
  }

  static constexpr KrylovPass entry(const char* name) {
    return {name, Pass::maxima, is_for, count, part, after};
  }
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
