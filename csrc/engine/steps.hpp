// A Kronecker product applied mode by mode: which mode when, and at what sizes.
#pragma once

#include <new>
#include <vector>

#include "simd/common/packed_factor.hpp"
#include "simd/common/step.hpp"

namespace batchkron {

struct Steps {
  std::vector<Step> list;
  Index largest_intermediate = 0;  // elements, over the results of all steps but the last
  double multiply_adds = 0;        // of one block
};

// The modes `active` of a block, in the order of least work: mode a goes before mode b where
// 1/C_a - 1/K_a < 1/C_b - 1/K_b (exchange two neighbours to see it).
enum class Ties { first_mode_first, last_mode_first };
Steps plan_steps(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                 const std::vector<bool>& active, Index inner,
                 Ties ties = Ties::first_mode_first);

// Elements rounded up to the alignment of packed factors and buffers.
template <class T>
Index padded(Index elements) {
  constexpr Index unit = kPaddingBytes / Index(sizeof(T));
  return (elements + unit - 1) / unit * unit;
}

// The bytes of `elements` values of T; throws std::bad_alloc where no memory could hold them.
template <class T>
std::size_t bytes_of(Index elements, Index copies) {
  Index total;
  if (__builtin_mul_overflow(elements, copies, &total) ||
      __builtin_mul_overflow(total, Index(sizeof(T)), &total))
    throw std::bad_alloc();
  return std::size_t(total);
}

// The product of all entries; throws std::overflow_error beyond 64 bits.
Index checked_product(const std::vector<Index>& sizes, Index start = 1);

}  // namespace batchkron
