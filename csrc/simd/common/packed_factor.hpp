// The layout of packed factors, which plans write and kernels read.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// The widest vector of any instruction set, in bytes: packed factors are padded for it, so that a
// packed factor does not depend on the instruction set.
constexpr Index kPaddingBytes = 64;

// Leading dimension of a packed factor with `outputs` output indices. Never a multiple of 512 bytes
// beyond 256: a column of the factor would lie in few sets of the L1 cache.
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
