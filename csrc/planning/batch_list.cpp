#include "planning/batch_list.hpp"

#include <algorithm>
#include <map>

namespace batchkron {
namespace {

std::vector<Index> count_outputs(const BatchShape& shape, const BatchList& list) {
  std::vector<Index> starts(std::size_t(shape.num_outputs) + 1, 0);
  for (Index b = 0; b < list.count; ++b) ++starts[list.outputs[b] + 1];
  for (Index o = 0; o < shape.num_outputs; ++o) starts[o + 1] += starts[o];
  return starts;
}

}  // namespace

SortedList sort_batch(const BatchShape& shape, const BatchList& list) {
  const std::size_t modes = shape.inputs.size();
  SortedList sorted;
  sorted.starts = count_outputs(shape, list);
  sorted.order.resize(list.count);
  std::vector<Index> next(sorted.starts.begin(), sorted.starts.end() - 1);
  for (Index b = 0; b < list.count; ++b) sorted.order[next[list.outputs[b]]++] = b;

  sorted.inputs.resize(list.count);
  sorted.ids.resize(std::size_t(list.count) * modes);
  sorted.groups.resize(list.count);
  std::map<std::vector<bool>, std::int32_t> group_of;
  std::vector<bool> active(modes);
  for (Index i = 0; i < list.count; ++i) {
    const Index b = sorted.order[i];
    sorted.inputs[i] = list.inputs[b];
    for (std::size_t k = 0; k < modes; ++k) {
      const Index id = list.ids[b * Index(modes) + Index(k)];
      sorted.ids[std::size_t(i) * modes + k] = std::int32_t(id);
      active[k] = !list.identity[k][id];
    }
    const auto [at, is_new] = group_of.try_emplace(active, std::int32_t(sorted.steps.size()));
    if (is_new) sorted.steps.push_back(plan_steps(shape.inputs, shape.outputs, active, 1));
    sorted.groups[i] = at->second;
    const Steps& steps = sorted.steps[at->second];
    sorted.multiply_adds += steps.multiply_adds + double(shape.output_size());
    sorted.largest_intermediate =
        std::max(sorted.largest_intermediate, steps.largest_intermediate);
  }
  return sorted;
}

}  // namespace batchkron
