// Products of plans with vectors whose addresses do not change, as passes of a step.
#pragma once

#include <memory>

#include "bindings/arrays.hpp"
#include "engine/step_program.hpp"
#include "engine/steps.hpp"

namespace batchkron {

// y = alpha A x, or y += alpha A x, as the plan's `run` does it. The pass keeps the plan and the
// arrays alive.
template <class Plan, class T>
class PlanPass final : public Pass {
 public:
  // work: multiply-adds for one vector; inputs, outputs: elements of one vector of x and of y.
  PlanPass(py::object owner, const Plan& plan, double work, const py::array& x, py::array y,
           Index inputs, Index outputs, Index outer, Index inner, const py::object& alpha,
           bool accumulate)
      : owner_(std::move(owner)), x_(x), y_(std::move(y)), plan_(plan),
        work_(work * double(outer) * double(inner)),
        source_(read<T>(x_, checked_product({inputs, outer, inner}), "x")),
        target_(write<T>(y_, checked_product({outputs, outer, inner}), "y")), outer_(outer),
        inner_(inner), alpha_(scalar<T>(alpha)), accumulate_(accumulate) {}

  double work() const override { return work_; }
  void run() override { plan_.run(source_, target_, outer_, inner_, alpha_, accumulate_); }

 private:
  py::object owner_;
  py::array x_, y_;
  const Plan& plan_;
  double work_;
  const T* source_;
  T* target_;
  Index outer_, inner_;
  T alpha_;
  bool accumulate_;
};

}  // namespace batchkron
