#include "engine/batch/list.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

namespace batchkron {
namespace {

std::vector<Index> count_outputs(const BatchShape& shape, const BatchList& list) {
  std::vector<Index> starts(std::size_t(shape.num_outputs) + 1, 0);
  for (Index b = 0; b < list.count; ++b) ++starts[list.outputs[b] + 1];
  for (Index o = 0; o < shape.num_outputs; ++o) starts[o + 1] += starts[o];
  return starts;
}

// The group of every product, in the user's order; groups are numbered as they first appear.
std::vector<std::int32_t> find_groups(const BatchShape& shape, const BatchList& list,
                                      std::vector<Steps>& steps) {
  const std::size_t modes = shape.inputs.size();
  std::vector<std::int32_t> groups(std::size_t(list.count));
  std::map<std::vector<bool>, std::int32_t> group_of;
  std::vector<bool> active(modes);
  for (Index b = 0; b < list.count; ++b) {
    for (std::size_t k = 0; k < modes; ++k)
      active[k] = !list.identity[k][list.ids[b * Index(modes) + Index(k)]];
    const auto [at, is_new] = group_of.try_emplace(active, std::int32_t(steps.size()));
    if (is_new) steps.push_back(plan_steps(shape.inputs, shape.outputs, active, 1));
    groups[b] = at->second;
  }
  return groups;
}

// A stable counting sort by output, then a stable sort by group within each output.
std::vector<Index> sorted_order(const BatchList& list, const std::vector<Index>& starts,
                                const std::vector<std::int32_t>& groups) {
  std::vector<Index> order(std::size_t(list.count));
  std::vector<Index> next(starts.begin(), starts.end() - 1);
  for (Index b = 0; b < list.count; ++b) order[next[list.outputs[b]]++] = b;
  for (std::size_t output = 0; output + 1 < starts.size(); ++output)
    std::stable_sort(order.begin() + starts[output], order.begin() + starts[output + 1],
                     [&](Index a, Index b) { return groups[a] < groups[b]; });
  return order;
}

void find_runs(SortedList& sorted) {
  sorted.run_starts.push_back(0);
  for (std::size_t output = 0; output + 1 < sorted.starts.size(); ++output) {
    for (Index i = sorted.starts[output]; i < sorted.starts[output + 1]; ++i) {
      if (i == sorted.starts[output] || sorted.groups[i] != sorted.groups[i - 1])
        sorted.runs.push_back({i, i, sorted.groups[i]});
      ++sorted.runs.back().end;
    }
    sorted.run_starts.push_back(Index(sorted.runs.size()));
  }
}

}  // namespace

SortedList sort_batch(const BatchShape& shape, const BatchList& list) {
  const std::size_t modes = shape.inputs.size();
  if (shape.num_inputs > std::numeric_limits<std::int32_t>::max())
    throw std::overflow_error("a batch list has at most 2^31 - 1 input blocks");
  SortedList sorted;
  sorted.starts = count_outputs(shape, list);
  const std::vector<std::int32_t> groups = find_groups(shape, list, sorted.steps);
  sorted.order = sorted_order(list, sorted.starts, groups);
  sorted.inputs.resize(list.count);
  sorted.ids.resize(std::size_t(list.count) * modes);
  sorted.groups.resize(list.count);
  for (Index i = 0; i < list.count; ++i) {
    const Index b = sorted.order[i];
    sorted.inputs[i] = std::int32_t(list.inputs[b]);
    for (std::size_t k = 0; k < modes; ++k)
      sorted.ids[std::size_t(i) * modes + k] =
          std::int32_t(list.ids[b * Index(modes) + Index(k)]);
    sorted.groups[i] = groups[b];
    sorted.multiply_adds += sorted.steps[groups[b]].multiply_adds + double(shape.output_size());
  }
  for (const Steps& steps : sorted.steps)
    sorted.largest_intermediate =
        std::max(sorted.largest_intermediate, steps.largest_intermediate);
  find_runs(sorted);
  return sorted;
}

}  // namespace batchkron
