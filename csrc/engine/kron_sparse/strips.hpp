// Products with Kronecker-sparse matrices of d = 1, block-diagonal ones: neither x nor y is moved.
#pragma once

#include <algorithm>

#include "engine/kron_sparse/call.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// The matrix in strips of some vectors of rows, block by block of terms:
// f[((i c + l) * width of all strips) + ...], so that a kernel reads a strip from one end to the
// other.
template <class T>
class SparseStrips {
 public:
  SparseStrips(const SparseShape& shape, const SparseKernels<T>& kernels)
      : shape_(shape), kernels_(kernels), strip_(kernels.lanes * kernels.vectors) {
    const Index lanes = kernels.lanes;
    width_ = (shape.b + lanes - 1) / lanes * lanes;
    const Index limit = std::max<Index>(1, kStripBytes / (strip_ * Index(sizeof(T))));
    const Index blocks = std::max<Index>(1, (shape.c + limit - 1) / limit);
    terms_ = (shape.c + blocks - 1) / blocks;
    checked_product({shape.a, shape.c, width_});
  }

  Index elements() const { return shape_.a * shape_.c * width_; }

  // values is (a, b, c, 1), contiguous.
  void pack(const T* values, T* packed, const ThreadTeam& team) const {
    team.run(shape_.a, [&](Index begin, Index end, int) {
      for (Index i = begin; i < end; ++i) pack_block(values, packed, i);
    });
  }

  void run(const SparseCall<T>& call, const ThreadTeam& team) const {
    const int threads = team.threads();
    const Index x_row = shape_.a * shape_.c, y_row = shape_.a * shape_.b;
    // rows of x that stay in the L2 cache while strips pass, and some items for each thread
    const Index row_bytes = shape_.c * Index(sizeof(T));
    const Index most = std::max(kMinRows, kRowBytes / row_bytes / 6 * 6);
    const Index wanted = threads > 1 ? (4 * threads + shape_.a - 1) / shape_.a : 1;
    Index rows = std::min(most, (call.outer + wanted - 1) / wanted);
    rows = std::min((rows + 5) / 6 * 6, call.outer);
    const Index blocks = (call.outer + rows - 1) / rows;
    const Index strips = (width_ + strip_ - 1) / strip_;
    const Index parts = std::clamp<Index>((wanted + blocks - 1) / blocks, 1, strips);
    const Index items = shape_.a * blocks * parts;
    const auto run_item = [&](Index item) {
      const Index part = item % parts, i = item / parts / blocks;
      const Index n = item / parts % blocks * rows;
      const Index count = std::min(rows, call.outer - n);
      const Index end = std::min((part + 1) * strips / parts * strip_, width_);
      for (Index first = part * strips / parts * strip_; first < end; first += strip_) {
        const Index width = std::min(strip_, width_ - first);
        for (Index l = 0; l < shape_.c; l += terms_) {
          const Index terms = std::min(terms_, shape_.c - l);
          kernels_.multiply_strip({call.y + n * y_row + i * shape_.b + first,
                                   call.x + n * x_row + i * shape_.c + l,
                                   call.packed + place(i, l, terms, first), terms, count,
                                   std::min(width, shape_.b - first), width, x_row, y_row,
                                   call.alpha, call.accumulate || l > 0});
        }
      }
    };
    team.run(items, [&](Index begin, Index end, int) {
      for (Index item = begin; item < end; ++item) run_item(item);
    });
  }

 private:
  // Bytes of a strip with the terms of a block, half of an L1 cache of 48 KiB, and of rows of x.
  // Chosen by hand.
  static constexpr Index kStripBytes = 24 << 10;
  static constexpr Index kRowBytes = 512 << 10;
  static constexpr Index kMinRows = 48;  // that a strip is read for, from beyond the L2 cache

  void pack_block(const T* values, T* packed, Index i) const {
    const Index b = shape_.b, c = shape_.c;
    for (Index l = 0; l < c; l += terms_) {
      const Index terms = std::min(terms_, c - l);
      for (Index first = 0; first < width_; first += strip_) {
        T* strip = packed + place(i, l, terms, first);
        const Index width = std::min(strip_, width_ - first);
        for (Index k = 0; k < width; ++k) {
          const T* from = values + (i * b + first + k) * c + l;
          for (Index t = 0; t < terms; ++t) strip[t * width + k] = first + k < b ? from[t] : T{};
        }
      }
    }
  }

  Index place(Index i, Index l, Index terms, Index first) const {
    return (i * shape_.c + l) * width_ + terms * first;
  }

  SparseShape shape_;
  const SparseKernels<T>& kernels_;
  Index strip_, width_, terms_;
};

}  // namespace batchkron
