#include "engine/batch/list_call.hpp"

#include <utility>

namespace batchkron {

template <class T>
bool ListCall<T>::run(const std::function<void(double)>& begin) const {
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

template struct ListCall<float>;
template struct ListCall<double>;
template struct ListCall<Complex<float>>;
template struct ListCall<Complex<double>>;

}  // namespace batchkron
