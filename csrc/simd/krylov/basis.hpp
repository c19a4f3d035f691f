// The passes of GMRES over its basis (krylov/gmres.hpp), in blocks of elements that stay in the
// first-level cache while the basis passes by.
#pragma once

#include "krylov/gmres.hpp"
#include "simd/krylov/passes.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
struct BasisPasses {
  static constexpr int lanes = kKrylovLanes<T>;
  static constexpr int reals = Field<T>::reals;
  static constexpr Index block = 4096 / Index(sizeof(T));
  static constexpr int together = 4;  // basis vectors whose multiples are added in one go
  using Arguments = KrylovArguments<T>;
  using N = Number<T>;

  static const Arguments& of(const void* arguments) {
    return *static_cast<const Arguments*>(arguments);
  }
  static T* slot(const Arguments& a, int vectors, Index system, Index k) {
    return a.vectors[vectors] + (k * a.systems + system) * a.n;
  }
  static bool runs(int progress) { return passes(Gate::running, progress); }
  static bool waits(int progress) { return passes(Gate::waiting, progress); }
  static Index none(const void*) { return 0; }
  static Index one(const void*) { return 1; }
  static void nothing(const void*, Index, const double*) {}

  static Index products(const void* arguments) {
    return 2 * of(arguments).column * reals + 2 + reals;
  }

  // sums += (q* u, q* w) over `width` elements; w is taken `unit` times.
  template <int width>
  BATCHKRON_INLINE static void add_pair(typename KrylovLanes<T, width>::W* sums, const T* q,
                                        const T* u, const T* w, Real<T> unit) {
    using L = KrylovLanes<T, width>;
    const auto value = L::load(q);
    LaneSums<T, width>::add_product(sums, value, L::load(u));
    LaneSums<T, width>::add_product(sums + reals, value, times(unit, L::load(w)));
  }

  static void project_part(const void* given, Index system, Index begin, Index end,
                           double* total) {
    const Arguments& a = of(given);
    const Index j = a.column, count = products(given);
    const Real<T> unit = Real<T>(System<T>{a, system}.at(kOperator));
    const T* u = slot(a, GmresVectors::basis, system, j);
    const T* w = slot(a, GmresVectors::basis, system, j + 1);
    for (Index k = 0; k < count; ++k) total[k] = 0;
    for (Index first = begin; first < end; first += block) {
      const Index last = smaller(first + block, end);
      for (Index i = 0; i < j; ++i)
        add_products(slot(a, GmresVectors::basis, system, i), u, w, unit, first, last,
                     total + 2 * i * reals);
      add_products_of_last(u, w, unit, first, last, total + 2 * j * reals);
    }
  }

  static void add_products(const T* q, const T* u, const T* w, Real<T> unit, Index first,
                           Index last, double* total) {
    using L = KrylovLanes<T, lanes>;
    typename L::W sums[4 * reals] = {};
    double rest[2 * reals] = {};
    Index i = first;
    for (; i + 2 * lanes <= last; i += 2 * lanes) {
      add_pair<lanes>(sums, q + i, u + i, w + i, unit);
      add_pair<lanes>(sums + 2 * reals, q + i + lanes, u + i + lanes, w + i + lanes, unit);
    }
    for (; i + lanes <= last; i += lanes) add_pair<lanes>(sums, q + i, u + i, w + i, unit);
    for (; i < last; ++i) add_pair<1>(rest, q + i, u + i, w + i, unit);
    for (int k = 0; k < 2 * reals; ++k) total[k] += L::sum(sums[k] + sums[2 * reals + k]) + rest[k];
  }

  // |u|^2, u* w, |w|^2
  template <int width>
  BATCHKRON_INLINE static void add_last(typename KrylovLanes<T, width>::W* sums, const T* u,
                                        const T* w, Real<T> unit) {
    using L = KrylovLanes<T, width>;
    using S = LaneSums<T, width>;
    const auto a = L::load(u), b = times(unit, L::load(w));
    S::add_real_product(sums, a, a);
    S::add_product(sums + 1, a, b);
    S::add_real_product(sums + 1 + reals, b, b);
  }

  static void add_products_of_last(const T* u, const T* w, Real<T> unit, Index first, Index last,
                                   double* total) {
    using L = KrylovLanes<T, lanes>;
    typename L::W sums[2 + reals] = {};
    double rest[2 + reals] = {};
    Index i = first;
    for (; i + lanes <= last; i += lanes) add_last<lanes>(sums, u + i, w + i, unit);
    for (; i < last; ++i) add_last<1>(rest, u + i, w + i, unit);
    for (int k = 0; k < 2 + reals; ++k) total[k] += L::sum(sums[k]) + rest[k];
  }

  static void project_after(const void* given, Index system, const double* sums) {
    const System<T> own{of(given), system};
    gmres::projected(own, gmres::Triangle<T>(own), sums, gmres::Alone{});
  }

  // y += Σ_k c_k q_k for `count` of them over `width` elements
  template <int count, int width>
  BATCHKRON_INLINE static void add_multiples(T* y, const T* const* q, Index i,
                                             const Coefficient<T>* c) {
    using L = KrylovLanes<T, width>;
    auto sum = L::load(y + i);
    BATCHKRON_UNROLL
    for (int k = 0; k < count; ++k) sum = sum + times(c[k], L::load(q[k] + i));
    L::store(y + i, sum);
  }
  template <int count>
  static void add_block(T* y, const T* const* q, const Coefficient<T>* c, Index first, Index last) {
    Index i = first;
    for (; i + lanes <= last; i += lanes) add_multiples<count, lanes>(y, q, i, c);
    for (; i < last; ++i) add_multiples<count, 1>(y, q, i, c);
  }
  // y += Σ_k sign c_k q_k over a block
  static void add_all(const Arguments& a, int vectors, Index system, T* y, const N* numbers,
                      double sign, Index count, Index first, Index last) {
    for (Index k = 0; k < count; k += together) {
      const T* q[together];
      Coefficient<T> c[together];
      const int some = int(smaller(together, count - k));
      for (int i = 0; i < some; ++i) {
        q[i] = slot(a, vectors, system, k + i);
        c[i] = coefficient<T>(times(sign, numbers[k + i]));
      }
      switch (some) {
        case 1: add_block<1>(y, q, c, first, last); break;
        case 2: add_block<2>(y, q, c, first, last); break;
        case 3: add_block<3>(y, q, c, first, last); break;
        default: add_block<4>(y, q, c, first, last);
      }
    }
  }

  template <int width>
  BATCHKRON_INLINE static void close(typename KrylovLanes<T, width>::W* sum, T* u, T* w,
                                     Real<T> inverse, Coefficient<T> share) {
    using L = KrylovLanes<T, width>;
    const auto q = times(inverse, L::load(u));
    const auto next = times(inverse, L::load(w) - times(share, q));
    L::store(u, q);
    L::store(w, next);
    LaneSums<T, width>::add_real_product(sum, next, next);
  }

  static void extend_part(const void* given, Index system, Index begin, Index end,
                          double* total) {
    const Arguments& a = of(given);
    using L = KrylovLanes<T, lanes>;
    const System<T> own{a, system};
    const gmres::Triangle<T> t(own);
    const Index j = a.column;
    const Real<T> unit = Real<T>(own.at(kOperator)), inverse = Real<T>(own.at(gmres::kInverse));
    const Coefficient<T> share = coefficient<T>(own.number(gmres::kShare));
    T* u = slot(a, GmresVectors::basis, system, j);
    T* w = slot(a, GmresVectors::basis, system, j + 1);
    typename L::W sum{};
    double rest = 0;
    for (Index first = begin; first < end; first += block) {
      const Index last = smaller(first + block, end);
      Index i = first;
      for (; i + lanes <= last; i += lanes) L::store(w + i, times(unit, L::load(w + i)));
      for (; i < last; ++i) {
        using One = KrylovLanes<T, 1>;
        One::store(w + i, times(unit, One::load(w + i)));
      }
      add_all(a, GmresVectors::basis, system, u, t.first, -1, j, first, last);
      add_all(a, GmresVectors::basis, system, w, t.second, -1, j, first, last);
      for (i = first; i + lanes <= last; i += lanes)
        close<lanes>(&sum, u + i, w + i, inverse, share);
      for (; i < last; ++i) close<1>(&rest, u + i, w + i, inverse, share);
    }
    *total = L::sum(sum) + rest;
  }

  static void extend_after(const void* given, Index system, const double* sums) {
    const System<T> own{of(given), system};
    gmres::extended(own, gmres::Triangle<T>(own), *sums, gmres::Alone{});
  }

  // The trial solution: x + (the correction), with an M that is still to be applied the latter.
  static void combine_part(const void* given, Index system, Index begin, Index end, double*) {
    const Arguments& a = of(given);
    const System<T> own{a, system};
    const gmres::Triangle<T> t(own);
    const bool flexible = own.has(kFlexible);
    const bool alone = own.has(kPreconditioned) && !flexible;
    const T* x = slot(a, GmresVectors::x, system, 0);
    T* y = slot(a, GmresVectors::work, system, 0);
    for (Index first = begin; first < end; first += block) {
      const Index last = smaller(first + block, end);
      for (Index i = first; i < last; ++i) y[i] = alone ? T{} : x[i];
      add_all(a, flexible ? GmresVectors::solutions : GmresVectors::basis, system, y, t.solution, 1,
              Index(own.at(gmres::kKept)), first, last);
    }
  }

  static constexpr KrylovPass project() {
    return {"GmresProject", false, runs, products, project_part, project_after};
  }
  static constexpr KrylovPass extend() {
    return {"GmresExtend", false, runs, one, extend_part, extend_after};
  }
  static constexpr KrylovPass combine() {
    return {"GmresCombine", false, waits, none, combine_part, nothing};
  }
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
