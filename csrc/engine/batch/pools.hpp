// The matrices of a batch list, one pool for each mode, as the kernels read them.
#pragma once

#include <vector>

#include "engine/aligned.hpp"
#include "engine/batch/tensor_layout.hpp"
#include "engine/pack.hpp"

namespace batchkron {

// One pool: `systems` times `count` matrices of one shape, contiguous, output index first.
template <class T>
struct PoolView {
  const T* data;
  Index systems, count, K, C;
};

// How the batch kernels, if any run, read a matrix: as TensorLayout writes it, or contracted index
// first, without padding.
enum class BatchLayout { none, transposed, tensor };

// Copies of all pools, packed for the single-mode multiply and in the batch kernels' layout.
template <class T>
class BatchPools {
 public:
  BatchPools(std::size_t modes, Index systems)
      : systems_(systems), pools_(modes), packed_(std::size_t(systems) * modes), batch_(packed_) {}

  // The matrices of one mode; the same sizes every time. `lanes` is the batch kernels'.
  void set(std::size_t mode, const PoolView<T>& view, BatchLayout layout, Index lanes) {
    Pool& pool = pools_[mode];
    pool.matrix = packed_size<T>(view.K, view.C);
    pool.system = view.systems == 1 ? 0 : view.count * pool.matrix;
    pool.packed.resize(std::size_t(view.systems * view.count * pool.matrix));
    for (Index i = 0; i < view.systems * view.count; ++i)
      pack(FactorView<T>{view.data + i * view.K * view.C, view.K, view.C, view.C, 1},
           pool.packed.data() + i * pool.matrix);
    if (layout != BatchLayout::none) set_batch(mode, view, layout, lanes);
    for (Index system = 0; system < systems_; ++system) {
      const Index at = system * modes() + Index(mode);
      const Index first = view.systems == 1 ? 0 : system * view.count;
      packed_[at] = pool.packed.data() + first * pool.matrix;
      batch_[at] = pool.batch.data() + first * pool.batch_matrix;
    }
  }

  // One packed matrix.
  const T* matrix(Index system, std::size_t mode, Index id) const {
    const Pool& pool = pools_[mode];
    return pool.packed.data() + system * pool.system + id * pool.matrix;
  }

  // A system's pools, one pointer for each mode.
  const T* const* packed(Index system) const { return packed_.data() + system * modes(); }
  const T* const* batch(Index system) const { return batch_.data() + system * modes(); }

 private:
  struct Pool {
    AlignedVector<T> packed;
    AlignedVector<T> batch;  // in the batch kernels' layout, if any run
    Index matrix = 0;        // elements of one packed matrix
    Index batch_matrix = 0;  // of one in that layout
    Index system = 0;        // elements between two systems; 0 if they share the pool
  };

  Index modes() const { return Index(pools_.size()); }

  void set_batch(std::size_t mode, const PoolView<T>& view, BatchLayout layout, Index lanes) {
    const TensorLayout tensor{view.C, modes(), lanes};
    const bool is_tensor = layout == BatchLayout::tensor;
    Pool& pool = pools_[mode];
    pool.batch_matrix = is_tensor ? tensor.matrix(mode) : view.K * view.C;
    pool.batch.resize(std::size_t(view.systems * view.count * pool.batch_matrix));
    for (Index i = 0; i < view.systems * view.count; ++i) {
      const T* matrix = view.data + i * view.K * view.C;
      T* target = pool.batch.data() + i * pool.batch_matrix;
      if (is_tensor)
        tensor.write(mode, matrix, target);
      else
        for (Index c = 0; c < view.C; ++c)
          for (Index k = 0; k < view.K; ++k) target[c * view.K + k] = matrix[k * view.C + c];
    }
  }

  Index systems_;
  std::vector<Pool> pools_;
  std::vector<const T*> packed_, batch_;  // (systems, modes)
};

}  // namespace batchkron
