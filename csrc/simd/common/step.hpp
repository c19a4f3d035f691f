// One mode's multiply of a block.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// (L, C, R) -> (L, K, R) by a factor of mode `mode`.
struct Step {
  int mode;
  Index L, C, K, R;
};

}  // namespace batchkron
