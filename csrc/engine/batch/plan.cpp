#include "engine/batch/plan.hpp"

namespace batchkron {

template <class T>
void BatchPlan<T>::set_pool(std::size_t mode, const PoolView<T>& view) {
  if (borrows_) return pools_.borrow(mode, view);
  const BatchLayout layout = is_tensor_ ? BatchLayout::tensor : BatchLayout::transposed;
  pools_.set(mode, view, batch_ ? layout : BatchLayout::none, batch_ ? batch_->lanes : 0);
}

template <class T>
void BatchPlan<T>::set_weights(const T* weights, Index sets) {
  const std::size_t count = list_.inputs.size();
  const bool same = all_same(weights, sets, count);
  const std::size_t kept = same ? 1 : count;
  weights_.resize(count == 0 ? 0 : std::size_t(sets) * kept);
  weight_step_ = same ? 0 : 1;
  weight_system_ = sets == 1 ? 0 : Index(kept);
  for (std::size_t i = 0; i < weights_.size(); ++i)
    weights_[i] = weights[i / kept * count + std::size_t(list_.order[i % kept])];
}

template <class T>
void BatchPlan<T>::run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const {
  const Index outputs = checked_product({outer, output_elements(), inner});
  if (outputs == 0) return;
  if (checked_product({outer, input_elements(), inner}) == 0) {
    if (!accumulate) std::fill_n(y, outputs, T{});
    return;
  }
  kernels();  // throws for an unknown BATCHKRON_ISA: outside of the parallel region, as it must
  const ThreadTeam team(list_.multiply_adds * double(outer) * double(inner), *gains_);
  const int threads = team.threads();
  const bool atomic = accumulation_ == Accumulation::atomic;
  const Index buffer = padded<T>(checked_product({list_.largest_intermediate, inner}));
  const Index product = atomic ? padded<T>(output_size_ * inner) : 0;
  const Index packed = borrows_ ? padded<T>(largest_packed_matrix()) : 0;
  const Scratch lanes = inner == 1 ? lane_scratch() : Scratch{};
  const Index per_thread = 2 * buffer + product + lanes.total() + packed;
  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(workspace.reserve(bytes_of<T>(per_thread, threads)));
  const Call call{x,       y,      outer, inner,      alpha,  accumulate,
                  scratch, buffer, lanes, per_thread};
  if (atomic)
    run_atomic(call, team);
  else
    run_owner(call, team);
}

template <class T>
BatchPlan<T>::BatchPlan(BatchShape shape, SortedList list, Index systems, Accumulation accumulation,
          bool borrows, ThreadGains* gains)
    : shape_(std::move(shape)),
      systems_(systems),
      input_size_(shape_.input_size()),
      output_size_(shape_.output_size()),
      accumulation_(accumulation),
      list_(std::move(list)),
      borrows_(borrows),
      pools_(shape_.inputs.size(), systems),
      batch_(kernels_for()),
      block_kernel_(batch_ && !borrows_ ? find_block_kernel() : nullptr),
      active_(find_active()),
      zeros_(batch_ ? std::size_t(std::max(input_size_, largest_matrix())) : 0),
      gains_(gains ? gains : &own_gains_) {}

template class BatchPlan<float>;
template class BatchPlan<double>;
template class BatchPlan<Complex<float>>;
template class BatchPlan<Complex<double>>;

}  // namespace batchkron
