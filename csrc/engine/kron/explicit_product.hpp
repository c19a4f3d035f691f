// The Kronecker product of two matrices as a dense matrix.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// out[i * rows_b + k, j * columns_b + l] = a[i, j] * b[k, l]; all row-major and contiguous. out
// aliases neither a nor b and is not read. A result that is larger than the caches is written past
// them (non-temporal stores), by way of a piece of memory in the L1 cache.
template <class T>
class ExplicitKron {
 public:
  ExplicitKron(const T* a, Index rows_a, Index columns_a, const T* b, Index rows_b,
               Index columns_b)
      : kernels_(mode_kernels<T>()),
        a_(a),
        b_(b),
        rows_(rows_a * rows_b),
        columns_a_(columns_a),
        rows_b_(rows_b),
        columns_b_(columns_b),
        columns_(columns_a * columns_b) {}

  void write(T* out) const;

 private:
  // Results beyond so many bytes go past the caches: the last-level cache of the Zen 5 machine of
  // docs/results/cpu.md.
  static constexpr Index kLastLevelBytes = 32 << 20;
  // Elements that are computed before they are streamed out; they stay in the L1 cache.
  static constexpr Index kPiece = (16 << 10) / Index(sizeof(T));
  // Elements of b that stay in the L2 cache while rows of out are written. Chosen by hand.
  static constexpr Index kCached = (512 << 10) / Index(sizeof(T));

  struct Memory {
    T* repeated;  // a's row, each element columns_b times
    T* pattern;   // b's row, `lanes` times: the shortest repetition that is whole vectors
    T* piece;     // results that are to be streamed; or b's row, rotated, for scale_past
    bool streams;
  };

  // Whether rows of b are shorter than a vector. Then a's row with each element repeated is
  // multiplied by b's row repeated, element by element, so that all vectors are full.
  bool narrow() const {
    return columns_b_ < kernels_.lanes && columns_a_ >= 4 * kernels_.lanes;
  }

  // The row of out that is written at this place of the order. If b does not fit in the cache, the
  // rows of out that need the same row of b follow each other.
  Index row_at(Index place) const {
    if (narrow() || rows_b_ * columns_b_ <= kCached) return place;
    const Index rows_a = rows_ / rows_b_;
    return place % rows_a * rows_b_ + place / rows_a;
  }

  void write_rows(T* out, Index begin, Index end, const Memory& memory) const {
    for (Index place = begin; place < end; ++place) {
      const Index row = row_at(place);
      const T* a_row = a_ + row / rows_b_ * columns_a_;
      const T* b_row = b_ + row % rows_b_ * columns_b_;
      if (narrow()) {
        if (place == begin || row % rows_b_ == 0)
          for (Index j = 0; j < columns_a_; ++j)
            std::fill_n(memory.repeated + j * columns_b_, columns_b_, a_row[j]);
        for (Index copy = 0; copy < kernels_.lanes; ++copy)
          std::copy_n(b_row, columns_b_, memory.pattern + copy * columns_b_);
      }
      write_row(out + row * columns_, a_row, b_row, memory);
    }
    if (memory.streams) std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  void write_row(T* to, const T* a_row, const T* b_row, const Memory& memory) const {
    const auto piece = [&](Index elements, auto fill) {
      fill(memory.streams ? memory.piece : to);
      if (memory.streams) kernels_.stream(to, memory.piece, elements);
      to += elements;
    };
    if (narrow()) {
      const Index period = columns_b_ * kernels_.lanes;
      const Index step = std::max<Index>(1, kPiece / period) * period;
      for (Index i = 0; i < columns_; i += step) {
        const Index count = std::min(step, columns_ - i);
        piece(count, [&](T* target) {
          kernels_.multiply_periodic(target, memory.repeated + i, count, memory.pattern,
                                     columns_b_);
        });
      }
      return;
    }
    if (memory.streams && columns_b_ % kernels_.lanes == 0 && is_aligned(to)) {
      const Index head = elements_to_vector(to);
      std::rotate_copy(b_row, b_row + head, b_row + columns_b_, memory.piece);
      return kernels_.scale_past(to, a_row, columns_a_, memory.piece, columns_b_, head);
    }
    const Index width = std::min(columns_b_, kPiece), scales = std::max<Index>(1, kPiece / width);
    for (Index j = 0; j < columns_a_; j += scales)
      for (Index l = 0; l < columns_b_; l += width) {
        const Index count = std::min(scales, columns_a_ - j), n = std::min(width, columns_b_ - l);
        piece(count * n, [&](T* target) {
          kernels_.scale(target, a_row + j, count, b_row + l, n);
        });
      }
  }

  static bool is_aligned(const T* place) {
    return reinterpret_cast<std::uintptr_t>(place) % sizeof(T) == 0;
  }
  // Elements from `place` to the next address that is aligned to a vector.
  Index elements_to_vector(const T* place) const {
    const Index past = Index(reinterpret_cast<std::uintptr_t>(place) / sizeof(T)) % kernels_.lanes;
    return past ? kernels_.lanes - past : 0;
  }

  const ModeKernels<T>& kernels_;
  const T* a_;
  const T* b_;
  Index rows_, columns_a_, rows_b_, columns_b_, columns_;
};

// Compiled once, in explicit_product.cpp.
extern template class ExplicitKron<float>;
extern template class ExplicitKron<double>;
extern template class ExplicitKron<Complex<float>>;
extern template class ExplicitKron<Complex<double>>;

}  // namespace batchkron
