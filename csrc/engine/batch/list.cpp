#include "engine/batch/list.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

namespace batchkron {
namespace {

// Whether a number is less than the limit, and not negative.
bool is_below(Index number, Index limit) { return std::uint64_t(number) < std::uint64_t(limit); }

void count_outputs(const BatchShape& shape, const BatchList& list, SortedList& sorted) {
  std::vector<Index>& starts = sorted.starts;
  starts.assign(std::size_t(shape.num_outputs) + 1, 0);
  sorted.outputs.resize(std::size_t(list.count));
  list.outputs.visit([&](const auto* outputs) {
    for (Index b = 0; b < list.count; ++b) {
      const Index output = outputs[b];
      if (!is_below(output, shape.num_outputs)) {
        sorted.is_valid = false;
        return;
      }
      sorted.outputs[std::size_t(b)] = output;
      ++starts[std::size_t(output + 1)];
    }
  });
  for (Index o = 0; o < shape.num_outputs; ++o) starts[o + 1] += starts[o];
}

bool has_identities(const BatchList& list) {
  return std::any_of(list.identity.begin(), list.identity.end(), [](const auto& flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
  });
}

// Finds the group of a product in one look-up for each mode: groups are the leaves of a binary tree
// whose levels are the modes. They are numbered as they first appear.
class GroupTree {
 public:
  GroupTree(const BatchShape& shape, std::vector<Steps>& steps)
      : shape_(shape), steps_(steps), active_(shape.inputs.size()), nodes_{{kNone, kNone}} {}

  // is_active(k) says whether the factor of mode k is not the identity.
  template <class IsActive>
  std::int32_t find(IsActive is_active) {
    std::int32_t at = 0;
    for (std::size_t k = 0; k < active_.size(); ++k) {
      active_[k] = is_active(k);
      const std::size_t branch = active_[k] ? 1 : 0, node = std::size_t(at);
      at = nodes_[node][branch];
      if (at == kNone) at = nodes_[node][branch] = k + 1 < active_.size() ? new_node() : new_group();
    }
    return at;
  }

 private:
  static constexpr std::int32_t kNone = -1;

  std::int32_t new_node() {
    nodes_.push_back({kNone, kNone});
    return std::int32_t(nodes_.size()) - 1;
  }
  std::int32_t new_group() {
    steps_.push_back(plan_steps(shape_.inputs, shape_.outputs, active_, 1));
    return std::int32_t(steps_.size()) - 1;
  }

  const BatchShape& shape_;
  std::vector<Steps>& steps_;
  std::vector<bool> active_;
  std::vector<std::array<std::int32_t, 2>> nodes_;  // of the next level: nodes, in the end groups
};

// The group of every product, in the user's order.
std::vector<std::int32_t> find_groups(const BatchShape& shape, const BatchList& list,
                                      std::vector<Steps>& steps) {
  const Index modes = Index(shape.inputs.size());
  std::vector<std::int32_t> groups(std::size_t(list.count));
  GroupTree tree(shape, steps);
  for (Index b = 0; b < list.count; ++b)
    groups[std::size_t(b)] = tree.find(
        [&](std::size_t k) { return !list.identity[k][std::size_t(list.ids[b * modes + Index(k)])]; });
  return groups;
}

// Sorts by output (a stable counting sort), and by group within each output.
void sort_in_groups(const BatchList& list, Index modes, SortedList& sorted) {
  const std::vector<std::int32_t> groups = std::move(sorted.groups);
  std::vector<Index> next(sorted.starts.begin(), sorted.starts.end() - 1);
  for (Index b = 0; b < list.count; ++b)
    sorted.order[std::size_t(next[std::size_t(sorted.outputs[std::size_t(b)])]++)] = b;
  for (std::size_t output = 0; output + 1 < sorted.starts.size(); ++output)
    std::stable_sort(
        sorted.order.begin() + sorted.starts[output], sorted.order.begin() + sorted.starts[output + 1],
        [&](Index a, Index b) { return groups[std::size_t(a)] < groups[std::size_t(b)]; });
  sorted.groups.resize(std::size_t(list.count));
  for (Index i = 0; i < list.count; ++i) {
    const Index b = sorted.order[std::size_t(i)];
    sorted.inputs[std::size_t(i)] = std::int32_t(list.inputs[b]);
    for (Index k = 0; k < modes; ++k)
      sorted.ids[std::size_t(i * modes + k)] = std::int32_t(list.ids[b * modes + k]);
    sorted.groups[std::size_t(i)] = groups[std::size_t(b)];
    sorted.multiply_adds += sorted.steps[std::size_t(groups[std::size_t(b)])].multiply_adds;
  }
}

// Sorts by output where all products are of one group. The list is read in order, which is faster
// than to read it in the order of the outputs.
void sort_by_output(const BatchShape& shape, const BatchList& list, Index modes,
                    SortedList& sorted) {
  std::vector<Index> next(sorted.starts.begin(), sorted.starts.end() - 1);
  std::vector<Index> limits = list.limits;
  if (limits.empty()) limits.assign(std::size_t(modes), std::numeric_limits<std::int32_t>::max());
  Index* const order = sorted.order.empty() ? nullptr : sorted.order.data();
  bool valid = true;
  list.inputs.visit([&](const auto* inputs) {
    list.ids.visit([&](const auto* ids) {
      for (Index b = 0; b < list.count; ++b) {
        const Index i = next[std::size_t(sorted.outputs[std::size_t(b)])]++;
        const Index input = inputs[b];
        if (order) order[i] = b;
        valid &= is_below(input, shape.num_inputs);
        sorted.inputs[std::size_t(i)] = std::int32_t(input);
        std::int32_t* const sorted_ids = sorted.ids.data() + i * modes;
        for (Index k = 0; k < modes; ++k) {
          const Index id = *ids++;
          valid &= is_below(id, limits[std::size_t(k)]);
          sorted_ids[k] = std::int32_t(id);
        }
      }
    });
  });
  sorted.is_valid = valid;
  sorted.multiply_adds = double(list.count) * sorted.steps[0].multiply_adds;
}

void find_runs(SortedList& sorted) {
  sorted.runs.clear();
  sorted.run_starts.assign(1, 0);
  sorted.run_starts.reserve(sorted.starts.size());
  for (std::size_t output = 0; output + 1 < sorted.starts.size(); ++output) {
    Index begin = sorted.starts[output];
    const Index end = sorted.starts[output + 1];
    while (begin < end) {
      const std::int32_t group = sorted.group(begin);
      Index next = sorted.groups.empty() ? end : begin + 1;
      while (next < end && sorted.group(next) == group) ++next;
      sorted.runs.push_back({begin, next, group});
      begin = next;
    }
    sorted.run_starts.push_back(Index(sorted.runs.size()));
  }
}

}  // namespace

SortedList sort_batch(const BatchShape& shape, const BatchList& list, SortedList memory,
                      bool wants_order) {
  const Index modes = Index(shape.inputs.size());
  if (shape.num_inputs > std::numeric_limits<std::int32_t>::max())
    throw std::overflow_error("a batch list has at most 2^31 - 1 input blocks");
  SortedList sorted = std::move(memory);
  sorted.is_valid = true;
  count_outputs(shape, list, sorted);
  if (!sorted.is_valid) return sorted;
  sorted.steps.clear();
  sorted.groups.clear();
  sorted.multiply_adds = 0;
  sorted.largest_intermediate = 0;
  const bool grouped = has_identities(list);
  sorted.order.resize(wants_order || grouped ? std::size_t(list.count) : 0);
  sorted.inputs.resize(std::size_t(list.count));
  sorted.ids.resize(std::size_t(list.count * modes));
  if (grouped) {
    sorted.groups = find_groups(shape, list, sorted.steps);
    sort_in_groups(list, modes, sorted);
  } else {
    sorted.steps.push_back(
        plan_steps(shape.inputs, shape.outputs, std::vector<bool>(std::size_t(modes), true), 1));
    sort_by_output(shape, list, modes, sorted);
  }
  sorted.multiply_adds += double(list.count) * double(shape.output_size());
  for (const Steps& steps : sorted.steps)
    sorted.largest_intermediate = std::max(sorted.largest_intermediate, steps.largest_intermediate);
  find_runs(sorted);
  return sorted;
}

}  // namespace batchkron
