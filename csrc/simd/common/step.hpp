// A step: the multiply of a block along one mode.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// (L, C, R) -> (L, K, R) by the K x C factor of mode `mode`; L and R are the products of the sizes
// of the modes before and behind it.
struct Step {
  int mode;
  Index L, C, K, R;
};

}  // namespace batchkron
