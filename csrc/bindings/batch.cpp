#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/plain_call.hpp"
#include "bindings/plan_pass.hpp"
#include "bindings/register.hpp"
#include "engine/batch/list_call.hpp"

namespace batchkron {
namespace {

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
  return {ids.shape(0), ids.data(), inputs.data(), outputs.data(), std::move(identity), {}};
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
  const Index products = Index(plan.list().inputs.size());
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
    SortedList sorted = sort_batch(shape, list);
    plan = std::make_unique<BatchPlan<T>>(std::move(shape), std::move(sorted), systems,
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

// out[..., :] = A x[..., :] by the fast path (run_plain), for one system.
template <class T>
bool apply_plan(const BatchPlan<T>& plan, py::handle x, py::handle out) {
  const BatchShape& shape = plan.shape();
  return run_plain<T>(plan, plan.list().multiply_adds, x, out,
                      {shape.num_inputs, checked_product(shape.inputs)},
                      {shape.num_outputs, checked_product(shape.outputs)});
}

// The numbers of a batch list in a plain array of int32 or int64 with `dimensions` dimensions.
struct PlainNumbers {
  ListNumbers numbers;
  Index rows, columns;

  static std::optional<PlainNumbers> of(py::handle object, int dimensions) {
    if (FastArray<Index>::is_plain(object, false)) return of<Index>(object, dimensions);
    if (FastArray<std::int32_t>::is_plain(object, false))
      return of<std::int32_t>(object, dimensions);
    return {};
  }

 private:
  template <class Number>
  static std::optional<PlainNumbers> of(py::handle object, int dimensions) {
    const FastArray<Number> array(object);
    if (array.dimensions() != dimensions) return {};
    return PlainNumbers{array.data(), array.size(0), dimensions == 1 ? 1 : array.last()};
  }
};

// One call of batched_kron.
template <class T>
struct BatchCall : ListCall<T> {
  // Nothing if an argument has to be converted or refused.
  static std::optional<BatchCall> of(const std::vector<py::object>& given, py::handle ids,
                                     py::handle x, py::handle inputs, py::handle outputs,
                                     py::handle y, py::handle weights) {
    const auto id = PlainNumbers::of(ids, 2), input = PlainNumbers::of(inputs, 1),
               output = PlainNumbers::of(outputs, 1);
    if (!id || !input || !output || input->rows != id->rows || output->rows != id->rows) return {};
    if (Index(given.size()) != id->columns || given.empty()) return {};
    if (!FastArray<T>::is_plain(x, false) || !FastArray<T>::is_plain(y, true)) return {};
    const FastArray<T> source(x), target(y);
    const int axes = source.dimensions();
    if (axes < 2 || target.dimensions() != axes) return {};
    BatchCall call;
    for (int axis = 0; axis + 2 < axes; ++axis)
      if (source.size(axis) != target.size(axis)) return {};
    call.outer = source.size(0, axes - 2);
    call.shape.num_inputs = source.size(axes - 2);
    call.shape.num_outputs = target.size(axes - 2);
    call.x = source.data();
    call.y = target.data();
    const Index written = target.size(0, axes);
    if (overlaps<T>(call.x, source.size(0, axes), call.y, written)) return {};
    if (!call.add_pools(given, written)) return {};
    if (checked_product(call.shape.inputs) != source.last() ||
        checked_product(call.shape.outputs) != target.last())
      return {};
    if (!weights.is_none()) {
      if (!FastArray<T>::is_plain(weights, false)) return {};
      const FastArray<T> values(weights);
      if (values.dimensions() != 1 || values.last() != id->rows ||
          overlaps<T>(values.data(), id->rows, call.y, written))
        return {};
      call.weights = values.data();
    }
    call.list.count = id->rows;
    call.list.ids = id->numbers;
    call.list.inputs = input->numbers;
    call.list.outputs = output->numbers;
    return call;
  }

  // The interpreter is unlocked while products are added.
  bool run() const {
    std::optional<py::gil_scoped_release> unlocked;
    return ListCall<T>::run([&](double multiply_adds) {
      if (multiply_adds >= kMinReleaseWork) unlocked.emplace();
    });
  }

 private:
  bool add_pools(const std::vector<py::object>& given, Index written) {
    for (std::size_t mode = 0; mode < given.size(); ++mode) {
      if (!FastArray<T>::is_plain(given[mode], false)) return false;
      const FastArray<T> pool(given[mode]);
      if (pool.dimensions() != 3 || pool.size(0) > ListCall<T>::kMaxMatrices ||
          overlaps<T>(pool.data(), pool.size(0, 3), this->y, written))
        return false;
      this->add_pool(pool.data(), pool.size(0), pool.size(1), pool.size(2));
    }
    return true;
  }
};

// Adds the products of a batch list to y. Returns whether it has done so: it does nothing where an
// argument has to be converted or refused.
bool add_batch(py::handle pools, py::handle ids, py::handle x, py::handle inputs,
               py::handle outputs, py::handle y, py::handle weights) {
  std::vector<py::object> given;
  if (const auto items = items_of(pools))
    for (Index k = 0; k < items->second; ++k)
      given.push_back(py::reinterpret_borrow<py::object>(items->first[k]));
  else if (const auto list = PlainNumbers::of(ids, 2))
    given.assign(std::size_t(list->columns), py::reinterpret_borrow<py::object>(pools));
  bool done = false;
  const auto add = [&](auto zero) {
    if (done) return;
    const auto call = BatchCall<decltype(zero)>::of(given, ids, x, inputs, outputs, y, weights);
    if (call) done = call->run();
  };
  add(double{});
  add(float{});
  add(Complex<double>{});
  add(Complex<float>{});
  return done;
}

template <class T>
void register_batch_plan(py::module_& module, const char* name) {
  py::class_<BatchPlan<T>>(module, name)
      .def(py::init(&make_plan<T>), py::arg("pools"), py::arg("ids"), py::arg("inputs"),
           py::arg("outputs"), py::arg("weights"), py::arg("systems"), py::arg("num_inputs"),
           py::arg("num_outputs"), py::arg("identity"), py::arg("atomic"))
      .def("set_values", &set_values<T>, py::arg("pools"), py::arg("weights"))
      .def("apply", &apply_plan<T>, py::arg("x"), py::arg("out"))
      .def("run", &run_plan<T>, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def(
          "bind",
          [](const py::object& self, const py::array& x, const py::array& y, Index outer,
             Index inner, const py::object& alpha, bool accumulate) -> std::shared_ptr<Pass> {
            const auto& plan = self.cast<const BatchPlan<T>&>();
            return std::make_shared<PlanPass<BatchPlan<T>, T>>(
                self, plan, plan.list().multiply_adds, x, y, plan.input_elements(),
                plan.output_elements(), outer, inner, alpha, accumulate);
          },
          py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"), py::arg("alpha"),
          py::arg("accumulate"))
      .def_property_readonly(
          "multiply_adds", [](const BatchPlan<T>& plan) { return plan.list().multiply_adds; });
}

}  // namespace

void register_batch(py::module_& module) {
  register_batch_plan<float>(module, "BatchPlanFloat32");
  register_batch_plan<double>(module, "BatchPlanFloat64");
  register_batch_plan<Complex<float>>(module, "BatchPlanComplex64");
  register_batch_plan<Complex<double>>(module, "BatchPlanComplex128");
  module.def("add_batch", &add_batch, py::arg("pools"), py::arg("ids"), py::arg("x"),
             py::arg("inputs"), py::arg("outputs"), py::arg("y"), py::arg("weights"));
}

}  // namespace batchkron
