// Kronecker products and sums with their factors packed once, and the plans they have needed so far.
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/plain_call.hpp"
#include "bindings/register.hpp"
#include "engine/kron_plan.hpp"

namespace batchkron {
namespace {

constexpr std::size_t kMostPlans = 64;
constexpr double kHoldsLock = 1e5;  // multiply-adds that take no longer than a switch of threads

// Nothing an array can have, -1, beyond 64 bits.
Index size_of(const std::vector<Index>& sizes) {
  Index product = 1;
  for (const Index size : sizes)
    if (__builtin_mul_overflow(product, size, &product)) return -1;
  return product;
}

void expect_counts(Index outer, Index inner) {
  if (outer < 0 || inner < 0) fail("numbers of vectors", "not negative");
}

// By numbers of vectors: before and behind. Called with the interpreter's lock; another thread may
// still run a plan that is dropped here.
template <class Plan>
class KeptPlans {
 public:
  template <class Make>
  std::shared_ptr<const Plan> get(Index outer, Index inner, Make make) {
    for (const Entry& entry : entries_)
      if (entry.outer == outer && entry.inner == inner) return entry.plan;
    if (entries_.size() >= kMostPlans) entries_.clear();
    entries_.push_back({outer, inner, std::make_shared<const Plan>(make())});
    return entries_.back().plan;
  }

 private:
  struct Entry {
    Index outer, inner;
    std::shared_ptr<const Plan> plan;
  };

  std::vector<Entry> entries_;
};

template <class T>
class Product {
 public:
  explicit Product(const std::vector<py::array>& factors) {
    if (factors.empty()) fail("factors", "at least one");
    std::vector<FactorView<T>> views;
    for (const py::array& factor : factors) {
      if (factor.ndim() != 2) fail("a factor", "two-dimensional");
      views.push_back(factor_view<T>(factor, factor.shape(0), factor.shape(1)));
      outputs_.push_back(factor.shape(0));
      inputs_.push_back(factor.shape(1));
    }
    columns_ = size_of(inputs_);
    rows_ = size_of(outputs_);
    packed_.fill(merge_factors(inputs_, outputs_), views.data());
  }

  // x is (outer, N, inner), y is (outer, M, inner).
  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) {
    expect_counts(outer, inner);
    const auto plan = plan_for(outer, inner);
    const T* source = read<T>(x, plan->input_elements(), "x");
    T* target = write<T>(y, plan->output_elements(), "y");
    apply_plan(*plan, source, scalar<T>(alpha), target, accumulate);
  }

  // out[..., :] = A x[..., :] where both are plain arrays that fit and do not overlap; false, and
  // nothing done, where anything has to be converted or refused.
  bool apply(py::handle x, py::handle out) {
    const auto call = PlainCall<T>::of(x, out, columns_, rows_);
    if (!call) return false;
    apply_plan(*plan_for(call->outer, 1), call->x, T(1), call->out, false);
    return true;
  }

 private:
  using Plan = KronPlan<T>;

  std::shared_ptr<const Plan> plan_for(Index outer, Index inner) {
    return plans_.get(outer, inner, [&] { return Plan(inputs_, outputs_, outer, inner); });
  }

  void apply_plan(const Plan& plan, const T* x, T alpha, T* y, bool accumulate) const {
    if (plan.multiply_adds() < kHoldsLock) return plan.run(packed_, x, alpha, y, accumulate);
    py::gil_scoped_release unlocked;
    plan.run(packed_, x, alpha, y, accumulate);
  }

  std::vector<Index> inputs_, outputs_;
  Index columns_, rows_;
  PackedFactors<T> packed_;
  KeptPlans<Plan> plans_;
};

// A_1 on the first mode, plus A_2 on the second, ...
template <class T>
class Sum {
 public:
  explicit Sum(const std::vector<py::array>& factors) : packed_(factors.size()) {
    if (factors.empty()) fail("factors", "at least one");
    for (std::size_t k = 0; k < factors.size(); ++k) {
      if (factors[k].ndim() != 2) fail("a factor", "two-dimensional");
      const Index n = factors[k].shape(0);
      const FactorView<T> view = factor_view<T>(factors[k], n, n);
      packed_[k].fill(merge_factors({n}, {n}), &view);
      sizes_.push_back(n);
    }
    size_ = size_of(sizes_);
  }

  // x and y are (outer, N, inner).
  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) {
    expect_counts(outer, inner);
    const auto plans = plans_for(outer, inner);
    const T* source = read<T>(x, plans->front().input_elements(), "x");
    T* target = write<T>(y, plans->front().input_elements(), "y");
    apply_plans(*plans, source, scalar<T>(alpha), target, accumulate);
  }

  // As a product's.
  bool apply(py::handle x, py::handle out) {
    const auto call = PlainCall<T>::of(x, out, size_, size_);
    if (!call) return false;
    apply_plans(*plans_for(call->outer, 1), call->x, T(1), call->out, false);
    return true;
  }

 private:
  using Plans = std::vector<KronPlan<T>>;  // of each mode

  std::shared_ptr<const Plans> plans_for(Index outer, Index inner) {
    return plans_.get(outer, inner, [&] {
      Plans plans;
      Index before = outer;
      Index after = checked_product(sizes_, inner);
      for (const Index n : sizes_) {
        after = n ? after / n : after;
        plans.emplace_back(std::vector{n}, std::vector{n}, before, after);
        before *= n;
      }
      return plans;
    });
  }

  void apply_plans(const Plans& plans, const T* x, T alpha, T* y, bool accumulate) const {
    double multiply_adds = 0;
    for (const KronPlan<T>& plan : plans) multiply_adds += plan.multiply_adds();
    std::optional<py::gil_scoped_release> unlocked;
    if (multiply_adds >= kHoldsLock) unlocked.emplace();
    for (std::size_t k = 0; k < plans.size(); ++k)
      plans[k].run(packed_[k], x, alpha, y, accumulate || k > 0);
  }

  std::vector<Index> sizes_;
  Index size_;
  std::vector<PackedFactors<T>> packed_;
  KeptPlans<Plans> plans_;
};

template <class Bound>
void register_type(py::module_& module, const char* name) {
  py::class_<Bound>(module, name)
      .def(py::init<const std::vector<py::array>&>(), py::arg("factors"))
      .def("run", &Bound::run, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def("apply", &Bound::apply, py::arg("x"), py::arg("out"));
}

}  // namespace

void register_product(py::module_& module) {
  register_type<Product<float>>(module, "KronProductFloat32");
  register_type<Product<double>>(module, "KronProductFloat64");
  register_type<Product<Complex<float>>>(module, "KronProductComplex64");
  register_type<Product<Complex<double>>>(module, "KronProductComplex128");
  register_type<Sum<float>>(module, "KronSumFloat32");
  register_type<Sum<double>>(module, "KronSumFloat64");
  register_type<Sum<Complex<float>>>(module, "KronSumComplex64");
  register_type<Sum<Complex<double>>>(module, "KronSumComplex128");
}

}  // namespace batchkron
