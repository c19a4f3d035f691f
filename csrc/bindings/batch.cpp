#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/batch/plan.hpp"

namespace batchkron {
namespace {

using Indices = py::array_t<Index, py::array::c_style>;

// A pool is (systems or 1, number of matrices, rows, columns); the first is 1 if all systems share
// the matrices.
template <class T>
PoolView<T> pool_view(const py::array& pool, Index systems) {
  if (pool.ndim() != 4) fail("a pool", "of shape (systems, count, rows, columns)");
  if (pool.shape(0) != 1 && pool.shape(0) != systems) fail("a pool", "of one entry per system");
  return {read<T>(pool, pool.size(), "a pool"), pool.shape(0), pool.shape(1), pool.shape(2),
          pool.shape(3)};
}

BatchList batch_list(const Indices& ids, const Indices& inputs, const Indices& outputs,
                     std::vector<std::vector<bool>> identity) {
  if (ids.ndim() != 2 || inputs.size() != ids.shape(0) || outputs.size() != ids.shape(0))
    fail("the batch list", "of one length");
  return {ids.shape(0), ids.data(), inputs.data(), outputs.data(), std::move(identity)};
}

template <class T>
void set_values(BatchPlan<T>& plan, const std::vector<py::array>& pools, const py::array& weights) {
  const BatchShape& shape = plan.shape();
  if (pools.size() != shape.inputs.size()) fail("pools", "one per mode");
  for (std::size_t mode = 0; mode < pools.size(); ++mode) {
    const PoolView<T> view = pool_view<T>(pools[mode], plan.systems());
    if (view.K != shape.outputs[mode] || view.C != shape.inputs[mode])
      fail("a pool", "of the plan's matrix sizes");
    plan.set_pool(mode, view);
  }
  const Index products = Index(plan.list().order.size());
  if (weights.ndim() != 2 || (weights.shape(0) != 1 && weights.shape(0) != plan.systems()))
    fail("weights", "of one row, or one per system");
  plan.set_weights(read<T>(weights, weights.shape(0) * products, "weights"), weights.shape(0));
}

template <class T>
std::unique_ptr<BatchPlan<T>> make_plan(const std::vector<py::array>& pools, const Indices& ids,
                                        const Indices& inputs, const Indices& outputs,
                                        const py::array& weights, Index systems, Index num_inputs,
                                        Index num_outputs,
                                        std::vector<std::vector<bool>> identity, bool atomic) {
  BatchShape shape{{}, {}, num_inputs, num_outputs};
  for (const py::array& pool : pools) {
    const PoolView<T> view = pool_view<T>(pool, systems);
    shape.inputs.push_back(view.C);
    shape.outputs.push_back(view.K);
  }
  const BatchList list = batch_list(ids, inputs, outputs, std::move(identity));
  std::unique_ptr<BatchPlan<T>> plan;
  {
    py::gil_scoped_release unlocked;
    plan = std::make_unique<BatchPlan<T>>(std::move(shape), list, systems,
                                          atomic ? Accumulation::atomic : Accumulation::owner);
  }
  set_values(*plan, pools, weights);
  return plan;
}

template <class T>
void run_plan(const BatchPlan<T>& plan, const py::array& x, py::array y, Index outer, Index inner,
              const py::object& alpha, bool accumulate) {
  const T* source = read<T>(x, outer * plan.input_elements() * inner, "x");
  T* target = write<T>(y, outer * plan.output_elements() * inner, "y");
  const T factor = scalar<T>(alpha);
  py::gil_scoped_release unlocked;
  plan.run(source, target, outer, inner, factor, accumulate);
}

template <class T>
void register_plan(py::module_& module, const char* name) {
  py::class_<BatchPlan<T>>(module, name)
      .def(py::init(&make_plan<T>), py::arg("pools"), py::arg("ids"), py::arg("inputs"),
           py::arg("outputs"), py::arg("weights"), py::arg("systems"), py::arg("num_inputs"),
           py::arg("num_outputs"), py::arg("identity"), py::arg("atomic"))
      .def("set_values", &set_values<T>, py::arg("pools"), py::arg("weights"))
      .def("run", &run_plan<T>, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
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
