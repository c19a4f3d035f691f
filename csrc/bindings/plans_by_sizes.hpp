// Plans that were made lately, found by sizes. Not for two threads at once.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/steps.hpp"

namespace batchkron {

// Plans are shared pointers, as another thread may still run one that is dropped here.
template <class Plan>
class PlansBySizes {
 public:
  using Sizes = std::vector<Index>;

  void insert(const Sizes& sizes, std::shared_ptr<Plan> plan) {
    if (plans_.size() >= kMaxPlans) plans_.clear();
    plans_.insert_or_assign(sizes, std::move(plan));
  }

  // Null if there is none.
  std::shared_ptr<Plan> find(const Sizes& sizes) const {
    const auto found = plans_.find(sizes);
    return found == plans_.end() ? nullptr : found->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Sizes& sizes) const {
      std::size_t hash = sizes.size();
      for (const Index size : sizes) hash = hash * 1000003 ^ std::size_t(size);
      return hash;
    }
  };

  static constexpr std::size_t kMaxPlans = 1024;  // chosen by hand
  std::unordered_map<Sizes, std::shared_ptr<Plan>, Hash> plans_;
};

}  // namespace batchkron
