#include "engine/kron/packed_factors.hpp"

namespace batchkron {

template <class T>
void PackedFactors<T>::fill(const std::vector<MergedFactor>& merged, const FactorView<T>* factors) {
  Index total = 0;
  for (const MergedFactor& factor : merged) total += elements(factor);
  T* memory = static_cast<T*>(memory_.reserve(bytes_of<T>(total, 1)));
  pointers_.clear();
  for (const MergedFactor& factor : merged) {
    if (factor.skipped) {
      pointers_.push_back(nullptr);
      continue;
    }
    pack_product(factors + factor.first, factor.last - factor.first + 1, factor.K, factor.C,
                 memory);
    pointers_.push_back(memory);
    memory += elements(factor);
  }
}

template class PackedFactors<float>;
template class PackedFactors<double>;
template class PackedFactors<Complex<float>>;
template class PackedFactors<Complex<double>>;

}  // namespace batchkron
