// The sums of a register tile, of vectors times elements that are repeated over a vector.
#pragma once

#include "simd/common/repeated.hpp"
#include "simd/common/vectors.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sparse {

// Vectors in a register tile of six rows: as many sums as the registers hold beside the vectors of x
// and one of f. Complex numbers have two sums each.
template <class T>
constexpr int tile_vectors = (kManyRegisters ? 4 : 2) / Element<T>::reals;

// A piece of f in all pieces of a vector.
template <class T, int piece>
BATCHKRON_INLINE Pack<T, widest<T>> spread(const T* f) {
  using Real = typename Element<T>::Real;
  constexpr int reals = Element<T>::reals;
  return Pack<T, widest<T>>(lanes::repeated<Real, piece * reals, widest<T> * reals>(
      reinterpret_cast<const Real*>(f)));
}

// One element of f, `piece` numbers, and the sums that it is added to.
template <class T, int piece>
struct Entry {
  using V = Pack<T, widest<T>>;
  V value;
  BATCHKRON_INLINE explicit Entry(const T* f) : value(spread<T, piece>(f)) {}
};
template <class Real, int piece>
struct Entry<Complex<Real>, piece> {
  using T = Complex<Real>;
  using V = Pack<T, widest<T>>;
  V real, imag;
  BATCHKRON_INLINE explicit Entry(const T* f) {
    if constexpr (piece == 1) {
      real = splat<V>(f->real);
      imag = splat<V>(f->imag);
    } else {
      const V both = spread<T, piece>(f);
      real = arrange<RealParts>(both, both);
      imag = arrange<ImaginaryParts>(both, both);
    }
  }
};

template <class T>
struct Sum {
  using V = Pack<T, widest<T>>;
  V value;
  BATCHKRON_INLINE void clear() { value = V{}; }
  template <int piece>
  BATCHKRON_INLINE void add(V x, const Entry<T, piece>& f) {
    value = fused_vector(x, f.value, value);
  }
  BATCHKRON_INLINE V result() const { return value; }
};
template <class Real>
struct Sum<Complex<Real>> {
  using T = Complex<Real>;
  using V = Pack<T, widest<T>>;
  V real, imag;  // x times the real and the imaginary parts of f
  BATCHKRON_INLINE void clear() { real = imag = V{}; }
  template <int piece>
  BATCHKRON_INLINE void add(V x, const Entry<T, piece>& f) {
    real = fused_vector(x, f.real, real);
    imag = fused_vector(x, f.imag, imag);
  }
  BATCHKRON_INLINE V result() const { return real + times_i<Real>(imag); }
};

}  // namespace sparse
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
