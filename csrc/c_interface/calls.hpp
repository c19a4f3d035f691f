// What the functions of the C interface share: checks of arguments, errors as statuses, dtypes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "engine/steps.hpp"
#include "include/batchkron/batchkron.h"
#include "simd/common/scalar.hpp"

namespace batchkron::c_interface {

[[noreturn]] inline void refuse(const std::string& text) { throw std::invalid_argument(text); }

inline void expect(bool holds, const char* text) {
  if (!holds) refuse(text);
}

// Returns the status of `call`, whose exception becomes the calling thread's last error.
bk_status guarded(const std::function<void()>& call) noexcept;

// Calls function(zero of the dtype).
template <class Function>
void with_dtype(bk_dtype dtype, Function function) {
  switch (dtype) {
    case BK_F32: return function(float{});
    case BK_F64: return function(double{});
    case BK_C64: return function(Complex<float>{});
    case BK_C128: return function(Complex<double>{});
  }
  refuse("dtype is " + std::to_string(int(dtype)) + "; expected BK_F32, BK_F64, BK_C64 or BK_C128");
}

// One of four plans, by dtype.
template <template <class> class Plan>
struct AnyPlan {
  std::variant<std::unique_ptr<Plan<float>>, std::unique_ptr<Plan<double>>,
               std::unique_ptr<Plan<Complex<float>>>, std::unique_ptr<Plan<Complex<double>>>>
      held;
};

// Writes a new plan, made by make(zero of the dtype), to `plan`; on failure null.
template <class Held, class Make>
bk_status create(Held** plan, bk_dtype dtype, Make make) noexcept {
  return guarded([&] {
    expect(plan != nullptr, "where to write the plan is null");
    *plan = nullptr;
    with_dtype(dtype, [&](auto zero) {
      auto held = std::make_unique<Held>();
      held->held = make(zero);
      *plan = held.release();
    });
  });
}

// Calls use(plan of its dtype).
template <class Held, class Use>
bk_status with_plan(Held* plan, Use use) noexcept {
  return guarded([&] {
    expect(plan != nullptr, "the plan is null");
    std::visit([&](const auto& held) { use(*held); }, plan->held);
  });
}

inline void expect_size(Index size, const char* name, Index minimum = 0) {
  if (size < minimum)
    refuse(std::string(name) + " is " + std::to_string(size) + "; expected at least " +
           std::to_string(minimum));
}

// Locks values for a run, behind whoever waits to change them.
inline std::shared_lock<std::shared_mutex> next_of(std::mutex& turn, std::shared_mutex& values) {
  const std::lock_guard<std::mutex> mine(turn);
  return std::shared_lock<std::shared_mutex>(values);
}

// The array as an array of T, after a look at its address. It may be null if it is empty.
template <class T>
const T* array_of(const void* array, Index count, const char* name) {
  if (!array && count > 0) refuse(std::string(name) + " is null");
  if (reinterpret_cast<std::uintptr_t>(array) % alignof(T))
    refuse(std::string(name) + " is not aligned to its elements");
  return static_cast<const T*>(array);
}

// Product i of an array of arrays.
template <class T>
const T* array_of(const void* const* arrays, Index i, Index count, const char* name) {
  expect(arrays != nullptr, "a list of arrays is null");
  return array_of<T>(arrays[i], count, (std::string(name) + "[" + std::to_string(i) + "]").c_str());
}

// Refuses an array that overlaps the result.
template <class T>
void expect_apart(const T* array, Index count, const T* y, Index outputs, const char* name) {
  const std::less<const T*> before;
  if (count && outputs && before(array, y + outputs) && before(y, array + count))
    refuse(std::string(name) + " and the result overlap");
}

// x, y and the numbers of y = alpha A x + beta y, after a look at all of them.
template <class T>
class Vectors {
 public:
  Vectors(const void* x, Index inputs, const void* alpha, const void* beta, void* y, Index outputs)
      : x(array_of<T>(x, inputs, "x")),
        y(const_cast<T*>(array_of<T>(y, outputs, "y"))),
        alpha(alpha ? *array_of<T>(alpha, 1, "alpha") : T(1)),
        outputs_(outputs),
        beta_(beta ? *array_of<T>(beta, 1, "beta") : T{}) {
    expect_apart(this->x, inputs, this->y, outputs, "x");
  }

  // Multiplies y by beta. Returns whether a product is added to y; else it overwrites y.
  bool scale() const {
    if (beta_ == T{}) return false;
    if (!(beta_ == T(1)))
      for (Index i = 0; i < outputs_; ++i) y[i] = beta_ * y[i];
    return true;
  }

  const T* const x;
  T* const y;
  const T alpha;

 private:
  Index outputs_;
  T beta_;
};

}  // namespace batchkron::c_interface
