#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>

#include "bindings/plain_call.hpp"
#include "bindings/plan_pass.hpp"
#include "bindings/register.hpp"
#include "engine/sweeps/plan.hpp"

namespace batchkron {
namespace {

using ShortIndices = py::array_t<std::int32_t, py::array::c_style>;

constexpr Index kMaxBlocks = Index(1) << 31;  // of a vector: indices of blocks have 32 bits

// A part of a step as Python gives it: number of the source vector, mode, number of matrices, and
// of the edges starts, ids and children (EdgeLists).
using GivenPart = std::tuple<Index, Index, Index, ShortIndices, ShortIndices, ShortIndices>;
// A step: number of the target vector, whether it keeps the target's values, whether x is added,
// parts (SweepStep).
using GivenStep = std::tuple<Index, bool, bool, std::vector<GivenPart>>;

void expect_below(Index value, Index stop, const char* name) {
  if (value < 0 || value >= stop) fail(name, "in range");
}

SweepPart checked_part(const GivenPart& given, const SweepShape& shape, Index nodes) {
  const auto& [source, mode, num_matrices, starts, ids, children] = given;
  expect_below(source, Index(shape.vectors.size()), "a source");
  expect_below(mode, Index(shape.sizes.size()), "a mode");
  const Index count = ids.size(), inputs = shape.vectors[source].count;
  if (starts.size() != nodes + 1 || children.size() != count) fail("the edges", "of one length");
  const std::int32_t* start = starts.data();
  if (start[0] != 0 || start[nodes] != count || !std::is_sorted(start, start + nodes + 1))
    fail("starts", "ascending, of all edges");
  for (Index e = 0; e < count; ++e) {
    expect_below(ids.data()[e], num_matrices, "an id");
    expect_below(children.data()[e], inputs, "a child");
  }
  return {source, mode, num_matrices, EdgeLists(nodes, start, ids.data(), children.data())};
}

// Blocks of x may have another size along one mode, along which all parts read x then.
void check_given(const SweepShape& shape) {
  for (std::size_t mode = 0; mode < shape.sizes.size(); ++mode) {
    if (shape.given[mode] == shape.sizes[mode]) continue;
    for (const SweepStep& step : shape.steps)
      for (const SweepPart& part : step.parts)
        if (part.mode != Index(mode) || part.source != 0)
          fail("a part", "along the mode in which blocks of x have another size");
  }
}

SweepShape checked_shape(const std::vector<Index>& sizes, const std::vector<Index>& given,
                         const std::vector<std::pair<Index, Index>>& vectors,
                         const std::vector<GivenStep>& steps) {
  SweepShape shape;
  shape.sizes = sizes;
  shape.given = given;
  for (const auto& own : {sizes, given})
    for (const Index size : own)
      if (size < 1) fail("sizes", "positive");
  if (given.size() != sizes.size()) fail("the sizes given", "one for each mode");
  for (const auto& [start, count] : vectors) {
    if (start < 0 || start > kMaxBlocks || count < 0 || count > kMaxBlocks)
      fail("a vector", "of a place and size from 0 to 2^31");
    shape.vectors.push_back({start, count});
  }
  if (vectors.size() < 2) fail("vectors", "at least two");
  for (const auto& [target, adds, adds_x, parts] : steps) {
    expect_below(target - 1, Index(vectors.size()) - 1, "a target");
    if (parts.empty() && !adds_x) fail("the parts of a step", "at least one");
    if (adds_x && (shape.vectors[target].count != shape.vectors[0].count || given != sizes))
      fail("x", "of the shape of the vector that it is added to");
    SweepStep step{target, adds, adds_x, {}};
    for (const GivenPart& part : parts) {
      if (std::get<0>(part) == target) fail("a source", "another vector than the target");
      step.parts.push_back(checked_part(part, shape, shape.vectors[target].count));
    }
    shape.steps.push_back(std::move(step));
  }
  check_given(shape);
  return shape;
}

// A part whose matrices are linked: its number, places and factor (BoundSweeps::link).
using Places = py::array_t<std::int64_t, py::array::c_style>;
using LinkedPart = std::tuple<Index, Places, py::object>;

template <class T>
struct BoundSweeps {
  SweepPlan<T> plan;
  Array<T> values;  // those that `gather` copies

  BoundSweeps(const std::vector<Index>& sizes, const std::vector<Index>& given,
              const std::vector<std::pair<Index, Index>>& vectors,
              const std::vector<GivenStep>& steps, const std::vector<py::array>& matrices)
      : plan(checked_shape(sizes, given, vectors, steps)) {
    set_values(matrices);
  }

  void set_values(const std::vector<py::array>& matrices) {
    std::vector<const T*> values;
    std::size_t next = 0;
    for (const SweepStep& step : plan.shape().steps)
      for (const SweepPart& part : step.parts) {
        if (next == matrices.size()) fail("matrices", "one array per part");
        const Index entries = entries_of(part);
        values.push_back(read<T>(matrices[next++], entries, "matrices"));
      }
    if (next != matrices.size()) fail("matrices", "one array per part");
    plan.matrices().set(values);
  }

  // Links the matrices of some parts to an array of `count` values, which is returned: for each
  // part its number, the places (num_matrices, n, C) of its entries among the values, and a factor
  // that multiplies them.
  py::array link(const std::vector<LinkedPart>& parts, Index count) {
    if (count < 0 || count >= kMaxBlocks) fail("the number of values", "below 2^31");
    std::vector<Index> sizes;  // [part]: entries of its matrices
    for (const SweepStep& step : plan.shape().steps)
      for (const SweepPart& part : step.parts) sizes.push_back(entries_of(part));
    std::vector<typename SweepMatrices<T>::Linked> given;
    for (const auto& [number, places, scale] : parts) {
      expect_below(number, Index(sizes.size()), "a part");
      if (places.size() != sizes[std::size_t(number)]) fail("places", "one per entry");
      for (Index e = 0; e < places.size(); ++e) expect_below(places.data()[e], count, "a place");
      given.push_back({std::size_t(number), places.data(), scalar<T>(scale)});
    }
    plan.matrices().link(given);
    values = Array<T>(count);
    std::fill_n(values.mutable_data(), count, T{});
    return values;
  }

  // Copies the present values to the matrices of the linked parts.
  void gather() { plan.matrices().gather(values.data()); }

  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) const {
    const T* source = read<T>(x, checked_product({plan.elements(0), outer, inner}), "x");
    T* target = write<T>(y, checked_product({plan.elements(1), outer, inner}), "y");
    const T factor = scalar<T>(alpha);
    py::gil_scoped_release unlocked;
    plan.run(source, target, outer, inner, factor, accumulate);
  }

  // out[..., :] = A x[..., :] by the fast path (run_plain).
  bool apply(py::handle x, py::handle out) const {
    return run_plain<T>(plan, plan.multiply_adds(), x, out, blocks(0), blocks(1));
  }

 private:
  // Of all matrices of a part.
  Index entries_of(const SweepPart& part) const {
    const std::size_t mode = std::size_t(part.mode);
    return part.num_matrices * plan.shape().sizes[mode] * plan.shape().given[mode];
  }
  // Number and elements of the blocks of x or y.
  std::pair<Index, Index> blocks(std::size_t vector) const {
    const Index count = plan.shape().vectors[vector].count;
    return {count, count ? plan.elements(vector) / count : 0};
  }
};

template <class T>
void register_sweep_plan(py::module_& module, const char* name) {
  using Plan = BoundSweeps<T>;
  py::class_<Plan>(module, name)
      .def(py::init<const std::vector<Index>&, const std::vector<Index>&,
                    const std::vector<std::pair<Index, Index>>&, const std::vector<GivenStep>&,
                    const std::vector<py::array>&>(),
           py::arg("sizes"), py::arg("given"), py::arg("vectors"), py::arg("steps"), py::arg("matrices"))
      .def("set_values", &Plan::set_values, py::arg("matrices"))
      .def("link", &Plan::link, py::arg("parts"), py::arg("count"))
      .def("gather", &Plan::gather)
      .def("apply", &Plan::apply, py::arg("x"), py::arg("out"))
      .def("run", &Plan::run, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def(
          "bind",
          [](const py::object& self, const py::array& x, const py::array& y, Index outer,
             Index inner, const py::object& alpha, bool accumulate) -> std::shared_ptr<Pass> {
            const auto& plan = self.cast<const Plan&>().plan;
            return std::make_shared<PlanPass<SweepPlan<T>, T>>(
                self, plan, plan.multiply_adds(), x, y, plan.elements(0), plan.elements(1), outer,
                inner, alpha, accumulate);
          },
          py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"), py::arg("alpha"),
          py::arg("accumulate"))
      .def_property_readonly("multiply_adds",
                             [](const Plan& bound) { return bound.plan.multiply_adds(); })
      .def_property_readonly("num_listed",
                             [](const Plan& bound) { return bound.plan.num_listed(); });
}

}  // namespace

void register_sweeps(py::module_& module) {
  register_sweep_plan<float>(module, "SweepPlanFloat32");
  register_sweep_plan<double>(module, "SweepPlanFloat64");
  register_sweep_plan<Complex<float>>(module, "SweepPlanComplex64");
  register_sweep_plan<Complex<double>>(module, "SweepPlanComplex128");
}

}  // namespace batchkron
