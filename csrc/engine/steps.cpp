#include "engine/steps.hpp"

#include <algorithm>
#include <stdexcept>

namespace batchkron {

Index checked_product(const std::vector<Index>& sizes, Index start) {
  Index product = start;
  for (const Index size : sizes)
    if (__builtin_mul_overflow(product, size, &product))
      throw std::overflow_error("the size of a Kronecker product does not fit in 64 bits");
  return product;
}

Steps plan_steps(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                 const std::vector<bool>& active, Index inner, Ties ties) {
  std::vector<int> order;
  for (int mode = 0; mode < int(inputs.size()); ++mode)
    if (active[mode]) order.push_back(mode);
  if (ties == Ties::last_mode_first) std::reverse(order.begin(), order.end());
  const auto growth = [&](int mode) {
    return 1.0 / double(std::max<Index>(inputs[mode], 1)) -
           1.0 / double(std::max<Index>(outputs[mode], 1));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return growth(a) < growth(b); });

  Steps steps;
  std::vector<Index> sizes = inputs;
  for (const int mode : order) {
    const auto at = sizes.begin() + mode;
    const Index L = checked_product({sizes.begin(), at});
    const Index R = checked_product({at + 1, sizes.end()}, inner);
    steps.list.push_back({mode, L, inputs[mode], outputs[mode], R});
    sizes[mode] = outputs[mode];
    const Index result = checked_product(sizes, inner);
    steps.multiply_adds += double(result) * double(inputs[mode]);
    if (int(steps.list.size()) < int(order.size()))
      steps.largest_intermediate = std::max(steps.largest_intermediate, result);
  }
  return steps;
}

}  // namespace batchkron
