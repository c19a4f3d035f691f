// One call for a batch list that is not known before: the list is sorted, and nothing is kept.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "engine/batch/plan.hpp"

namespace batchkron {

// y (outer, num_outputs, product of outputs) += the products of a list with x (outer, num_inputs,
// product of inputs). Pools have one entry in place of systems. y aliases nothing else.
template <class T>
struct ListCall {
  static constexpr Index kMaxMatrices = std::numeric_limits<std::int32_t>::max();  // of a pool

  BatchShape shape{{}, {}, 0, 0};
  BatchList list{0, static_cast<const Index*>(nullptr), static_cast<const Index*>(nullptr),
                 static_cast<const Index*>(nullptr), {}, {}};
  std::vector<PoolView<T>> pools;
  const T* weights = nullptr;  // null: all are 1
  const T* x = nullptr;
  T* y = nullptr;
  Index outer = 1;

  void add_pool(const T* matrices, Index count, Index rows, Index columns) {
    shape.outputs.push_back(rows);
    shape.inputs.push_back(columns);
    list.limits.push_back(count);
    pools.push_back({matrices, 1, count, rows, columns});
  }

  // Returns whether all numbers are in range; else it has not changed y. `begin` is called with the
  // number of multiply-adds before the products.
  template <class Begin>
  bool run(Begin begin) const {
    static ThreadGains gains;
    thread_local SortedList memory;  // of the last call: new memory would take longer than to sort
    SortedList sorted = sort_batch(shape, list, std::move(memory), weights != nullptr);
    if (!sorted.is_valid) return false;
    begin(sorted.multiply_adds * double(outer));
    BatchPlan<T> plan = BatchPlan<T>::once(shape, std::move(sorted), !pays_to_copy(), gains);
    for (std::size_t mode = 0; mode < pools.size(); ++mode) plan.set_pool(mode, pools[mode]);
    if (weights)
      plan.set_weights(weights, 1);
    else
      plan.set_unit_weights();
    plan.run(x, y, outer, 1, T(1), true);
    memory = plan.take_list();
    return true;
  }

 private:
  // Whether products use each matrix so often that it pays to copy the pools into the layouts of the
  // fastest kernels.
  bool pays_to_copy() const {
    Index matrices = 0;
    for (const PoolView<T>& pool : pools) matrices += pool.count;
    return matrices * kMinUses <= list.count * outer * Index(pools.size());
  }
  static constexpr Index kMinUses = 4;  // of a matrix; chosen by hand
};

}  // namespace batchkron
