#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/plain_call.hpp"
#include "bindings/plans_by_sizes.hpp"
#include "bindings/register.hpp"
#include "engine/kron/gradients.hpp"
#include "engine/kron/plan.hpp"

namespace batchkron {
namespace {

constexpr Index kMaxFactors = 32;  // of a call without conversions; chosen by hand

// A plan that checks its factors, which are outputs[k] x inputs[k], in each call; what is given for
// skipped ones is not looked at.
template <class T>
struct BoundKronPlan {
  std::vector<Index> inputs, outputs;
  std::vector<bool> skipped;
  KronPlan<T> plan;

  BoundKronPlan(std::vector<Index> in, std::vector<Index> out, Index outer, Index inner,
                std::vector<bool> not_multiplied)
      : inputs(std::move(in)),
        outputs(std::move(out)),
        skipped(std::move(not_multiplied)),
        plan(inputs, outputs, outer, inner, skipped) {}

  void run(const std::vector<py::object>& factors, const py::array& x, const py::object& alpha,
           py::array y, bool accumulate) const {
    if (factors.size() != inputs.size())
      fail("factors", std::to_string(inputs.size()) + " matrices");
    std::vector<FactorView<T>> views(factors.size());
    for (std::size_t k = 0; k < factors.size(); ++k)
      if (skipped.empty() || !skipped[k])
        views[k] = factor_view<T>(factors[k].cast<py::array>(), outputs[k], inputs[k]);
    const T* source = read<T>(x, plan.input_elements(), "x");
    T* target = write<T>(y, plan.output_elements(), "y");
    const T factor = scalar<T>(alpha);
    py::gil_scoped_release unlocked;
    plan.run(views.data(), source, factor, target, accumulate);
  }
};

// The plans that were made lately, found by their sizes. The caller holds the interpreter lock.
template <class T>
class KnownPlans {
 public:
  using Plan = BoundKronPlan<T>;

  // Plans that skip factors are not among those that `find` knows.
  static std::shared_ptr<Plan> make(const std::vector<Index>& inputs,
                                    const std::vector<Index>& outputs, Index outer, Index inner,
                                    const std::vector<bool>& skipped) {
    if (outputs.size() != inputs.size() || (!skipped.empty() && skipped.size() != inputs.size()))
      fail("outputs and skipped", "of the length of inputs");
    std::shared_ptr<Plan> plan = std::make_shared<Plan>(inputs, outputs, outer, inner, skipped);
    if (!skipped.empty()) return plan;
    Sizes& sizes = begin(outer, inner);
    for (std::size_t k = 0; k < inputs.size(); ++k)
      sizes.insert(sizes.end(), {outputs[k], inputs[k]});
    plans().insert(sizes, plan);
    return plan;
  }

  // Null if there is none.
  static std::shared_ptr<Plan> find(const FactorView<T>* factors, Index count, Index outer,
                                    Index inner) {
    Sizes& sizes = begin(outer, inner);
    for (Index k = 0; k < count; ++k) sizes.insert(sizes.end(), {factors[k].K, factors[k].C});
    return plans().find(sizes);
  }

 private:
  using Plans = PlansBySizes<Plan>;
  using Sizes = typename Plans::Sizes;  // outer, inner, and of each factor outputs and inputs

  static Plans& plans() {
    static Plans& all = *new Plans;  // never destroyed: plans may still run at the end
    return all;
  }
  static Sizes& begin(Index outer, Index inner) {
    static Sizes sizes;
    sizes.assign({outer, inner});
    return sizes;
  }
};

// One call of gekmm (`left`: the product stands left of x) or of gemkm by a plan that is known, with
// arrays that need no conversion. Returns None and does nothing where that is not so, also where an
// error has to be raised.
template <class T>
py::object plain_product(py::handle given, py::handle x, py::handle out, double alpha, bool left,
                         bool accumulate) {
  const auto items = items_of(given);
  if (!items || items->second > kMaxFactors || !FastArray<T>::is_plain(x, false)) return py::none();
  FactorView<T> factors[kMaxFactors];
  const Index factor_count = items->second;
  Index inputs = 1, outputs = 1;
  for (Index k = 0; k < factor_count; ++k) {
    const auto factor = FastArray<T>::factor(items->first[k], left);
    if (!factor || __builtin_mul_overflow(inputs, factor->C, &inputs) ||
        __builtin_mul_overflow(outputs, factor->K, &outputs))
      return py::none();
    factors[k] = *factor;
  }
  const FastArray<T> source(x);
  const int axes = source.dimensions(), axis = left && axes > 1 ? axes - 2 : axes - 1;
  if (source.size(axis) != inputs) return py::none();
  const Index outer = source.size(0, axis), inner = source.size(axis + 1, axes);
  const std::shared_ptr<BoundKronPlan<T>> known =
      KnownPlans<T>::find(factors, factor_count, outer, inner);
  if (!known || known->plan.output_elements() == 0) return py::none();
  const KronPlan<T>& plan = known->plan;

  py::object result;
  if (out.is_none()) {
    std::vector<py::ssize_t> shape;
    for (int i = 0; i < axes; ++i) shape.push_back(i == axis ? outputs : source.size(i));
    result = py::array_t<T>(shape);
  } else {
    if (!FastArray<T>::is_plain(out, true)) return py::none();
    const FastArray<T> target(out);
    if (target.dimensions() != axes) return py::none();
    for (int i = 0; i < axes; ++i)
      if (target.size(i) != (i == axis ? outputs : source.size(i))) return py::none();
    const Index count = plan.output_elements();
    if (overlaps<T>(target.data(), count, source.data(), plan.input_elements())) return py::none();
    for (Index k = 0; k < factor_count; ++k)
      if (overlaps<T>(target.data(), count, factors[k].data, factors[k].K * factors[k].C))
        return py::none();
    result = py::reinterpret_borrow<py::object>(out);
  }
  // With the lock, so that nobody takes a factor out of the list before it is copied.
  thread_local PackedFactors<T> packed;
  packed.fill(plan.schedule().factors, factors);
  T* target = FastArray<T>(result).data();
  std::optional<py::gil_scoped_release> unlocked;
  if (plan.multiply_adds() >= kMinReleaseWork) unlocked.emplace();
  plan.run(packed, source.data(), T(alpha), target, accumulate);
  return result;
}

py::object bound_plain_product(py::handle factors, py::handle x, py::handle out, py::handle alpha,
                               bool left, bool accumulate) {
  const auto scale = plain_number(alpha);
  if (!scale) return py::none();
  return first_dtype([&](auto zero) {
    return plain_product<decltype(zero)>(factors, x, out, *scale, left, accumulate);
  });
}

// Writes the gradients of a Kron-Matmul of real numbers. x and of_x are (outer, the P_k, what is
// left), gradient is (outer, the Q_k, likewise); of_x and results may be None, but not all results.
template <class T>
void kron_gradients(const std::vector<py::array>& factors, const py::array& x,
                    const py::array& gradient, Index outer, const py::object& of_x,
                    const std::vector<py::object>& results) {
  if (factors.empty() || results.size() != factors.size()) fail("results", "one for each factor");
  std::vector<FactorView<T>> views;
  std::vector<T*> targets;
  Index inputs = 1, outputs = 1;
  bool any = false;
  for (std::size_t k = 0; k < factors.size(); ++k) {
    if (factors[k].ndim() != 2 || factors[k].size() == 0) fail("a factor", "a matrix");
    const Index P = factors[k].shape(0), Q = factors[k].shape(1);
    views.push_back(factor_view<T>(factors[k], P, Q));
    inputs = checked_product({inputs, P});
    outputs = checked_product({outputs, Q});
    if (results[k].is_none()) {
      targets.push_back(nullptr);
      continue;
    }
    py::array result = py::reinterpret_borrow<py::array>(results[k]);
    targets.push_back(write<T>(result, P * Q, "a result"));
    any = true;
  }
  if (!any || outer < 1 || x.size() == 0) fail("x and results", "not empty");
  const Index rows = checked_product({outer, inputs}), inner = x.size() / rows;
  const T* source = read<T>(x, rows * inner, "x");
  const T* given = read<T>(gradient, checked_product({outer, outputs, inner}), "gradient");
  T* target = nullptr;
  if (!of_x.is_none()) {
    py::array array = py::reinterpret_borrow<py::array>(of_x);
    target = write<T>(array, rows * inner, "of_x");
  }
  py::gil_scoped_release unlocked;
  KronGradients<T>(views, outer, inner).run(source, given, target, targets.data());
}

void bound_gradients(const std::vector<py::array>& factors, const py::array& x,
                     const py::array& gradient, Index outer, const py::object& of_x,
                     const std::vector<py::object>& results) {
  if (py::isinstance<Array<float>>(x))
    return kron_gradients<float>(factors, x, gradient, outer, of_x, results);
  kron_gradients<double>(factors, x, gradient, outer, of_x, results);
}

template <class T>
void register_kron_plan(py::module_& module, const char* name) {
  using Plan = BoundKronPlan<T>;
  py::class_<Plan, std::shared_ptr<Plan>>(module, name)
      .def(py::init(&KnownPlans<T>::make), py::arg("inputs"), py::arg("outputs"),
           py::arg("outer"), py::arg("inner"), py::arg("skipped") = std::vector<bool>())
      .def("run", &Plan::run, py::arg("factors"), py::arg("x"), py::arg("alpha"), py::arg("y"),
           py::arg("accumulate"))
      .def_property_readonly("order", [](const Plan& p) { return p.plan.schedule().order; })
      .def_property_readonly("multiply_adds",
                             [](const Plan& p) { return p.plan.schedule().multiply_adds; });
}

}  // namespace

void register_kron(py::module_& module) {
  register_kron_plan<float>(module, "KronPlanFloat32");
  register_kron_plan<double>(module, "KronPlanFloat64");
  register_kron_plan<Complex<float>>(module, "KronPlanComplex64");
  register_kron_plan<Complex<double>>(module, "KronPlanComplex128");
  module.def("plain_product", &bound_plain_product, py::arg("factors"), py::arg("x"),
             py::arg("out"), py::arg("alpha"), py::arg("left"), py::arg("accumulate"));
  module.def("kron_gradients", &bound_gradients, py::arg("factors"), py::arg("x"),
             py::arg("gradient"), py::arg("outer"), py::arg("of_x"), py::arg("results"));
}

}  // namespace batchkron
