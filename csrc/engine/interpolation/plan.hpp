// Interpolation on a grid from windows of cells, and its transpose.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/steps.hpp"
#include "engine/threads.hpp"

namespace batchkron {

// Points in the order of their windows' corners, the first mode slowest.
template <class T>
struct SortedPoints {
  const T* weights;      // (points, modes, 4)
  const Index* corners;  // (points, modes): first of four cells in each mode
  const Index* places;   // (points,): where the value of a point is
  Index count;
};

// Some vectors of points and cells. Vector r of them is at
//
//   points[p * point_step + vectors[r]]    and    grid[cell * cell_step + r].
template <class T, class Points, class Grid>
struct InterpolationCall {
  Points* points;
  Index point_step;
  const Index* vectors;
  Grid* grid;
  Index cell_step;
  int power;  // there are 2^power vectors, fewer than kVectorPowers
};

// W of shape (points, cells) for fixed windows. Several threads may use it at once.
//
// The transpose adds by owner: cells of equal indices in the leading modes are a plane, and one
// thread visits all points whose windows meet the plane, in their order. One thread alone visits each
// point once, where that gives the same numbers. So results have the same bits for any number of
// threads.
template <class T>
class InterpolationPlan {
 public:
  // `sizes` are the cells of each mode. Throws std::invalid_argument where a corner or a place is
  // out of range, or points are not in order.
  InterpolationPlan(const std::vector<Index>& sizes, const SortedPoints<T>& points);

  Index points() const { return count_; }
  Index cells() const { return cells_; }
  double multiply_adds(Index vectors) const {
    double window = 1;
    for (Index k = 0; k < modes_; ++k) window *= kWeights;
    return window * double(count_) * double(vectors);
  }

  // grid = W^T points.
  void scatter(const InterpolationCall<T, const T, T>& call) const;

  // points = alpha W grid, or += with `accumulate`.
  void gather(const InterpolationCall<T, T, const T>& call, T alpha, bool accumulate) const;

 private:
  // Points that a thread takes at a time, and planes from which there are enough for many threads.
  // Chosen by hand.
  static constexpr Index kGathered = 64, kPlanes = 64;

  static Index table_modes(Index modes) { return std::min<Index>(modes, kMaxTableModes); }

  // Planes are those of as few leading modes as give enough of them. The last mode is no such mode,
  // nor the one before it unless it is the first: of that, a row would be all that a plane has of a
  // window.
  void choose_planes() {
    owned_ = 0;
    planes_ = 1;
    const Index most = std::min(modes_ - 1, std::max<Index>(1, modes_ - 2));
    while (owned_ < most && planes_ < kPlanes) planes_ *= sizes_[owned_++];
  }

  // Corners as cells of the grid, and where the points of each corner's leading indices begin.
  void set_corners(const Index* corners) {
    Index bins = 1;
    for (Index k = 0; k < owned_; ++k) bins *= sizes_[k] - kWeights + 1;
    starts_.assign(std::size_t(bins + 1), 0);
    corners_.resize(std::size_t(count_));
    Index previous = 0;
    for (Index p = 0; p < count_; ++p) {
      Index cell = 0, bin = 0;
      for (Index k = 0; k < modes_; ++k) {
        const Index corner = corners[p * modes_ + k];
        if (corner < 0 || corner > sizes_[k] - kWeights)
          throw std::invalid_argument("internal error: a window is outside of the grid");
        cell += corner * strides_[k];
        if (k < owned_) bin = bin * (sizes_[k] - kWeights + 1) + corner;
      }
      if (places_[p] < 0 || places_[p] >= count_ || cell < previous)
        throw std::invalid_argument("internal error: points are not in order");
      previous = corners_[p] = cell;
      ++starts_[bin + 1];
    }
    for (Index bin = 0; bin < bins; ++bin) starts_[bin + 1] += starts_[bin];
  }

  // The rows of a window over some modes before the last, cells from the corner.
  std::vector<Index> rows_of(Index tabled) const {
    std::vector<Index> rows{0};
    for (Index k = modes_ - 1 - tabled; k < modes_ - 1; ++k) {
      std::vector<Index> finer;
      for (const Index row : rows)
        for (Index j = 0; j < kWeights; ++j) finer.push_back(row + j * strides_[k]);
      rows = finer;
    }
    return rows;
  }

  WindowList<T> list(Index first, Index last, Index fixed, const Index* digits,
                     const std::vector<Index>& rows) const {
    return {modes_, weights_.data(), corners_.data(), places_.data(),
            strides_.data(), first, last, fixed, digits, table_modes(modes_ - 1 - fixed),
            rows.data()};
  }

  void clear(const InterpolationCall<T, const T, T>& call, Index plane) const {
    const Index cells = cells_ / planes_, width = Index(1) << call.power;
    T* begin = call.grid + plane * cells * call.cell_step;
    if (call.cell_step == width) {
      std::fill_n(begin, cells * width, T(0));
      return;
    }
    for (Index cell = 0; cell < cells; ++cell)
      std::fill_n(begin + cell * call.cell_step, width, T(0));
  }

  // Calls visit(first, last, digits) for the points whose windows meet a plane: digits are the
  // plane's place in their windows.
  template <class Visit>
  void visit_plane(Index plane, Visit visit) const {
    Index indices[kMaxGridModes], digits[kMaxGridModes] = {};
    for (Index k = owned_ - 1; k >= 0; --k) {
      indices[k] = plane % sizes_[k];
      plane /= sizes_[k];
    }
    // corners in ascending order are digits in descending order
    for (Index k = 0; k < owned_; ++k) digits[k] = kWeights - 1;
    for (;;) {
      Index bin = 0;
      bool inside = true;
      for (Index k = 0; k < owned_; ++k) {
        const Index corner = indices[k] - digits[k];
        inside = inside && corner >= 0 && corner <= sizes_[k] - kWeights;
        bin = bin * (sizes_[k] - kWeights + 1) + corner;
      }
      if (inside && starts_[bin] < starts_[bin + 1]) visit(starts_[bin], starts_[bin + 1], digits);
      Index k = owned_ - 1;
      while (k >= 0 && --digits[k] < 0) digits[k--] = kWeights - 1;
      if (k < 0) return;
    }
  }

  std::vector<Index> sizes_, strides_;
  Index modes_, count_, cells_ = 0;
  Index owned_ = 0, planes_ = 1;  // leading modes of a plane, and how many planes there are
  std::vector<T> weights_;
  std::vector<Index> corners_, places_, starts_;
  std::vector<Index> scatter_rows_, gather_rows_;  // of planes, and of whole windows
  mutable ThreadGains scatter_gains_, gather_gains_;
};

// Compiled once, in plan.cpp.
extern template class InterpolationPlan<float>;
extern template class InterpolationPlan<double>;

}  // namespace batchkron
