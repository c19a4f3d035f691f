#include "engine/kron/plan.hpp"

namespace batchkron {

template <class T>
KronPlan<T>::KronPlan(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                      Index outer, Index inner, const std::vector<bool>& skipped)
    : kernels_(mode_kernels<T>()),
      outer_(outer),
      input_size_(checked_product(inputs, inner)),
      output_size_(checked_product(outputs, inner)),
      schedule_(schedule_product(inputs, outputs, outer, inner, KernelSizes::of(kernels_),
                                 skipped)) {
  checked_product({outer, std::max(input_size_, output_size_)});
  for (const Group& group : schedule_.groups)
    tile_ = std::max(tile_, padded<T>(group.tile_elements(kernels_.lanes)));
  if (schedule_.groups.empty()) return;
  const Group& last = schedule_.groups.back();
  streams_strips_ = last.layout == Group::Layout::strips && is_large();
  if (streams_strips_) tile_ = std::max(tile_, padded<T>(last.largest * last.strip));
}

template <class T>
void KronPlan<T>::run(const FactorView<T>* factors, const T* x, T alpha, T* y,
                      bool accumulate) const {
  thread_local PackedFactors<T> packed;
  packed.fill(schedule_.factors, factors);
  run(packed, x, alpha, y, accumulate);
}

template <class T>
void KronPlan<T>::run(const PackedFactors<T>& factors, const T* x, T alpha, T* y,
                      bool accumulate) const {
  if (output_elements() == 0) return;
  if (input_elements() == 0) {
    if (!accumulate) std::fill_n(y, output_elements(), T{});
    return;
  }
  const ThreadTeam team(multiply_adds(), gain_);
  const int threads = team.threads();
  const Index rows = rows_in_cache(threads);
  const bool shared = threads > 1 && !balanced(rows, threads);
  const bool streams = !accumulate && !shared && is_large() &&
                       rows * output_size_ * Index(sizeof(T)) <= kStreamedBytes;
  const Index between = padded<T>(rows * schedule_.largest_between);
  const Index result = streams ? padded<T>(rows * output_size_) : 0;
  const Index per_thread = 2 * tile_ + (shared ? 0 : 2 * between + result);

  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(workspace.reserve(bytes_of<T>(per_thread, threads) +
                                                 bytes_of<T>(2 * between, shared ? 1 : 0)));
  const Call call{factors.pointers(), x,       y,      alpha,
                  accumulate,         rows,    scratch, per_thread,
                  between,            streams, streams_strips_ && !accumulate && !streams};
  if (shared)
    run_shared(call, team);
  else
    run_chunks(call, team);
}

template class KronPlan<float>;
template class KronPlan<double>;
template class KronPlan<Complex<float>>;
template class KronPlan<Complex<double>>;

}  // namespace batchkron
