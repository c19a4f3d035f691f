#include "bindings/register.hpp"
#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {

void register_runtime(pybind11::module_& module) {
  module.def("get_num_threads", &num_threads);
  module.def("set_num_threads", &set_num_threads);
  module.def("instruction_set", [] { return kernels().name; });
}

}  // namespace batchkron
