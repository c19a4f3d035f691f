#include <pybind11/stl.h>

#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/batch_plan.hpp"

namespace batchkron {
namespace {

using Indices = py::array_t<Index, py::array::c_style>;

template <class T>
PoolView<T> pool_view(const py::array& pool) {
  if (pool.ndim() != 3) fail("a pool", "of shape (count, rows, columns)");
  return {read<T>(pool, pool.size(), "a pool"), pool.shape(0), pool.shape(1), pool.shape(2)};
}

BatchList batch_list(const Indices& ids, const Indices& inputs, const Indices& outputs,
                     std::vector<std::vector<bool>> identity) {
  if (ids.ndim() != 2 || inputs.size() != ids.shape(0) || outputs.size() != ids.shape(0))
    fail("the batch list", "of one length");
  return {ids.shape(0), ids.data(), inputs.data(), outputs.data(), std::move(identity)};
}

template <class T>
std::unique_ptr<BatchPlan<T>> make_plan(const std::vector<py::array>& pools, const Indices& ids,
                                        const Indices& inputs, const Indices& outputs,
                                        const py::array& weights, Index num_inputs,
                                        Index num_outputs,
                                        std::vector<std::vector<bool>> identity, bool atomic) {
  std::vector<PoolView<T>> views;
  BatchShape shape{{}, {}, num_inputs, num_outputs};
  for (const py::array& pool : pools) {
    views.push_back(pool_view<T>(pool));
    shape.inputs.push_back(views.back().C);
    shape.outputs.push_back(views.back().K);
  }
  const BatchList list = batch_list(ids, inputs, outputs, std::move(identity));
  const T* weight_data = read<T>(weights, list.count, "weights");
  py::gil_scoped_release unlocked;
  return std::make_unique<BatchPlan<T>>(std::move(shape), list, views, weight_data,
                                        atomic ? Accumulation::atomic : Accumulation::owner);
}

template <class T>
void run_plan(const BatchPlan<T>& plan, const py::array& x, py::array y, Index outer, Index inner,
              bool accumulate) {
  const T* source = read<T>(x, outer * plan.input_elements() * inner, "x");
  T* target = write<T>(y, outer * plan.output_elements() * inner, "y");
  py::gil_scoped_release unlocked;
  plan.run(source, target, outer, inner, accumulate);
}

template <class T>
void register_plan(py::module_& module, const char* name) {
  py::class_<BatchPlan<T>>(module, name)
      .def(py::init(&make_plan<T>), py::arg("pools"), py::arg("ids"), py::arg("inputs"),
           py::arg("outputs"), py::arg("weights"), py::arg("num_inputs"), py::arg("num_outputs"),
           py::arg("identity"), py::arg("atomic"))
      .def("run", &run_plan<T>, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("accumulate"))
      .def_property_readonly(
          "multiply_adds", [](const BatchPlan<T>& plan) { return plan.list().multiply_adds; });
}

}  // namespace

void register_batch(py::module_& module) {
  register_plan<float>(module, "BatchPlanFloat32");
  register_plan<double>(module, "BatchPlanFloat64");
  register_plan<Complex<float>>(module, "BatchPlanComplex64");
  register_plan<Complex<double>>(module, "BatchPlanComplex128");
}

}  // namespace batchkron
