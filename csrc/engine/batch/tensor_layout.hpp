// Matrices as the tensor kernels read them (contract: simd/batch/table.hpp).
#pragma once

#include "engine/aligned.hpp"
#include "simd/batch/table.hpp"

namespace batchkron {

// Blocks of n^d elements; one of them is a single vector, or several of `lanes` elements.
struct TensorLayout {
  Index n, modes, lanes;

  Index distance(std::size_t mode) const {
    Index R = 1;
    for (Index k = Index(mode) + 1; k < modes; ++k) R *= n;
    return R;
  }
  bool is_one_vector() const { return distance(0) * n <= lanes; }
  Index copies(std::size_t mode) const {
    const Index R = distance(mode);
    return is_one_vector() || R < lanes ? R : 1;
  }
  Index matrix(std::size_t mode) const { return n * n * copies(mode); }

  // One matrix of a mode, n x n and contiguous.
  template <class T>
  void write(std::size_t mode, const T* matrix, T* target) const {
    const bool by_input = mode == 0 && is_one_vector();
    for (Index j = 0; j < n; ++j)
      for (Index k = 0; k < n; ++k) {
        const T value = by_input ? matrix[(k ^ j) * n + k] : matrix[k * n + (k ^ j)];
        for (Index r = copies(mode); r > 0; --r) *target++ = value;
      }
  }
};

}  // namespace batchkron
