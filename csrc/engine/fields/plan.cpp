#include "engine/fields/plan.hpp"

#include <algorithm>

#include "engine/dispatch.hpp"
#include "engine/fields/blocks.hpp"
#include "engine/fields/program.hpp"

namespace batchkron {

bool FieldPlan::write(const double* u, double* heap, double* ancestors) const {
  const FieldPlanParts& p = parts_;
  const Index steps = Index(p.code.size()) / 3, before = p.channels * p.points;
  const Index rows = p.channels + Index(p.known.size()) / p.points;
  std::vector<double> values(std::size_t((rows + steps) * p.points));
  std::copy(p.known.begin(), p.known.end(), values.begin() + before);
  write_channels(u, values.data());
  const FieldProgram program{p.points, rows, steps, p.size, p.code.data(), p.projection.data(),
                             values.data()};
  if (!run_field_program(program)) return false;
  write_field_blocks({p.level, p.n, p.points_of_cell, Index(p.fields.size()), values.data(),
                      p.fields.data(), p.signs.data(), p.lowest.data(), p.outer.data(),
                      p.coarsen.data(), p.upward.data(), heap, ancestors});
  return true;
}

void FieldPlan::write_channels(const double* u, double* values) const {
  const FieldPlanParts& p = parts_;
  const auto multiply = kernels().small_products->multiply;
  std::vector<double> moments(std::size_t(p.moments * p.width));
  for (std::size_t row = 0; row < moments.size(); ++row) {
    double sum = 0.0;
    for (std::int64_t e = p.starts[row]; e < p.starts[row + 1]; ++e)
      sum += p.weights[std::size_t(e)] * u[p.columns[std::size_t(e)]];
    moments[row] = sum;
  }
  std::vector<double> mixed(std::size_t(p.channels * p.width)), inputs, state, next;
  multiply({p.mix.data(), moments.data(), mixed.data(), p.channels, p.moments, p.width,
            p.moments, p.width, p.width});
  for (Index c = 0; c < p.channels; ++c) {
    double* own = mixed.data() + c * p.width;
    for (Index i = 0; i < p.width; ++i) own[i] *= p.kept[std::size_t(c * p.width + i)];
    state.clear();
    for (const FieldLevels& group : p.levels) {
      const Index given = Index(state.size()) / group.number;
      const Index inside = group.inputs - given;
      inputs.resize(std::size_t(group.number * group.inputs));
      for (Index cell = 0; cell < group.number; ++cell, own += inside) {
        double* target = inputs.data() + cell * group.inputs;
        std::copy_n(state.data() + cell * given, given, target);
        std::copy_n(own, inside, target + given);
      }
      next.resize(std::size_t(group.number * group.outputs));
      multiply({inputs.data(), group.matrices.data() + c * group.inputs * group.outputs,
                next.data(), group.number, group.inputs, group.outputs, group.inputs,
                group.outputs, group.outputs});
      state.swap(next);
    }
    const double* offset = p.offsets.data() + c * p.points;
    for (Index i = 0; i < p.points; ++i)
      values[c * p.points + i] = state[std::size_t(i)] + offset[i];
  }
}

}  // namespace batchkron
