// Arithmetic with fields at points: the steps of an expression, each a function of earlier ones.
// problems/semidiscrete/fields/program.py makes the steps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/dispatch.hpp"

namespace batchkron {

// Step s writes row `first + s` of values (rows, points), contiguous, from rows before it.
//   code (steps, 3): operation, left and right row
//   projection (size, size): "project" multiplies each `size` values of a row by it, from the right
struct FieldProgram {
  enum Operation : std::int64_t { add, subtract, multiply, divide, divide_by_positive, project };
  Index points, first, steps, size;
  const std::int64_t* code;
  const double* projection;
  double* values;
};

// Returns whether all divisors of "divide_by_positive" are positive; ends at the first that is not.
inline bool run_field_program(const FieldProgram& p) {
  for (Index s = 0; s < p.steps; ++s) {
    const std::int64_t* step = p.code + 3 * s;
    const double* left = p.values + step[1] * p.points;
    const double* right = p.values + step[2] * p.points;
    double* target = p.values + (p.first + s) * p.points;
    switch (step[0]) {
      case FieldProgram::add:
        for (Index i = 0; i < p.points; ++i) target[i] = left[i] + right[i];
        break;
      case FieldProgram::subtract:
        for (Index i = 0; i < p.points; ++i) target[i] = left[i] - right[i];
        break;
      case FieldProgram::multiply:
        for (Index i = 0; i < p.points; ++i) target[i] = left[i] * right[i];
        break;
      case FieldProgram::divide_by_positive:
        for (Index i = 0; i < p.points; ++i)
          if (!(right[i] > 0.0)) return false;  // NaN, too
        [[fallthrough]];
      case FieldProgram::divide:
        for (Index i = 0; i < p.points; ++i) target[i] = left[i] / right[i];
        break;
      default:
        kernels().small_products->multiply({left, p.projection, target, p.points / p.size, p.size,
                                            p.size, p.size, p.size, p.size});
    }
  }
  return true;
}

}  // namespace batchkron
