#include "engine/step_program.hpp"

#include <algorithm>

namespace batchkron {
namespace {

// The sum of squares of x[0 ... n), in double precision and in the same order always.
template <class T>
double sum_of_squares(const T* x, Index n) {
  constexpr Index ways = 8;
  double sums[ways] = {};
  Index i = 0;
  for (; i + ways <= n; i += ways)
    for (Index k = 0; k < ways; ++k) sums[k] += double(x[i + k]) * double(x[i + k]);
  for (; i < n; ++i) sums[0] += double(x[i]) * double(x[i]);
  for (Index k = 1; k < ways; ++k) sums[0] += sums[k];
  return sums[0];
}

}  // namespace

template <class T>
void SumPass<T>::run() {
  StepTable& table = *table_;
  const double* const row = table.rows.data() + table.step * table.width + first_;
  const std::vector<T> factors(row, row + vectors_.size());
  static ThreadGains gains;
  const ThreadTeam team(work(), gains);
  team.run(Index(squares_.size()), [&](Index begin, Index end, int) {
    std::vector<T> own(y_ ? 0 : kBlock);
    std::vector<const T*> sources(vectors_.size());
    for (Index block = begin; block < end; ++block) {
      const Index from = block * kBlock, count = std::min(kBlock, size_ - from);
      for (std::size_t k = 0; k < sources.size(); ++k) sources[k] = vectors_[k] + from;
      T* const target = y_ ? y_ + from : own.data();
      kernel_({target, sources.data(), factors.data(), Index(sources.size()), 0, count});
      if (result_ >= 0) squares_[std::size_t(block)] = sum_of_squares(target, count);
    }
  });
  if (result_ >= 0) {
    double sum = 0;
    for (const double square : squares_) sum += square;
    table.results[std::size_t(table.step * table.columns + result_)] = sum;
  }
  if (ends_) ++table.step;
}

template class SumPass<float>;
template class SumPass<double>;

}  // namespace batchkron
