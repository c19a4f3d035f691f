#include <string>

#include "bindings/register.hpp"
#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {
namespace {

// Warns, in whichever thread of Python's, that the system refuses to start more threads.
void warn_of_refusal(int threads) {
  const pybind11::gil_scoped_acquire locked;
  const std::string text =
      "the system refuses to start more threads; the kernels take " + std::to_string(threads);
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
}

}  // namespace

void register_runtime(pybind11::module_& module) {
  module.def("get_num_threads", &num_threads);
  module.def("num_processors", &num_processors);
  module.def("set_num_threads", &set_num_threads);
  module.def("set_thread_limit", &set_thread_limit);
  module.def("instruction_set", [] { return kernels().name; });
  set_refusal_handler(&warn_of_refusal);
  // for tests: what it chooses is otherwise seen in times only
  pybind11::class_<ThreadGain>(module, "ThreadGain")
      .def(pybind11::init<>())
      .def("choose", &ThreadGain::choose, pybind11::arg("available"), pybind11::arg("now"))
      .def("record", &ThreadGain::record, pybind11::arg("threads"), pybind11::arg("work"),
           pybind11::arg("begin"), pybind11::arg("end"));
}

}  // namespace batchkron
