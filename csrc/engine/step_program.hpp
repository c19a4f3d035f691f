// Steps of a time stepper as a list of passes that all steps do: products, and sums of vectors whose
// numbers are in a table with a row for each step.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/vector_sum.hpp"

namespace batchkron {

// A pass over vectors whose addresses do not change.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual void run() = 0;
  virtual double work() const = 0;  // in multiply-adds
};

// Numbers (steps, width) that sums take, and results (steps, columns) of what they find.
struct StepTable {
  Index width, columns, step = 0;  // the step under way
  std::vector<double> rows, results;
};

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

// y = sum over k of row[first + k] * vectors[k], with the row of the step under way (contract:
// VectorSum). If result >= 0, the sum of squares of y goes to that column of the results; it has the
// same bits for any number of threads. y may be null then.
template <class T>
class SumPass final : public Pass {
 public:
  SumPass(std::shared_ptr<StepTable> table, Index first, std::vector<const T*> vectors, T* y,
          Index size, Index result, bool ends)
      : table_(std::move(table)), first_(first), vectors_(std::move(vectors)), y_(y), size_(size),
        result_(result), ends_(ends), squares_(std::size_t((size + kBlock - 1) / kBlock)) {}

  double work() const override {
    return kWorkPerElement * double(size_) * double(vectors_.size());
  }

  void run() override {
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

 private:
  // Elements whose squares are summed apart, while they are in the nearest cache. Chosen by hand.
  static constexpr Index kBlock = 2048;

  std::shared_ptr<StepTable> table_;
  Index first_;
  std::vector<const T*> vectors_;
  T* y_;
  Index size_, result_;
  bool ends_;
  std::vector<double> squares_;
  decltype(vector_sum_kernel<T>()) kernel_ = vector_sum_kernel<T>();
};

// The passes of a step.
class StepProgram {
 public:
  explicit StepProgram(std::vector<std::shared_ptr<Pass>> passes) : passes_(std::move(passes)) {
    for (const auto& pass : passes_) work_ += pass->work();
  }

  // Does the passes for so many steps, with one team of threads for each step.
  void run(Index steps) {
    for (Index step = 0; step < steps; ++step) {
      const TeamScope scope(work_, gain_);
      for (const auto& pass : passes_) pass->run();
    }
  }

 private:
  std::vector<std::shared_ptr<Pass>> passes_;
  double work_ = 0;
  ThreadGain gain_;
};

}  // namespace batchkron
