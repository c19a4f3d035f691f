// Rows of an explicit Kronecker product (contracts: simd/kron/table.hpp, `scale`, `scale_past` and
// `multiply_periodic`).
#pragma once

#include "simd/common/vectors.hpp"
#include "simd/kron/copies.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// a b. Not computed by adding to zero, which would turn -0 into 0.
template <class T, class V>
BATCHKRON_INLINE V product(V a, V b) {
  if constexpr (Element<T>::reals == 2) {
    const V rotated = times_i<typename Element<T>::Real>(b);
    return fused_vector(arrange<ImaginaryParts>(a, a), rotated, arrange<RealParts>(a, a) * b);
  } else {
    return a * b;
  }
}

// to[l] = s * row[l] for the last `count` elements of a row, by vectors of halving width.
template <class T, int lanes>
inline void scale_rest(T* to, const T* s, const T* row, Index count) {
  if constexpr (lanes > 0) {
    if (count >= lanes) {
      store<lanes>(to, product<T>(repeated<T, lanes>(s), load<lanes>(row)));
      return scale_rest<T, lanes>(to + lanes, s, row + lanes, count - lanes);
    }
    scale_rest<T, lanes / 2>(to, s, row, count);
  }
}

template <class T>
void scale(T* to, const T* scales, Index count, const T* row, Index width) {
  constexpr int lanes = widest<T>;
  for (Index j = 0; j < count; ++j, to += width) {
    if (width < lanes) {
      scale_rest<T, lanes / 2>(to, scales + j, row, width);
      continue;
    }
    const Pack<T, lanes> s = repeated<T, lanes>(scales + j);
    for (Index l = 0; l + lanes <= width; l += lanes)
      store<lanes>(to + l, product<T>(s, load<lanes>(row + l)));
    if (width % lanes) {  // the last vector overlaps the one before; both write the same
      const Index l = width - lanes;
      store<lanes>(to + l, product<T>(s, load<lanes>(row + l)));
    }
  }
}

// Each run of `width` elements has its own scale. As runs begin `head` elements before an aligned
// vector, the last vector of each one has `head` elements of the next, with the scale of that.
template <class T>
void scale_past(T* to, const T* scales, Index count, const T* turned, Index width, Index head) {
  constexpr int lanes = widest<T>;
  using Real = typename Element<T>::Real;
  constexpr int reals = Element<T>::reals;
  typedef decltype(sign_bit(Real{})) Mask __attribute__((vector_size(lanes * sizeof(T))));
  const auto put = [](T* target, Pack<T, lanes> s, const T* row) {
    const Pack<T, lanes> v = product<T>(s, load<lanes>(row));
    stream_vector(target, &v);
  };
  const Index whole = head ? width - lanes : width, own = lanes - head;
  Mask of_this_run{};
  for (Index i = 0; i < own * reals; ++i) of_this_run[i] = -1;
  for (Index i = 0; i < head; ++i)
    store<1>(to + i, product<T>(load<1>(scales), load<1>(turned + width - head + i)));
  to += head;
  Pack<T, lanes> s = repeated<T, lanes>(scales);
  for (Index j = 0; j < count; ++j, to += width) {
    for (Index l = 0; l < whole; l += lanes) put(to + l, s, turned + l);
    if (j + 1 == count) break;
    const Pack<T, lanes> next = repeated<T, lanes>(scales + j + 1);
    if (head) put(to + whole, of_this_run ? s : next, turned + whole);
    s = next;
  }
  if (head == 0) return;
  for (Index i = 0; i < own; ++i)
    store<1>(to + whole + i, product<T>(load<1>(scales + count - 1), load<1>(turned + whole + i)));
}

template <class T>
void multiply_periodic(T* to, const T* x, Index count, const T* pattern, Index period) {
  constexpr int lanes = widest<T>;
  Index i = 0;
  while (i + lanes <= count)
    for (Index v = 0; v < period && i + lanes <= count; ++v, i += lanes)
      store<lanes>(to + i, product<T>(load<lanes>(x + i), load<lanes>(pattern + v * lanes)));
  for (; i < count; ++i)
    store<1>(to + i, product<T>(load<1>(x + i), load<1>(pattern + i % (period * lanes))));
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
