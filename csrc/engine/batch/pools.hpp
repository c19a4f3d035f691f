// Copies of the matrices that a batch list points into (one pool for each mode), in the layouts
// that the kernels read.
#pragma once

#include <vector>

#include "engine/aligned.hpp"
#include "engine/batch/tensor_layout.hpp"
#include "engine/pack.hpp"

namespace batchkron {

// A pool: (systems, count, K, C), contiguous. `systems` is 1 if all systems share the matrices.
template <class T>
struct PoolView {
  const T* data;
  Index systems, count, K, C;
};

// How the batch kernels read a matrix: no batch kernel is used; (C, K) without padding; or as
// TensorLayout writes it.
enum class BatchLayout { none, transposed, tensor };

// Each pool is held twice: packed for the single-mode multiply, and in the batch kernels' layout. Or
// it is borrowed from the user, whose matrices are (K, C).
template <class T>
class BatchPools {
 public:
  BatchPools(std::size_t modes, Index systems)
      : systems_(systems), pools_(modes), packed_(std::size_t(systems) * modes), batch_(packed_) {}

  // Sets the matrices of one mode; sizes must not change between calls. `lanes` is the vector
  // length of the batch kernels.
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

  // Takes the user's matrices of one mode, the same for all systems; they must outlive the object.
  void borrow(std::size_t mode, const PoolView<T>& view) {
    for (Index system = 0; system < systems_; ++system)
      batch_[system * modes() + Index(mode)] = view.data;
  }

  // One packed matrix.
  const T* matrix(Index system, std::size_t mode, Index id) const {
    const Pool& pool = pools_[mode];
    return pool.packed.data() + system * pool.system + id * pool.matrix;
  }

  // A system's pools, one pointer for each mode; borrowed ones are `batch`.
  const T* const* packed(Index system) const { return packed_.data() + system * modes(); }
  const T* const* batch(Index system) const { return batch_.data() + system * modes(); }

 private:
  struct Pool {
    AlignedVector<T> packed;
    AlignedVector<T> batch;  // in the batch kernels' layout; empty with BatchLayout::none
    Index matrix = 0;        // elements of one packed matrix
    Index batch_matrix = 0;  // elements of one matrix in the batch kernels' layout
    Index system = 0;        // elements between two systems in `packed`; 0 if they share the pool
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
