// The layout of matrices for tensor kernels, which keep a block of n^d elements in registers
// (contract: simd/batch/table.hpp).
#pragma once

#include "engine/aligned.hpp"
#include "simd/batch/table.hpp"

namespace batchkron {

// A block has n^modes elements and is one vector, or several of `lanes` elements.
struct TensorLayout {
  Index n, modes, lanes;

  // Elements between neighbours along a mode.
  Index distance(std::size_t mode) const {
    Index R = 1;
    for (Index k = Index(mode) + 1; k < modes; ++k) R *= n;
    return R;
  }
  bool is_one_vector() const { return distance(0) * n <= lanes; }
  // How often an entry is repeated: as often as the lanes of a vector need it.
  Index copies(std::size_t mode) const {
    const Index R = distance(mode);
    return is_one_vector() || R < lanes ? R : 1;
  }
  // Elements of one matrix in this layout.
  Index matrix(std::size_t mode) const { return n * n * copies(mode); }

  // Writes one matrix of a mode, which is n x n and contiguous, to target.
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
