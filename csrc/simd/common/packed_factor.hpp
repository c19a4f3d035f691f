// The layout of packed factors, which plans write and kernels read: f[c, k] is at c *
// packed_stride(K) + k, and the padding is zero.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// Bytes of the widest vector of any instruction set. Packed factors are padded for it, so that they
// are the same for all instruction sets.
constexpr Index kPaddingBytes = 64;

// Leading dimension, in elements, of a packed factor with `outputs` output indices: a power of two
// up to a vector, else a multiple of vectors. It is never a multiple of 512 bytes, with which the
// elements of one k would fall into few sets of the L1 cache.
template <class T>
constexpr Index packed_stride(Index outputs) {
  constexpr Index lanes = kPaddingBytes / Index(sizeof(T));
  if (outputs > lanes) {
    const Index vectors = (outputs + lanes - 1) / lanes;
    return (vectors % 8 == 0 ? vectors + 1 : vectors) * lanes;
  }
  Index stride = 1;
  while (stride < outputs) stride *= 2;
  return stride;
}

}  // namespace batchkron
