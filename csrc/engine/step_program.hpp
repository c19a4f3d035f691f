// Steps of a time stepper as a list of passes that all steps do: products, and sums of vectors whose
// numbers are in a table with a row for each step.
#pragma once

#include <memory>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"
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

  void run() override;

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

// Compiled once, in step_program.cpp.
extern template class SumPass<float>;
extern template class SumPass<double>;

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
