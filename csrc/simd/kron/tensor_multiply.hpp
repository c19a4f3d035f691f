// Several modes in one pass: small tensors stay in registers while they are multiplied along one
// mode after another (contract: simd/kron/table.hpp, last_modes and mode_pair).
#pragma once

#include "simd/common/repeated.hpp"
#include "simd/kron/mode_multiply.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// A number as a type, so that a function argument is known at compile time.
template <int n>
struct Number {
  static constexpr int value = n;
};

// Calls body(Number<0>{}), ..., body(Number<n - 1>{}).
template <class Body, int... i>
BATCHKRON_INLINE void each(Indices<i...>, Body body) {
  (body(Number<i>{}), ...);
}
template <int n, class Body>
BATCHKRON_INLINE void each(Body body) {
  each(typename CountTo<n>::type{}, body);
}

// Shuffles of a vector that is rows of P lanes. Entry c of each row is copied to all lanes of the
// row in two steps: its piece of 16 bytes to all pieces, then the entry within the pieces. The
// processor has more units for shuffles within 16 bytes than for others (Zen 5: four a cycle, and
// two).
template <class T, int P>
struct RowPattern {
  static constexpr int piece = smaller(P, 16 / int(sizeof(T)));
  template <int c>
  struct Pieces {
    static constexpr int at(int i) { return i / P * P + c / piece * piece + i % piece; }
  };
  template <int c>
  struct Within {
    static constexpr int at(int i) { return i / piece * piece + c % piece; }
  };
  // The P lanes from `first` on, repeated; and the lanes from `first` on, each P times.
  template <int first>
  struct Repeated {
    static constexpr int at(int i) { return first + i % P; }
  };
  template <int first>
  struct Spread {
    static constexpr int at(int i) { return first + i / P; }
  };
};

// y[.., k] = sum_c f[c, k] x[.., c] along the last mode, where a vector holds several rows of P
// entries.
template <class T, int P>
class LastMode {
  static constexpr int lanes = widest<T>;
  using V = Pack<T, lanes>;
  using Pattern = RowPattern<T, P>;

 public:
  BATCHKRON_INLINE explicit LastMode(const T* f) {
    each<P>([&](auto c) __attribute__((always_inline)) {
      constexpr int first = c.value * P;
      const V row = load<lanes>(f + first / lanes * lanes);
      rows_[c.value] = arrange<typename Pattern::template Repeated<first % lanes>>(row, row);
    });
  }

  // Multiplies `size` vectors in place.
  template <int size>
  BATCHKRON_INLINE void multiply(V* x) const {
    V sum[size];
    BATCHKRON_UNROLL
    for (int i = 0; i < size; ++i) sum[i] = V{};
    each<P>([&](auto c) __attribute__((always_inline)) {
      BATCHKRON_UNROLL
      for (int i = 0; i < size; ++i) {
        const V pieces = arrange<typename Pattern::template Pieces<c.value>>(x[i], x[i]);
        const V term = arrange<typename Pattern::template Within<c.value>>(pieces, pieces);
        sum[i] = fused_vector(term, rows_[c.value], sum[i]);
      }
    });
    BATCHKRON_UNROLL
    for (int i = 0; i < size; ++i) x[i] = sum[i];
  }

 private:
  V rows_[P];  // rows of the factor, each repeated over a vector
};

// y[.., k, r] = sum_c f[c, k] x[.., c, r] along the second-last mode, r < P, where a vector holds
// several rows of P entries.
template <class T, int P>
class SecondMode {
  static constexpr int lanes = widest<T>;
  using V = Pack<T, lanes>;
  using Pattern = RowPattern<T, P>;

 public:
  static constexpr int size = P * P / lanes;  // vectors of a (P, P) block

  BATCHKRON_INLINE explicit SecondMode(const T* f) {
    each<P * size>([&](auto i) __attribute__((always_inline)) {
      constexpr int c = i.value / size, first = c * P + i.value % size * lanes / P;
      const V row = load<lanes>(f + first / lanes * lanes);
      entries_[c][i.value % size] =
          arrange<typename Pattern::template Spread<first % lanes>>(row, row);
    });
  }

  // Multiplies `planes` (P, P) blocks, from memory at x into vectors y.
  template <int planes>
  BATCHKRON_INLINE void multiply(V* y, const T* x) const {
    BATCHKRON_UNROLL
    for (int i = 0; i < planes * size; ++i) y[i] = V{};
    BATCHKRON_UNROLL
    for (int c = 0; c < P; ++c) {
      BATCHKRON_UNROLL
      for (int plane = 0; plane < planes; ++plane) {
        const V row = V(lanes::repeated<T, P, widest<T>>(x + (plane * P + c) * P));
        BATCHKRON_UNROLL
        for (int j = 0; j < size; ++j)
          y[plane * size + j] = fused_vector(row, entries_[c][j], y[plane * size + j]);
      }
    }
  }

 private:
  V entries_[P][size];  // elements of the factor, each P times
};

// y[.., k, r] = sum_c f[c, k] x[.., c, r] in place, where r runs over `inside` whole vectors.
template <class T, int P, int size, int inside>
BATCHKRON_INLINE void multiply_vectors(Pack<T, widest<T>>* x, const T* f) {
  using V = Pack<T, widest<T>>;
  constexpr Index stride = packed_stride<T>(P);
  BATCHKRON_UNROLL
  for (int i = 0; i < size / P; ++i) {
    V* part = x + i / inside * inside * P + i % inside;
    V sum[P];
    BATCHKRON_UNROLL
    for (int k = 0; k < P; ++k) sum[k] = V{};
    BATCHKRON_UNROLL
    for (int c = 0; c < P; ++c) {
      BATCHKRON_UNROLL
      for (int k = 0; k < P; ++k) sum[k] = fused<T>(sum[k], part[c * inside], f[c * stride + k]);
    }
    BATCHKRON_UNROLL
    for (int k = 0; k < P; ++k) part[k * inside] = sum[k];
  }
}

template <class T, int P, int modes>
struct LastModes {
  static constexpr int lanes = widest<T>, elements = power(P, modes), plane = P * P / lanes;
  // Tensors that are multiplied together, so that at least P independent sums hide the latency of
  // the multiply-adds.
  static constexpr int tensors = elements < P * lanes ? P * lanes / elements : 1;
  LastMode<T, P> last;
  SecondMode<T, P> second;
  const T* third;

  template <int tensors, bool general>
  BATCHKRON_INLINE void tile(const PassTask<T>& t, Index l) const {
    constexpr int size = tensors * elements / lanes;
    Pack<T, lanes> x[size];
    second.template multiply<size / plane>(x, t.x + l * elements);
    last.template multiply<size>(x);
    if constexpr (modes == 3) multiply_vectors<T, P, size, plane>(x, third);
    T* y = t.y + l * elements;
    BATCHKRON_UNROLL
    for (int i = 0; i < size; ++i)
      finish<T, general, lanes>(y + i * lanes, x[i], t.alpha, t.accumulate);
  }
};

template <class T, int P, int modes, bool general>
void last_modes_of(const PassTask<T> t) {
  using Modes = LastModes<T, P, modes>;
  const Modes all{LastMode<T, P>(t.f), SecondMode<T, P>(t.earlier[0]), t.earlier[1]};
  Index l = 0;
  for (; l + Modes::tensors <= t.count; l += Modes::tensors)
    all.template tile<Modes::tensors, general>(t, l);
  for (; l < t.count; ++l) all.template tile<1, general>(t, l);
}

template <class T, int P, int modes>
void last_modes(const PassTask<T>& t) {
  if (is_general(t))
    last_modes_of<T, P, modes, true>(t);
  else
    last_modes_of<T, P, modes, false>(t);
}

template <class T, int P, bool general>
void mode_pair_of(const PassTask<T> t) {
  constexpr int lanes = widest<T>;
  for (Index l = 0; l < t.count; ++l)
    for (Index r = 0; r < t.width; r += lanes) {
      const T* from = t.x + l * t.x_l + r;
      T* to = t.y + l * t.y_l + r;
      Pack<T, lanes> x[P * P];
      BATCHKRON_UNROLL
      for (int c = 0; c < P * P; ++c) x[c] = load<lanes>(from + c * t.x_c);
      multiply_vectors<T, P, P * P, 1>(x, t.f);
      multiply_vectors<T, P, P * P, P>(x, t.earlier[0]);
      BATCHKRON_UNROLL
      for (int k = 0; k < P * P; ++k)
        finish<T, general, lanes>(to + k * t.y_k, x[k], t.alpha, t.accumulate);
    }
}

template <class T, int P>
void mode_pair(const PassTask<T>& t) {
  if (is_general(t))
    mode_pair_of<T, P, true>(t);
  else
    mode_pair_of<T, P, false>(t);
}

// The kernel for a size and number of modes, or null if there is none: rows must be shorter than a
// vector and blocks at least one (last modes), tensors must fit in the registers (pairs).
template <class T, int P, int modes>
constexpr typename ModeKernels<T>::Pass last_modes_kernel() {
  if constexpr (!kIsSpare && Element<T>::reals == 1 && P < widest<T> && P * P >= widest<T>)
    return last_modes<T, P, modes>;
  else
    return nullptr;
}
template <class T, int P>
constexpr typename ModeKernels<T>::Pass mode_pair_kernel() {
  if constexpr (!kIsSpare && widest<T> > 1 && (P == 3 || kManyRegisters))
    return mode_pair<T, P>;
  else
    return nullptr;
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
