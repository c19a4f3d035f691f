#include <pybind11/complex.h>

#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/segmented/multiply.hpp"

namespace batchkron {
namespace {

// A plan together with the number of its matrices, which set_values must not change.
template <class T>
struct BoundSegmented {
  SegmentedModeMultiply<T> plan;
  Index count;

  BoundSegmented(const py::array& matrices, Index L, Index R, Index num_inputs,
                 const Indices& starts, const Indices& ids, const Indices& children)
      : plan(SegmentShape{L, columns(matrices), matrices.shape(1), R, num_inputs,
                          starts.size() - 1, copy_of(starts), copy_of(ids), copy_of(children)}),
        count(matrices.shape(0)) {
    if (ids.size() != children.size()) fail("the edges", "of one length");
    set_values(matrices);
  }

  static Index columns(const py::array& matrices) {
    if (matrices.ndim() != 3) fail("matrices", "of shape (count, rows, columns)");
    return matrices.shape(2);
  }

  void set_values(const py::array& matrices) {
    const SegmentShape& shape = plan.shape();
    plan.set_values(read<T>(matrices, count * shape.K * shape.C, "matrices"), count);
  }

  void run(const py::array& x, py::array y, const py::object& alpha, bool accumulate) const {
    const T* source = read<T>(x, plan.input_elements(), "x");
    T* target = write<T>(y, plan.output_elements(), "y");
    const T factor = scalar<T>(alpha);
    py::gil_scoped_release unlocked;
    plan.run(source, target, factor, accumulate);
  }
};

template <class T>
void register_segmented_plan(py::module_& module, const char* name) {
  using Plan = BoundSegmented<T>;
  py::class_<Plan>(module, name)
      .def(py::init<const py::array&, Index, Index, Index, const Indices&, const Indices&,
                    const Indices&>(),
           py::arg("matrices"), py::arg("before"), py::arg("behind"), py::arg("num_inputs"),
           py::arg("starts"), py::arg("ids"), py::arg("children"))
      .def("set_values", &Plan::set_values, py::arg("matrices"))
      .def("run", &Plan::run, py::arg("x"), py::arg("y"), py::arg("alpha"), py::arg("accumulate"))
      .def_property_readonly("multiply_adds",
                             [](const Plan& bound) { return bound.plan.multiply_adds(); });
}

}  // namespace

void register_segmented(py::module_& module) {
  register_segmented_plan<float>(module, "SegmentedPlanFloat32");
  register_segmented_plan<double>(module, "SegmentedPlanFloat64");
  register_segmented_plan<Complex<float>>(module, "SegmentedPlanComplex64");
  register_segmented_plan<Complex<double>>(module, "SegmentedPlanComplex128");
}

}  // namespace batchkron
