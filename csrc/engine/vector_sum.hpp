// A linear combination of vectors in one pass over memory.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// Reading an element counts as so many multiply-adds when the number of threads is chosen: memory
// and not arithmetic takes the time. Chosen by hand.
constexpr double kWorkPerElement = 24;

// y = sum over k of factors[k] * vectors[k] for `count` vectors of `size` elements (contract:
// VectorSum). The result has the same bits for any number of threads.
template <class T>
void sum_vectors(T* y, const T* const* vectors, const T* factors, Index count, Index size);

}  // namespace batchkron
