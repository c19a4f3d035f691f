#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/kron/plan.hpp"

namespace batchkron {
namespace {

// A plan that checks its factors, which are outputs[k] x inputs[k], in each call.
template <class T>
struct BoundKronPlan {
  std::vector<Index> inputs, outputs;
  KronPlan<T> plan;

  BoundKronPlan(std::vector<Index> in, std::vector<Index> out, Index outer, Index inner)
      : inputs(std::move(in)), outputs(std::move(out)), plan(inputs, outputs, outer, inner) {}

  void run(const std::vector<py::array>& factors, const py::array& x, const py::object& alpha,
           py::array y, bool accumulate) const {
    if (factors.size() != inputs.size())
      fail("factors", std::to_string(inputs.size()) + " matrices");
    std::vector<FactorView<T>> views;
    views.reserve(factors.size());
    for (std::size_t k = 0; k < factors.size(); ++k)
      views.push_back(factor_view<T>(factors[k], outputs[k], inputs[k]));
    const T* source = read<T>(x, plan.input_elements(), "x");
    T* target = write<T>(y, plan.output_elements(), "y");
    const T factor = scalar<T>(alpha);
    py::gil_scoped_release unlocked;
    plan.run(views.data(), source, factor, target, accumulate);
  }
};

template <class T>
void register_plan(py::module_& module, const char* name) {
  using Plan = BoundKronPlan<T>;
  py::class_<Plan>(module, name)
      .def(py::init<std::vector<Index>, std::vector<Index>, Index, Index>(), py::arg("inputs"),
           py::arg("outputs"), py::arg("outer"), py::arg("inner"))
      .def("run", &Plan::run, py::arg("factors"), py::arg("x"), py::arg("alpha"), py::arg("y"),
           py::arg("accumulate"))
      .def_property_readonly("order", [](const Plan& p) { return p.plan.schedule().order; })
      .def_property_readonly("multiply_adds",
                             [](const Plan& p) { return p.plan.schedule().multiply_adds; });
}

}  // namespace

void register_kron(py::module_& module) {
  register_plan<float>(module, "KronPlanFloat32");
  register_plan<double>(module, "KronPlanFloat64");
  register_plan<Complex<float>>(module, "KronPlanComplex64");
  register_plan<Complex<double>>(module, "KronPlanComplex128");
}

}  // namespace batchkron
