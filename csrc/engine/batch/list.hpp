// A batch list made ready to run: sorted by output block, and within one by which of the factors
// are not the identity.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/steps.hpp"

namespace batchkron {

// The sizes that a plan fixes. Factors of mode k are outputs[k] x inputs[k]; num_inputs and
// num_outputs count blocks of x and y.
struct BatchShape {
  std::vector<Index> inputs, outputs;
  Index num_inputs, num_outputs;
  Index input_size() const { return checked_product(inputs); }
  Index output_size() const { return checked_product(outputs); }
};

// Numbers of a list as the user gives them, of 32 or of 64 bits.
class ListNumbers {
 public:
  ListNumbers(const std::int32_t* numbers) : narrow_(numbers) {}
  ListNumbers(const Index* numbers) : wide_(numbers) {}
  Index operator[](Index i) const { return wide_ ? wide_[i] : narrow_[i]; }
  // Returns function(pointer to the first).
  template <class Function>
  auto visit(Function function) const {
    return wide_ ? function(wide_) : function(narrow_);
  }

 private:
  const std::int32_t* narrow_ = nullptr;
  const Index* wide_ = nullptr;
};

// The list as the user gives it. Product b reads block inputs[b] of x, adds to block outputs[b] of
// y, and its factor of mode k is matrix ids[b, k] of pool k; ids is (count, modes), row-major.
// identity[k][id] says that this matrix is the identity; if it is empty, no matrix is taken for
// one. limits[k] is the number of matrices in pool k, if numbers have to be checked (see sort_batch);
// if it is empty, the caller has checked all.
struct BatchList {
  Index count;
  ListNumbers ids, inputs, outputs;
  std::vector<std::vector<bool>> identity;
  std::vector<Index> limits;
};

// Products [begin, end) of the sorted list, which have one output and the same modes with factors
// that are not the identity.
struct Run {
  Index begin, end;
  std::int32_t group;  // which modes these are: an index of SortedList::steps
};

// Products sorted by output, within one output by group (the set of modes whose factors are not the
// identity), and within a group in the user's order.
struct SortedList {
  std::vector<Index> order;          // sorted position -> position in the user's list
  std::vector<Index> starts;         // (num_outputs + 1,) first product of each output
  std::vector<Run> runs;             // in the order of the list
  std::vector<Index> run_starts;     // (num_outputs + 1,) first run of each output
  std::vector<std::int32_t> inputs;  // (count,) input block of each product
  std::vector<std::int32_t> ids;     // (count, modes)
  std::vector<std::int32_t> groups;  // (count,) group of each product; empty if there is one group
  std::vector<Steps> steps;          // [group]
  double multiply_adds = 0;
  Index largest_intermediate = 0;    // elements; the largest of all groups
  bool is_valid = true;              // whether all numbers are in range, where they are checked
  std::vector<Index> outputs;        // (count,) of each product in the user's order

  std::int32_t group(Index i) const { return groups.empty() ? 0 : groups[std::size_t(i)]; }
};

// Sorts a list into `memory`, whose contents do not matter: that of an earlier one is used again.
// `order` stays empty unless it is wanted. Numbers of a list without identities are checked if it has
// limits. Each is read once, so that what is used has been checked even if another thread changes
// the user's arrays meanwhile.
SortedList sort_batch(const BatchShape& shape, const BatchList& list, SortedList memory = {},
                      bool wants_order = true);

}  // namespace batchkron
