// The interface between interpolation on a grid and its kernels, which are compiled once for each
// instruction set.
//
// A row of the interpolation W is w_1 (x) ... (x) w_N (x): four weights in each mode, of the four
// neighbouring cells that begin at the row's corner. So it is non-zero in a window of 4^N cells.
// Weights are products of at most N numbers, formed where they are used.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

constexpr int kWeights = 4;       // in one mode
constexpr int kMaxGridModes = 16;     // 4^16 cells are the smallest grid of so many
constexpr int kMaxTableModes = 4; // modes whose products of weights are in a table

// Numbers of vectors that a kernel is compiled for: 1, 2, 4, 8, 16.
constexpr int kVectorPowers = 5;

// The windows of the points [first, last), and which part of them is visited: in the first `fixed`
// modes, at most N - 1, only the weight digits[k].
template <class T>
struct WindowList {
  Index modes;
  const T* weights;      // (points, modes, 4)
  const Index* corners;  // (points,): first cell of a window, counted in the grid
  const Index* places;   // (points,): where the value of a point is
  const Index* strides;  // (modes,): cells between neighbours of a mode; 1 for the last
  Index first, last;
  Index fixed;
  const Index* digits;   // (fixed,)
  // Products of the weights of the last `tabled` modes but one, at most kMaxTableModes, are in a
  // table of 4^tabled. These are the rows of the window, cells from its corner.
  Index tabled;
  const Index* rows;
};

// The values of a point and of a cell for vectors r = 0, 1, ... are at
//
//   points[places[p] * point_step + vectors[r]]    and    grid[cell * cell_step + r].
//
// Nothing is aligned beyond an element. `grid` overlaps nothing.

// grid[cell] += W[p, cell] * points[p] for the points in order and their cells.
template <class T>
struct WindowScatter {
  WindowList<T> list;
  const T* points;
  Index point_step;
  const Index* vectors;
  T* grid;
  Index cell_step;
};

// points[p] = alpha * sum over cells of W[p, cell] * grid[cell], or += with `accumulate`; without
// it points are never read. All modes are visited: fixed is 0.
template <class T>
struct WindowGather {
  WindowList<T> list;
  T* points;
  Index point_step;
  const Index* vectors;
  const T* grid;
  Index cell_step;
  T alpha;
  bool accumulate;
};

// [log2 of the vectors]
template <class T>
struct InterpolationKernels {
  void (*scatter[kVectorPowers])(const WindowScatter<T>&);
  void (*gather[kVectorPowers])(const WindowGather<T>&);
};

struct InterpolationTable {
  InterpolationKernels<float> f32;
  InterpolationKernels<double> f64;
};

}  // namespace batchkron
