// The passes over vectors that Krylov methods are made of.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/register.hpp"
#include "engine/krylov/run.hpp"

namespace batchkron {

namespace py = pybind11;

namespace {

// Elements of a call's vectors from which it releases the interpreter lock, which takes 0.1 us:
// with fewer, the call is too short. Chosen by hand.
constexpr Index kMinReleaseElements = 20000;

// `address` is that of the arguments in memory, which begin with a KrylovHead.
Index run(const KrylovSequence& sequence, std::uintptr_t address) {
  const void* arguments = reinterpret_cast<const void*>(address);
  const KrylovHead& head = *static_cast<const KrylovHead*>(arguments);
  if (head.n * head.systems < kMinReleaseElements) return sequence.run(arguments);
  py::gil_scoped_release unlocked;
  return sequence.run(arguments);
}

// A sequence whose sums a Python function reduces: reduction(sums, maxima) overwrites the array.
std::unique_ptr<KrylovSequence> sequence(const std::vector<std::string>& names, int dtype,
                                         const py::object& reduction) {
  if (reduction.is_none()) return std::make_unique<KrylovSequence>(names, dtype);
  const auto reduce = [reduction](double* sums, Index count, bool maxima) {
    py::gil_scoped_acquire locked;
    const py::capsule memory_of_the_caller(sums, [](void*) {});
    reduction(py::array_t<double>(count, sums, memory_of_the_caller), maxima);
  };
  return std::make_unique<KrylovSequence>(names, dtype, reduce);
}

}  // namespace

void register_krylov(py::module_& module) {
  py::class_<KrylovSequence>(module, "KrylovSequence")
      .def(py::init(&sequence), py::arg("names"), py::arg("dtype"),
           py::arg("reduction") = py::none())
      .def("run", &run, py::arg("address"));
}

}  // namespace batchkron
