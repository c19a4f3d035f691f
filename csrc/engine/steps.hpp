// A Kronecker product is applied one mode at a time. This file plans the order of the modes and the
// sizes of each multiply.
#pragma once

#include <new>
#include <vector>

#include "simd/common/packed_factor.hpp"
#include "simd/common/step.hpp"

namespace batchkron {

struct Steps {
  std::vector<Step> list;
  Index largest_intermediate = 0;  // elements of the largest result of any step but the last
  double multiply_adds = 0;        // for one block
};

// The multiplies of the modes k with active[k], inputs[k] -> outputs[k] elements each, in the order
// of least work: mode a goes before mode b where 1/C_a - 1/K_a < 1/C_b - 1/K_b, which follows from
// the work of two neighbours and of the same two exchanged. `ties` says which of two equal modes
// goes first. `inner` is the number of vectors behind the last mode.
enum class Ties { first_mode_first, last_mode_first };
Steps plan_steps(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                 const std::vector<bool>& active, Index inner,
                 Ties ties = Ties::first_mode_first);

// Elements rounded up to a multiple of 64 bytes, so that what follows in a buffer is aligned too.
template <class T>
Index padded(Index elements) {
  constexpr Index unit = kPaddingBytes / Index(sizeof(T));
  return (elements + unit - 1) / unit * unit;
}

// The bytes of `copies` times `elements` values of T; throws std::bad_alloc beyond 64 bits.
template <class T>
std::size_t bytes_of(Index elements, Index copies) {
  Index total;
  if (__builtin_mul_overflow(elements, copies, &total) ||
      __builtin_mul_overflow(total, Index(sizeof(T)), &total))
    throw std::bad_alloc();
  return std::size_t(total);
}

// `start` times all entries; throws std::overflow_error beyond 64 bits.
Index checked_product(const std::vector<Index>& sizes, Index start = 1);

}  // namespace batchkron
