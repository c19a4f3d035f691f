// Windows of a grid: a point is interpolated from four neighbouring cells in each mode.
// Vector r of the points has element p at points[p * point_step + vectors[r]], and its value in a
// cell is grid[cell * cell_step + r]. Points are in the order of their windows' corners, the first
// mode slowest; a bin has all points of one corner. The bins of a grid of P_1 x ... x P_N cells are
// (P_1 - 3) x ... x (P_N - 3) in that order.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

constexpr int kWindow = 4;       // cells of a window in a mode
constexpr int kMaxVectors = 16;  // of one launch

// Some points one behind another, as far as the next segment begins; see segments.cuh.
struct __align__(16) PointSegment {
  int base;   // cells of all spans before
  int span;   // cells, a multiple of 4
  int first;  // of the last mode: where the span begins
  int begin;  // the first point
};

struct __align__(8) PointEntry {
  int place;   // where the value of a point is
  int column;  // the corner of its window in the last mode
};

struct __align__(8) SegmentRange {
  int begin, end;
};

template <class T, int modes>
struct InterpolationArguments {
  T* points;
  T* grid;
  T* partial;                    // sums over segments
  const T* weights;              // (count, modes, 4)
  const Index* corners;          // (count,): the first cell of a window
  const int* places;             // (count,): where the value of a point is
  const int* starts;             // (bins + 1,): where the points of a bin begin
  const PointEntry* entries;     // (count,)
  const PointSegment* segments;  // (segment_count + 1,)
  const SegmentRange* covers;    // (rows of bins, P_N): which segments meet a cell of the last mode
  Index count, segment_count;
  Index point_step, cell_step;
  Index sizes[modes];         // cells of each mode
  Index steps[modes];         // elements of the grid between neighbouring cells of a mode
  Index vectors[kMaxVectors];
  Index accumulate;           // whether to add to the points
  T alpha;
};

}  // namespace batchkron
