// Sweeps on sparse grids: bk_sweeps_*.
#include <algorithm>

#include "c_interface/calls.hpp"
#include "engine/sweeps/plan.hpp"

using namespace batchkron;
using namespace batchkron::c_interface;

namespace {

constexpr Index kMaxBlocks = Index(1) << 31;  // of a vector: indices of blocks have 32 bits

void expect_below(Index value, Index stop, const char* name) {
  if (value < 0 || value >= stop)
    refuse(std::string(name) + " is " + std::to_string(value) + "; expected 0 to " +
           std::to_string(stop - 1));
}

SweepPart checked_part(const bk_sweep_part& given, const SweepShape& shape, Index nodes) {
  expect_below(given.source, Index(shape.vectors.size()), "the source of a part");
  expect_below(given.mode, Index(shape.sizes.size()), "the mode of a part");
  expect_size(given.num_matrices, "num_matrices");
  const std::int32_t* starts = given.starts;
  expect(starts != nullptr, "the starts of a part are null");
  expect(starts[0] == 0 && std::is_sorted(starts, starts + nodes + 1),
         "the starts of a part do not ascend from 0");
  const Index inputs = shape.vectors[std::size_t(given.source)].count;
  expect((given.ids && given.children) || starts[nodes] == 0, "the ids or children of a part are null");
  for (Index e = 0; e < starts[nodes]; ++e) {
    expect_below(given.ids[e], given.num_matrices, "an id");
    expect_below(given.children[e], inputs, "a child");
  }
  return {given.source, given.mode, given.num_matrices,
          EdgeLists(nodes, starts, given.ids, given.children)};
}

SweepStep checked_step(const bk_sweep_step& given, const SweepShape& shape) {
  expect_below(given.target - 1, Index(shape.vectors.size()) - 1, "the target of a step, less 1,");
  expect_size(given.num_parts, "num_parts", 1);
  expect(given.parts != nullptr, "the parts of a step are null");
  SweepStep step{given.target, given.adds != 0, false, {}};
  for (std::int32_t i = 0; i < given.num_parts; ++i) {
    expect(given.parts[i].source != given.target, "a part reads the vector that its step writes");
    step.parts.push_back(
        checked_part(given.parts[i], shape, shape.vectors[std::size_t(given.target)].count));
  }
  return step;
}

// Refuses steps that read what no earlier step of the run has written, x as a target, y as a source,
// results in y that are overwritten, and vectors of one step that overlap in the scratch array.
void check_order(const SweepShape& shape) {
  std::vector<bool> written(shape.vectors.size(), false);
  written[0] = true;
  for (const SweepStep& step : shape.steps) {
    const SweepVector& target = shape.vectors[std::size_t(step.target)];
    expect(step.adds == written[std::size_t(step.target)] || (!step.adds && step.target != 1),
           step.adds ? "a step adds to a vector that no step before it has written"
                     : "a step overwrites vector 1, which an earlier one has written");
    for (const SweepPart& part : step.parts) {
      expect(part.source != 1, "a part reads vector 1, which is y");
      expect(written[std::size_t(part.source)], "a part reads a vector that no step has written");
      const SweepVector& source = shape.vectors[std::size_t(part.source)];
      expect(part.source == 0 || step.target == 1 || source.start >= target.start + target.count ||
                 target.start >= source.start + source.count,
             "a part reads a vector that overlaps the one that its step writes");
    }
    if (step.target > 1)  // what lies there is lost
      for (std::size_t v = 2; v < written.size(); ++v)
        if (shape.vectors[v].start < target.start + target.count &&
            target.start < shape.vectors[v].start + shape.vectors[v].count)
          written[v] = false;
    written[std::size_t(step.target)] = true;
  }
  expect(shape.steps.empty() || written[1], "no step writes vector 1, which is y");
}

template <class T>
struct Sweeps {
  SweepPlan<T> plan;

  Sweeps(SweepShape shape, const void* const* matrices) : plan(std::move(shape)) {
    set_values(matrices);
  }

  void set_values(const void* const* matrices) {
    std::vector<const T*> values;
    for (const SweepStep& step : plan.shape().steps)
      for (const SweepPart& part : step.parts) {
        const Index n = plan.shape().sizes[std::size_t(part.mode)];
        values.push_back(array_of<T>(matrices, Index(values.size()),
                                     checked_product({part.num_matrices, n, n}), "matrices"));
      }
    plan.matrices().set(values);
  }

  void run(Index outer, Index inner, const void* x, const void* alpha, const void* beta,
           void* y) const {
    expect_size(outer, "outer");
    expect_size(inner, "inner");
    const Vectors<T> vectors(x, checked_product({plan.elements(0), outer, inner}), alpha, beta, y,
                             checked_product({plan.elements(1), outer, inner}));
    const bool accumulates = vectors.scale();
    plan.run(vectors.x, vectors.y, outer, inner, vectors.alpha, accumulates);
  }
};

}  // namespace

struct bk_sweeps : AnyPlan<Sweeps> {};

bk_status bk_sweeps_create(bk_sweeps** sweeps, bk_dtype dtype, int32_t num_modes,
                           const int64_t* sizes, int64_t num_vectors, const int64_t* vector_starts,
                           const int64_t* vector_counts, int64_t num_steps,
                           const bk_sweep_step* steps, const void* const* matrices) {
  return create(sweeps, dtype, [&](auto zero) {
    expect_size(num_modes, "num_modes", 1);
    expect_size(num_vectors, "num_vectors", 2);
    expect_size(num_steps, "num_steps");
    expect(sizes && vector_starts && vector_counts && (steps || num_steps == 0),
           "sizes, vector_starts, vector_counts or steps is null");
    SweepShape shape;
    for (std::int32_t k = 0; k < num_modes; ++k) {
      expect_size(sizes[k], "a size of a block", 1);
      shape.sizes.push_back(sizes[k]);
    }
    shape.given = shape.sizes;
    for (Index v = 0; v < num_vectors; ++v) {
      expect_below(vector_starts[v], kMaxBlocks, "the start of a vector");
      expect_below(vector_counts[v], kMaxBlocks, "the number of blocks of a vector");
      shape.vectors.push_back({vector_starts[v], vector_counts[v]});
    }
    for (Index s = 0; s < num_steps; ++s) shape.steps.push_back(checked_step(steps[s], shape));
    check_order(shape);
    return std::make_unique<Sweeps<decltype(zero)>>(std::move(shape), matrices);
  });
}

bk_status bk_sweeps_set_values(bk_sweeps* sweeps, const void* const* matrices) {
  return with_plan(sweeps, [&](auto& plan) { plan.set_values(matrices); });
}

bk_status bk_sweeps_run(const bk_sweeps* sweeps, int64_t outer, int64_t inner, const void* x,
                        const void* alpha, const void* beta, void* y) {
  return with_plan(sweeps, [&](const auto& plan) { plan.run(outer, inner, x, alpha, beta, y); });
}

void bk_sweeps_destroy(bk_sweeps* sweeps) { delete sweeps; }
