// Vectors of `lanes` elements, real or complex, in GCC's and Clang's vector extension. A complex
// element is two neighbouring reals of the vector.
#pragma once

#include "simd/common/compiler.hpp"
#include "simd/common/fused.hpp"
#include "simd/common/scalar.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
struct Element {
  using Real = T;
  static constexpr int reals = 1;
};
template <class R>
struct Element<Complex<R>> {
  using Real = R;
  static constexpr int reals = 2;
};

template <class T, int lanes>
struct Vector {
  typedef typename Element<T>::Real type
      __attribute__((vector_size(lanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <>
struct Vector<float, 1> {
  typedef float type __attribute__((may_alias));
};
template <>
struct Vector<double, 1> {
  typedef double type __attribute__((may_alias));
};

template <class T, int lanes>
using Pack = typename Vector<T, lanes>::type;

template <class T>
constexpr int widest = BATCHKRON_VECTOR_BYTES / int(sizeof(T));

// Whether there are 32 vector registers (AVX-512) and not 16.
constexpr bool kManyRegisters = BATCHKRON_VECTOR_BYTES == 64;

// Unaligned. The argument is `lanes` and not the vector's type, because a type loses its alignment
// as a template argument.
template <int lanes, class T>
BATCHKRON_INLINE Pack<T, lanes> load(const T* p) {
  return *reinterpret_cast<const Pack<T, lanes>*>(p);
}

template <int lanes, class T>
BATCHKRON_INLINE void store(T* p, Pack<T, lanes> v) {
  *reinterpret_cast<Pack<T, lanes>*>(p) = v;
}

// The same vector, kept in a register: GCC would repeat the load in every instruction that uses it,
// more loads than the processor can do.
template <class V>
BATCHKRON_INLINE V in_register(V v) {
#if defined(__x86_64__)
  __asm__("" : "+v"(v));
#endif
  return v;
}

// A list of integers, and the list 0 ... n - 1, as std::integer_sequence.
template <int... values>
struct Indices {};
template <int n, int... values>
struct CountTo : CountTo<n - 1, n - 1, values...> {};
template <int... values>
struct CountTo<0, values...> {
  using type = Indices<values...>;
};

template <class Pattern, class V, int... i>
BATCHKRON_INLINE V arrange(V a, V b, Indices<i...>) {
  return __builtin_shufflevector(a, b, Pattern::at(i)...);
}

// The vector whose real number i is number Pattern::at(i) of a followed by b.
template <class Pattern, class V>
BATCHKRON_INLINE V arrange(V a, V b) {
  using Count = typename CountTo<int(sizeof(V) / sizeof(a[0]))>::type;
  return arrange<Pattern>(a, b, Count{});
}

// Patterns for complex numbers: real and imaginary parts swapped, and only one of them, twice.
struct SwapParts {
  static constexpr int at(int i) { return i ^ 1; }
};
struct RealParts {
  static constexpr int at(int i) { return i & ~1; }
};
struct ImaginaryParts {
  static constexpr int at(int i) { return i | 1; }
};

inline int sign_bit(float) { return int(0x80000000u); }
inline long sign_bit(double) { return long(0x8000000000000000ul); }

// i z for each complex number z of a vector: (-imag, real).
template <class Real, class V>
BATCHKRON_INLINE V times_i(V z) {
  constexpr int reals = sizeof(V) / sizeof(Real);
  typedef decltype(sign_bit(Real{})) Bits __attribute__((vector_size(sizeof(V))));
  Bits sign{};
  for (int i = 0; i < reals; i += 2) sign[i] = sign_bit(Real{});
  return V(Bits(arrange<SwapParts>(z, z)) ^ sign);
}

// `value` in all lanes of V. Subtracting zero changes no number and costs no instruction.
template <class V, class Real>
BATCHKRON_INLINE V splat(Real value) {
  return value - V{};
}

// acc + x * f with a scalar f. For complex numbers x f.real is added first, then (i x) f.imag.
template <class T, class V>
BATCHKRON_INLINE V fused(V acc, V x, T f) {
  if constexpr (Element<T>::reals == 2) {
    acc = fused_vector(x, splat<V>(f.real), acc);
    return fused_vector(times_i<typename Element<T>::Real>(x), splat<V>(f.imag), acc);
  } else {
    return fused_vector(x, splat<V>(f), acc);
  }
}

// The even lanes of a and the odd ones of b.
template <int n>
struct Alternating {
  static constexpr int at(int i) { return i % 2 ? n + i : i; }
};

// *x in all lanes.
template <class T, int lanes>
BATCHKRON_INLINE Pack<T, lanes> repeated(const T* x) {
  using V = Pack<T, lanes>;
  if constexpr (Element<T>::reals == 2)
    return arrange<Alternating<2 * lanes>>(splat<V>(x->real), splat<V>(x->imag));
  else
    return splat<V>(*x);
}

// One element of x, as fused_row takes it: a scalar, or for a complex z the vectors of z and of i
// z.
template <class T, int lanes>
struct RowEntry {
  T value;
  BATCHKRON_INLINE explicit RowEntry(const T* x) : value(*x) {}
};
template <class Real, int lanes>
struct RowEntry<Complex<Real>, lanes> {
  Pack<Complex<Real>, lanes> value, rotated;
  BATCHKRON_INLINE explicit RowEntry(const Complex<Real>* x) {
    using V = Pack<Complex<Real>, lanes>;
    const V real = splat<V>(x->real), imag = splat<V>(x->imag);
    value = arrange<Alternating<2 * lanes>>(real, imag);
    rotated = arrange<Alternating<2 * lanes>>(-imag, real);
  }
};

// acc + x * f with a vector f and a scalar x, in the same order of sums as `fused`.
template <class T, int lanes>
BATCHKRON_INLINE Pack<T, lanes> fused_row(Pack<T, lanes> acc, Pack<T, lanes> f,
                                          const RowEntry<T, lanes>& x) {
  if constexpr (Element<T>::reals == 2) {
    acc = fused_vector(arrange<RealParts>(f, f), x.value, acc);
    return fused_vector(arrange<ImaginaryParts>(f, f), x.rotated, acc);
  } else {
    return fused_vector(f, splat<Pack<T, lanes>>(x.value), acc);
  }
}

// Writes a kernel's sum to y: as it is; or, if `general`, alpha * sum, added to y if `accumulate`.
template <class T, bool general, int lanes>
BATCHKRON_INLINE void finish(T* y, Pack<T, lanes> sum, T alpha, bool accumulate) {
  if constexpr (general) {
    Pack<T, lanes> previous{};
    if (accumulate) previous = load<lanes>(y);
    sum = fused<T>(previous, sum, alpha);
  }
  store<lanes>(y, sum);
}

// The same for the first `count` < lanes elements of a sum in memory, by vectors of halving width.
template <class T, bool general, int lanes>
BATCHKRON_INLINE void finish_part(T* y, const T* sum, Index count, T alpha, bool accumulate) {
  constexpr int half = lanes / 2;
  if constexpr (half > 0) {
    if (count >= half) {
      finish<T, general, half>(y, load<half>(sum), alpha, accumulate);
      y += half;
      sum += half;
      count -= half;
    }
    finish_part<T, general, half>(y, sum, count, alpha, accumulate);
  }
}

constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }

constexpr int power(int base, int exponent) {
  return exponent ? base * power(base, exponent - 1) : 1;
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
