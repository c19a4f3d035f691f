// One call for a batch list that is not known before: the list is sorted, and nothing is kept.
#pragma once

#include <functional>
#include <limits>
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
  bool run(const std::function<void(double)>& begin) const;

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

// Compiled once, in list_call.cpp.
extern template struct ListCall<float>;
extern template struct ListCall<double>;
extern template struct ListCall<Complex<float>>;
extern template struct ListCall<Complex<double>>;

}  // namespace batchkron
