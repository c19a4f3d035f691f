// The factors of one product, merged and packed as a schedule wants them.
#pragma once

#include <vector>

#include "engine/kron_schedule.hpp"
#include "engine/pack.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// Elements rounded up to the alignment of packed factors and buffers.
template <class T>
Index padded(Index elements) {
  constexpr Index unit = kPaddingBytes / Index(sizeof(T));
  return (elements + unit - 1) / unit * unit;
}

// The packed factors lie one behind the other; factor k begins at the padded sizes before it.
template <class T>
Index packed_elements(const std::vector<MergedFactor>& factors) {
  Index total = 0;
  for (const MergedFactor& factor : factors) total += padded<T>(packed_size<T>(factor.K, factor.C));
  return total;
}

template <class T>
void pack_factors(const std::vector<MergedFactor>& merged, const FactorView<T>* factors,
                  T* memory) {
  for (const MergedFactor& factor : merged) {
    pack_product(factors + factor.first, factor.last - factor.first + 1, factor.K, factor.C,
                 memory);
    memory += padded<T>(packed_size<T>(factor.K, factor.C));
  }
}

}  // namespace batchkron
