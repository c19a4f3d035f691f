// Arithmetic with fields at points: the steps of an expression, each a function of earlier ones.
// problems/semidiscrete/fields/program.py makes the steps.
#pragma once

#include <cstdint>

#include "simd/common/scalar.hpp"

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
bool run_field_program(const FieldProgram& p);

}  // namespace batchkron
