// Launches device kernels by the CUDA driver's cuLaunchKernelEx. Its address comes from Python,
// because this module is built and imported without CUDA.
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/register.hpp"

namespace py = pybind11;

namespace batchkron {
namespace {

using Address = std::uintptr_t;

// CUlaunchAttribute and CUlaunchConfig of cuda.h, with the driver's layout.
struct LaunchAttribute {
  int id;
  alignas(8) int value;
  char rest[60];
};
struct LaunchConfiguration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfiguration) == 56);
using LaunchKernel = int (*)(const LaunchConfiguration*, void* kernel, void** parameters,
                             void** extra);

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel may start before the one ahead
// of it in its stream has ended.
constexpr int programmatic_stream_serialization = 6;
constexpr std::size_t max_argument_bytes = 4096;  // CUDA's limit for the parameters of a kernel

template <class Pointer>
Pointer pointer_to(Address address) {
  return reinterpret_cast<Pointer>(address);
}

// A kernel with its launch configuration. The kernel has one parameter, a struct: a call fills in
// its first fields, which are addresses, and its last ones, which are scalars; what is between is
// the same in all calls. Several threads may call one launch at once.
class DeviceLaunch {
 public:
  // launch: address of cuLaunchKernelEx; kernel: its CUfunction. check: called with the status of a
  // launch that failed, and raises the error. early: sets programmatic stream serialization.
  // arguments: the struct's bytes; addresses: how many it begins with; scalars: the offset in bytes
  // where those begin.
  DeviceLaunch(Address launch, py::function check, Address kernel, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned threads, unsigned shared_bytes, bool early,
               const py::bytes& arguments, std::size_t addresses, std::size_t scalars)
      : launch_(pointer_to<LaunchKernel>(launch)),
        check_(std::move(check)),
        kernel_(pointer_to<void*>(kernel)),
        configuration_{{grid_x, grid_y, grid_z}, {threads, 1, 1}, shared_bytes, nullptr, nullptr,
                       early ? 1u : 0u},
        arguments_(arguments),
        addresses_(addresses),
        scalars_(scalars) {
    if (arguments_.size() > max_argument_bytes || scalars_ > arguments_.size() ||
        addresses_ > scalars_ / sizeof(Address))
      throw py::value_error("the arguments of a kernel do not fit");
  }

  void run(Address stream, const py::tuple& addresses, const py::bytes& scalars) const {
    alignas(16) char arguments[max_argument_bytes];
    std::memcpy(arguments, arguments_.data(), arguments_.size());
    if (addresses.size() != addresses_) throw py::value_error("a kernel takes other addresses");
    for (std::size_t i = 0; i < addresses_; ++i) {
      const Address address = PyLong_AsSize_t(PyTuple_GET_ITEM(addresses.ptr(), Py_ssize_t(i)));
      if (address == Address(-1) && PyErr_Occurred()) throw py::error_already_set();
      std::memcpy(arguments + i * sizeof(Address), &address, sizeof(Address));
    }
    const std::size_t brought = std::size_t(PyBytes_GET_SIZE(scalars.ptr()));
    if (brought > arguments_.size() - scalars_)
      throw py::value_error("a kernel takes other scalars");
    std::memcpy(arguments + scalars_, PyBytes_AS_STRING(scalars.ptr()), brought);
    launch(stream, arguments);
  }

  // `arguments` is the address of a whole struct in the host's memory.
  void run_with(Address stream, Address arguments) const {
    launch(stream, pointer_to<void*>(arguments));
  }

 private:
  void launch(Address stream, void* arguments) const {
    LaunchAttribute early{programmatic_stream_serialization, 1, {}};
    LaunchConfiguration configuration = configuration_;
    configuration.stream = pointer_to<void*>(stream);
    configuration.attributes = &early;
    void* parameters[] = {arguments};
    int status;
    {
      py::gil_scoped_release unlocked;  // a launch waits while the stream's queue is full
      status = launch_(&configuration, kernel_, parameters, nullptr);
    }
    if (status == 0) return;
    check_(status);
    throw std::runtime_error("a launch failed with status " + std::to_string(status));
  }

  LaunchKernel launch_;
  py::function check_;
  void* kernel_;
  LaunchConfiguration configuration_;
  std::string arguments_;
  std::size_t addresses_, scalars_;
};

}  // namespace

void register_launch(py::module_& module) {
  py::class_<DeviceLaunch>(module, "DeviceLaunch")
      .def(py::init<Address, py::function, Address, unsigned, unsigned, unsigned, unsigned,
                    unsigned, bool, const py::bytes&, std::size_t, std::size_t>(),
           py::arg("launch"), py::arg("check"), py::arg("kernel"), py::arg("grid_x"),
           py::arg("grid_y"), py::arg("grid_z"), py::arg("threads"), py::arg("shared_bytes"),
           py::arg("early"), py::arg("arguments"), py::arg("addresses"), py::arg("scalars"))
      .def("__call__", &DeviceLaunch::run, py::arg("stream"), py::arg("addresses"),
           py::arg("scalars"))
      .def("run_with", &DeviceLaunch::run_with, py::arg("stream"), py::arg("arguments"));
}

}  // namespace batchkron
