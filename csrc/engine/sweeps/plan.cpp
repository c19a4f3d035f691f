#include "engine/sweeps/plan.hpp"

namespace batchkron {

template <class T>
void SweepMatrices<T>::set(const std::vector<const T*>& matrices) {
  auto fresh = std::make_shared<Values>();
  for (const SweepStep& step : shape_.steps)
    for (const SweepPart& part : step.parts)
      fresh->push_back(laid_out(part, matrices[fresh->size()]));
  const std::lock_guard<std::mutex> lock(changes_);
  values_ = std::move(fresh);
}

template <class T>
void SweepMatrices<T>::link(const std::vector<Linked>& parts) {
  pools_.clear();
  linked_.clear();
  std::vector<std::map<std::vector<std::int32_t>, std::int32_t>> known;  // [pool]: its matrices
  for (const Linked& given : parts) {
    const SweepPart& part = part_of(given.part);
    const Index size = group_of(groups_, part.mode).n * group_of(groups_, part.mode).C;
    std::size_t number = 0;
    while (number < pools_.size() &&
           !(pools_[number].mode == part.mode && pools_[number].scale == given.scale))
      ++number;
    if (number == pools_.size()) {
      pools_.push_back(pool_of(part.mode, given.scale));
      known.emplace_back();
    }
    LinkedPool& pool = pools_[number];
    auto& ranks = known[number];
    std::vector<std::int32_t> ids(std::size_t(part.num_matrices));
    for (Index i = 0; i < part.num_matrices; ++i) {
      const std::vector<std::int32_t> own(given.places + i * size, given.places + (i + 1) * size);
      const auto [found, is_new] = ranks.try_emplace(own, std::int32_t(ranks.size()));
      ids[std::size_t(i)] = found->second;
      if (is_new)
        for (const std::int32_t entry : pool.entries) pool.places.push_back(own[entry]);
    }
    LinkedPart linked{given.part, number, part.edges.ids()};
    for (std::int32_t& id : linked.ids) id = ids[std::size_t(id)];
    linked_.push_back(std::move(linked));
  }
}

template <class T>
void SweepMatrices<T>::gather(const T* values) {
  const std::lock_guard<std::mutex> lock(changes_);
  if (values_.use_count() > 1) values_ = std::make_shared<Values>(*values_);
  for (LinkedPool& pool : pools_) {
    long own = 1;
    for (const LinkedPart& part : linked_) own += (*values_)[part.number].pool == pool.made;
    if (!pool.made || pool.made.use_count() > own) pool.made = std::make_shared<Pool>();
    fill(pool, values);
  }
  for (const LinkedPart& part : linked_) {
    Matrices& matrices = (*values_)[part.number];
    if (matrices.pool == pools_[part.pool].made) continue;
    matrices = {pools_[part.pool].made, part.ids};
  }
}

template class SweepMatrices<float>;
template class SweepMatrices<double>;
template class SweepMatrices<Complex<float>>;
template class SweepMatrices<Complex<double>>;

template <class T>
SweepPlan<T>::SweepPlan(SweepShape shape) : shape_(std::move(shape)) {
  block_ = checked_product(shape_.sizes);
  given_ = checked_product(shape_.given);
  groups_ = mode_groups<T>(shape_.sizes, shape_.given, 1);
  for (std::size_t v = 2; v < shape_.vectors.size(); ++v)
    scratch_ = std::max(scratch_, shape_.vectors[v].start + shape_.vectors[v].count);
  for (SweepStep& step : shape_.steps) {
    for (const SweepPart& part : step.parts)
      multiply_adds_ += double(part.edges.count()) * double(block_) *
                        double(shape_.given[std::size_t(part.mode)]);
    orders_.push_back(order_of(step));
    max_parts_ = std::max(max_parts_, step.parts.size());
    cold_.emplace_back(shape_, step, block_ * Index(sizeof(T)));
    work_.emplace_back(step, shape_.vectors[step.target].count);
  }
  elements(0);
  elements(1);
}

template <class T>
Index SweepPlan<T>::num_listed() const {
  Index count = 0;
  for (const SweepStep& step : shape_.steps)
    for (const SweepPart& part : step.parts) count += Index(part.edges.ids().size());
  return count;
}

template <class T>
void SweepPlan<T>::run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const {
  const Index size = elements(1) * inner, given = elements(0) * inner;
  if (size == 0 || outer == 0) return;
  if (shape_.steps.empty()) {
    if (!accumulate) std::fill_n(y, outer * size, T{});
    return;
  }
  // A multiply-add of a sweep takes as long as so many of a dense product, for which ThreadTeam
  // is made. Chosen by hand.
  constexpr double kWorkPerElement = 4;
  const ThreadTeam team(kWorkPerElement * multiply_adds_ * double(inner), gains_);
  const int threads = team.threads();
  std::vector<Group> several;
  if (inner > 1) several = mode_groups<T>(shape_.sizes, shape_.given, inner);
  const auto held = matrices_.hold(inner);
  Run run{*held.values, inner > 1 ? several : groups_, inner, block_ * inner,
          given_ * inner, alpha, accumulate, threads, nullptr, nullptr};
  const Index scratch = padded<T>(checked_product({scratch_, block_, inner}));
  const Index sums = padded<T>(nodes_at_once(run) * run.block);
  thread_local Workspace workspace;
  run.scratch = static_cast<T*>(
      workspace.reserve(bytes_of<T>(scratch, 1) + bytes_of<T>(sums, threads)));
  run.sums = run.scratch + scratch;
  const auto shares = shares_of(threads);
  std::vector<SweepEdges<T>> edges(max_parts_);
  std::vector<Pass> passes(max_parts_);
  PassList list{edges.data(), passes.data()};
  for (Index i = 0; i < outer; ++i) {
    std::size_t first = 0;  // number of the step's first part among all parts
    for (std::size_t s = 0; s < shape_.steps.size(); ++s) {
      find_passes(run, s, first, x + i * given, y + i * size, list);
      team.run(shares->begins[s], nodes_in_range(run, s),
               [&](Index begin, Index end, int thread) {
                 add_nodes(run, s, begin, end, x + i * given, y + i * size,
                           run.sums + sums * thread, list);
               });
      first += shape_.steps[s].parts.size();
    }
  }
}

template class SweepPlan<float>;
template class SweepPlan<double>;
template class SweepPlan<Complex<float>>;
template class SweepPlan<Complex<double>>;

}  // namespace batchkron
