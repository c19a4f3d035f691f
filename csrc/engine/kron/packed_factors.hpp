// The factors of one product, merged and packed as a schedule wants them.
#pragma once

#include <vector>

#include "engine/kron/schedule.hpp"
#include "engine/pack.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// Reads the user's factors when it is filled, and not again. The sizes, not the number of vectors,
// decide what is merged: one packing serves every plan of the same factors.
template <class T>
class PackedFactors {
 public:
  void fill(const std::vector<MergedFactor>& merged, const FactorView<T>* factors) {
    Index total = 0;
    for (const MergedFactor& factor : merged) total += elements(factor);
    T* memory = static_cast<T*>(memory_.reserve(bytes_of<T>(total, 1)));
    pointers_.clear();
    for (const MergedFactor& factor : merged) {
      pack_product(factors + factor.first, factor.last - factor.first + 1, factor.K, factor.C,
                   memory);
      pointers_.push_back(memory);
      memory += elements(factor);
    }
  }

  // One for each merged factor.
  const T* const* pointers() const { return pointers_.data(); }

 private:
  static Index elements(const MergedFactor& factor) {
    return padded<T>(packed_size<T>(factor.K, factor.C));
  }

  Workspace memory_;
  std::vector<const T*> pointers_;
};

}  // namespace batchkron
