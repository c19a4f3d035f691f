// The blocks of multiplications by fields, from a state: all that depends on the state, in one call.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "simd/common/scalar.hpp"

namespace batchkron {

// Some levels of the map from hierarchical coefficients to values at points, for `number` cells.
// matrices (channels, inputs, outputs): the inputs of a cell are what the group before it says of
// the cell, then the coefficients of the cells inside.
struct FieldLevels {
  Index number, inputs, outputs;
  std::vector<double> matrices;
};

// Vectors hold contiguous arrays:
//   starts (sums + 1), columns, weights: rows of a sparse matrix that is applied to the state; the
//     sums are moments (moments, width) of the state
//   mix (channels, moments), kept (channels, width): channel c has the coefficients
//     kept[c] * sum over m of mix[c, m] moments[m]
//   offsets (channels, points): added to the values of the channels
//   known (rows, points): the rows after those of the channels with which a program begins
//   fields (parts): rows of the program; the rest is that of FieldBlocks
struct FieldPlanParts {
  Index unknowns, moments, width, channels, points;
  std::vector<std::int64_t> starts, columns;
  std::vector<double> weights, mix, kept, offsets, known;
  std::vector<FieldLevels> levels;
  std::vector<std::int64_t> code;
  Index size;
  std::vector<double> projection;
  Index level, n, points_of_cell;
  std::vector<std::int64_t> fields;
  std::vector<double> signs, lowest, outer, coarsen, upward;
};

class FieldPlan {
 public:
  explicit FieldPlan(FieldPlanParts parts) : parts_(std::move(parts)) {}

  const FieldPlanParts& parts() const { return parts_; }

  // Writes heap and ancestors of `FieldBlocks` for the state u. Returns false, and has written
  // nothing, if a divisor that should be positive is not.
  bool write(const double* u, double* heap, double* ancestors) const;

 private:
  void write_channels(const double* u, double* values) const;

  FieldPlanParts parts_;
};

}  // namespace batchkron
