// Copies of the factors of one Kronecker product, merged as its schedule says and packed for the
// kernels.
#pragma once

#include <vector>

#include "engine/kron/schedule.hpp"
#include "engine/pack.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// The user's factors are read in fill() only. What is merged depends on the factors' sizes and not
// on the number of vectors, so that one packing serves every plan of the same factors.
template <class T>
class PackedFactors {
 public:
  void fill(const std::vector<MergedFactor>& merged, const FactorView<T>* factors);

  // One for each merged factor; null for skipped ones.
  const T* const* pointers() const { return pointers_.data(); }

 private:
  static Index elements(const MergedFactor& factor) {
    return factor.skipped ? 0 : padded<T>(packed_size<T>(factor.K, factor.C));
  }

  Workspace memory_;
  std::vector<const T*> pointers_;
};

// Compiled once, in packed_factors.cpp.
extern template class PackedFactors<float>;
extern template class PackedFactors<double>;
extern template class PackedFactors<Complex<float>>;
extern template class PackedFactors<Complex<double>>;

}  // namespace batchkron
