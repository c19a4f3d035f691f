// The passes over vectors that Krylov methods are made of.
#include <pybind11/stl.h>

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

}  // namespace

void register_krylov(py::module_& module) {
  py::class_<KrylovSequence>(module, "KrylovSequence")
      .def(py::init<const std::vector<std::string>&, int>(), py::arg("names"), py::arg("dtype"))
      .def("run", &run, py::arg("address"));
}

}  // namespace batchkron
