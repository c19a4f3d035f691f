// A batch list made ready to run: sorted by output, grouped by which modes do any work.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/steps.hpp"

namespace batchkron {

// The sizes that a plan fixes. Block sizes of mode k: inputs[k] -> outputs[k].
struct BatchShape {
  std::vector<Index> inputs, outputs;
  Index num_inputs, num_outputs;
  Index input_size() const { return checked_product(inputs); }
  Index output_size() const { return checked_product(outputs); }
};

// As the user gives it: ids is (count, modes), row-major; identity[k][id] says that this matrix of
// pool k is the identity. All indices are already known to be in range.
struct BatchList {
  Index count;
  const Index* ids;
  const Index* inputs;
  const Index* outputs;
  std::vector<std::vector<bool>> identity;
};

// Products of one output that multiply the same modes: [begin, end) of the sorted list.
struct Run {
  Index begin, end;
  std::int32_t group;
};

// Products sorted by output, within one output by which modes they multiply, and within these in
// their given order.
struct SortedList {
  std::vector<Index> order;          // sorted position -> position in the user's list
  std::vector<Index> starts;         // (num_outputs + 1,) first product of each output
  std::vector<Run> runs;             // in the order of the list
  std::vector<Index> run_starts;     // (num_outputs + 1,) first run of each output
  std::vector<std::int32_t> inputs;  // (count,) input block of each product
  std::vector<std::int32_t> ids;     // (count, modes)
  std::vector<std::int32_t> groups;  // (count,) into `steps`
  std::vector<Steps> steps;          // one for each set of modes that are not the identity
  double multiply_adds = 0;
  Index largest_intermediate = 0;    // elements, over all groups
};

SortedList sort_batch(const BatchShape& shape, const BatchList& list);

}  // namespace batchkron
