#include "engine/fields/program.hpp"

#include "engine/dispatch.hpp"

namespace batchkron {

bool run_field_program(const FieldProgram& p) {
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
