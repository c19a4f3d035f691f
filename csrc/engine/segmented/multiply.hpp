// y[node] = alpha * sum over the edges e of node of A[ids[e]] ._mode x[children[e]], or +=. Each
// edge multiplies a block of x along one mode by a small matrix.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "engine/aligned.hpp"
#include "engine/dispatch.hpp"
#include "engine/steps.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"
#include "simd/segmented/table.hpp"

namespace batchkron {

// Blocks of x are (L, C, R), those of y (L, K, R), all contiguous. Node i has the edges
// starts[i] ... starts[i + 1] - 1. Whoever fills a shape checks that all indices are in range.
struct SegmentShape {
  Index L, C, K, R;
  Index num_inputs, num_outputs;
  std::vector<Index> starts, ids, children;
};

// A plan with its own copy of the matrices. Several threads may run it at once, but not while its
// values are being set. One thread computes a node; the order of its sums depends on the sizes and
// the number of edges alone.
template <class T>
class SegmentedModeMultiply {
 public:
  explicit SegmentedModeMultiply(SegmentShape shape);

  // matrices is (count, K, C).
  void set_values(const T* matrices, Index count);

  const SegmentShape& shape() const { return shape_; }
  Index input_elements() const {
    return checked_product({shape_.num_inputs, shape_.L, shape_.C, shape_.R});
  }
  Index output_elements() const {
    return checked_product({shape_.num_outputs, shape_.L, shape_.K, shape_.R});
  }
  double multiply_adds() const {
    return double(shape_.ids.size()) * double(points()) * double(shape_.C) * double(shape_.K);
  }

  // accumulate = false overwrites y and never reads it. y does not alias x.
  void run(const T* x, T* y, T alpha, bool accumulate) const;

 private:
  static constexpr Index kMaxInputs = std::numeric_limits<std::int32_t>::max();
  static constexpr Index kCopied = 4;  // elements that copy_row copies at a time

  // Elements of a block for each index of the mode.
  Index points() const { return shape_.L * shape_.R; }

  // Whether blocks are packed, from (L, C, R) to (C, L R), before the edges are added: if rows of R
  // elements do not fill vectors. It pays because several edges read a block.
  bool decide_packing() const {
    const Index R = shape_.R, width = segment_kernels<T>().width;
    if (R % width == 0 || R >= 4 * width) return false;
    return shape_.L > 1 || (R < width && (R & (R - 1)) != 0);
  }

  // Elements between two rows of what the kernel reads. Packed rows are padded to whole vectors: a
  // few more elements are computed, but no load straddles two cache lines.
  Index row_stride() const {
    const Index width = segment_kernels<T>().width;
    if (!packs_) return shape_.R;
    if (points() >= width) return (points() + width - 1) / width * width;
    Index stride = 1;
    while (stride < points()) stride *= 2;
    return stride;
  }

  // Copies R elements, rounded up to a multiple of kCopied unless it is the last row: rows are
  // copied in ascending order of their targets, so that the next row overwrites what was written
  // too much.
  void copy_row(const T* source, T* target, bool last) const {
    const Index R = shape_.R;
    if (last)
      for (Index r = 0; r < R; ++r) target[r] = source[r];
    else
      for (Index r = 0; r < R; r += kCopied)
        for (Index i = 0; i < kCopied; ++i) target[r + i] = source[r + i];
  }

  // (L, C, R) -> (C, stride). `size` is C at compile time, or 0 for any C.
  template <int size>
  void pack(const T* source, T* target) const {
    const Index L = shape_.L, C = size ? size : shape_.C, R = shape_.R;
    if (R == 1)
      for (Index l = 0; l < L; ++l)
        for (Index c = 0; c < C; ++c) target[c * stride_ + l] = source[l * C + c];
    else
      for (Index c = 0; c < C; ++c)
        for (Index l = 0; l < L; ++l)
          copy_row(source + (l * C + c) * R, target + c * stride_ + l * R,
                   l + 1 == L && (stride_ > points() || c + 1 == C));
    for (Index c = 0; c < C; ++c)
      for (Index p = points(); p < stride_; ++p) target[c * stride_ + p] = T{};
  }

  void pack_block(const T* x, Index i, T* packed) const {
    x += i * points() * shape_.C;
    packed += i * stride_ * shape_.C;
    if (shape_.C == 3) return pack<3>(x, packed);
    if (shape_.C == 4) return pack<4>(x, packed);
    pack<0>(x, packed);
  }

  // (K, stride) -> (L, K, R). `size` is K at compile time, or 0 for any K.
  template <int size>
  void unpack(const T* source, T* target) const {
    const Index L = shape_.L, K = size ? size : shape_.K, R = shape_.R;
    if (R == 1)
      for (Index l = 0; l < L; ++l)
        for (Index k = 0; k < K; ++k) target[l * K + k] = source[k * stride_ + l];
    else
      for (Index l = 0; l < L; ++l)
        for (Index k = 0; k < K; ++k)
          copy_row(source + k * stride_ + l * R, target + (l * K + k) * R,
                   l + 1 == L && k + 1 == K);
  }

  const T* unpacked(const T* sums, T* memory) const {
    if (shape_.K == 3)
      unpack<3>(sums, memory);
    else if (shape_.K == 4)
      unpack<4>(sums, memory);
    else
      unpack<0>(sums, memory);
    return memory;
  }

  void add_node(const T* source, Index node, T* sums, T* y, T alpha, bool accumulate) const {
    const Index L = packs_ ? 1 : shape_.L, C = shape_.C, K = shape_.K;
    const Index begin = shape_.starts[node], count = shape_.starts[node + 1] - begin;
    if (accumulate && count == 0) return;
    const Index written = packs_ ? points() * K : K * shape_.R;
    y += node * points() * K;
    for (Index l = 0; l < L; ++l, y += written) {
      segment_kernels<T>().add_edges({sums, source + l * C * stride_, L * C * stride_, stride_,
                                      stride_, C, K, matrices_.data(), K, 1,
                                      shape_.ids.data() + begin, shape_.children.data() + begin,
                                      count});
      const T* result = packs_ ? unpacked(sums, sums + sums_elements()) : sums;
      write(result, y, written, alpha, accumulate);
    }
  }

  static void write(const T* sums, T* y, Index count, T alpha, bool accumulate) {
    if (accumulate)
      for (Index i = 0; i < count; ++i) y[i] = multiply_add(y[i], sums[i], alpha);
    else
      for (Index i = 0; i < count; ++i) y[i] = sums[i] * alpha;
  }

  // The kernel for blocks in their own order, if these sizes have one (simd/segmented/table.hpp).
  FlatKernel<T> find_flat() const {
    if (shape_.C != shape_.K || shape_.num_inputs > kMaxInputs) return {};
    for (const Index id : shape_.ids)
      if (id > kMaxInputs) return {};
    return segment_kernels<T>().find_flat(shape_.C, shape_.R);
  }

  std::vector<FlatEdge> list_edges() const {
    if (!flat_.add_edges) return {};
    std::vector<FlatEdge> edges(shape_.ids.size() + kEdgesAhead, FlatEdge{0, 0});
    for (std::size_t e = 0; e < shape_.ids.size(); ++e)
      edges[e] = {std::int32_t(shape_.ids[e]), std::int32_t(shape_.children[e])};
    return edges;
  }

  // Writes the matrices in the layout of the flat kernel.
  void set_patterns(const T* matrices, Index count) {
    const Index n = shape_.C, length = flat_.pattern;
    matrices_.resize(std::size_t(count * n * length));
    T* target = matrices_.data();
    for (Index i = 0; i < count; ++i, matrices += n * n)
      for (Index turns = 0; turns < n; ++turns)
        for (Index p = 0; p < length; ++p) {
          const Index c = p / shape_.R % n;
          *target++ = matrices[(c + turns) % n * n + c];
        }
  }

  // The flat kernel reads flat_.beyond elements behind a block. Blocks for which that is beyond the
  // end of x are copied to memory that is long enough; this is the first of them.
  Index first_copied() const {
    const Index block = points() * shape_.C;
    return std::max<Index>(0, shape_.num_inputs - (flat_.beyond + block - 1) / block);
  }
  Index copied_elements() const {
    if (!flat_.add_edges) return 0;
    return (shape_.num_inputs - first_copied()) * points() * shape_.C + flat_.beyond;
  }
  void copy_last(const T* x, T* copied) const {
    const Index size = copied_elements() - flat_.beyond;
    std::copy_n(x + first_copied() * points() * shape_.C, size, copied);
    std::fill_n(copied + size, flat_.beyond, T{});
  }

  void add_flat(const T* x, const T* copied, Index node, T* sums, T* y, T alpha,
                bool accumulate) const {
    const Index begin = shape_.starts[node], count = shape_.starts[node + 1] - begin;
    if (accumulate && count == 0) return;
    const Index block = points() * shape_.C, first = first_copied();
    flat_.add_edges({sums, x, copied - first * block, first, block, matrices_.data(),
                     edges_.data() + begin, count});
    write(sums, y + node * block, block, alpha, accumulate);
  }

  // Elements of one thread's sums. Each thread has this twice: unpacking needs a second buffer.
  Index sums_elements() const {
    return padded<T>(flat_.add_edges ? points() * shape_.K + flat_.beyond
                                  : shape_.K * stride_ + kCopied);
  }

  SegmentShape shape_;
  FlatKernel<T> flat_;  // its add_edges is null if the sizes have no flat kernel
  bool packs_;
  Index stride_;
  std::vector<FlatEdge> edges_;
  AlignedVector<T> matrices_;
  mutable ThreadGain gain_;
};

// Compiled once, in multiply.cpp.
extern template class SegmentedModeMultiply<float>;
extern template class SegmentedModeMultiply<double>;
extern template class SegmentedModeMultiply<Complex<float>>;
extern template class SegmentedModeMultiply<Complex<double>>;

}  // namespace batchkron
