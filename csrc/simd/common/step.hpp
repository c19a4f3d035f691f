// One mode's multiply of a block.
#pragma once

#include "simd/kron/table.hpp"

namespace batchkron {

// (L, C, R) -> (L, K, R) by a factor of mode `mode`.
struct Step {
  int mode;
  Index L, C, K, R;
};

}  // namespace batchkron
