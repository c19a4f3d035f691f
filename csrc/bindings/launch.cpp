// Launches of device kernels, and sequences of them.
#include "bindings/device_launch.hpp"

#include <pybind11/stl.h>

#include <stdexcept>
#include <utility>

#include "bindings/register.hpp"

namespace py = pybind11;

namespace batchkron {
namespace {

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel may start before the one ahead
// of it in its stream has ended.
constexpr int programmatic_stream_serialization = 6;

template <class Pointer>
Pointer pointer_to(Address address) {
  return reinterpret_cast<Pointer>(address);
}

Address address_in(const py::tuple& addresses, std::size_t k) {
  const Address address = PyLong_AsSize_t(PyTuple_GET_ITEM(addresses.ptr(), Py_ssize_t(k)));
  if (address == Address(-1) && PyErr_Occurred()) throw py::error_already_set();
  return address;
}

std::size_t size_of(const py::bytes& bytes) { return std::size_t(PyBytes_GET_SIZE(bytes.ptr())); }

}  // namespace

DeviceCall::DeviceCall(py::function check, const py::bytes& arguments, std::size_t addresses,
                       std::size_t scalars)
    : check_(std::move(check)), arguments_(arguments), addresses_(addresses), scalars_(scalars) {
  if (arguments_.size() > max_argument_bytes || scalars_ > arguments_.size() ||
      addresses_ > scalars_ / sizeof(Address))
    throw py::value_error("the arguments of a kernel do not fit");
}

void DeviceCall::run(Address stream, const py::tuple& addresses, const py::bytes& scalars) const {
  alignas(16) char arguments[max_argument_bytes];
  if (addresses.size() != addresses_) throw py::value_error("a kernel takes other addresses");
  check_scalars(scalars);
  write(arguments, PyBytes_AS_STRING(scalars.ptr()), size_of(scalars));
  for (std::size_t k = 0; k < addresses_; ++k) {
    const Address address = address_in(addresses, k);
    std::memcpy(arguments + k * sizeof(Address), &address, sizeof(Address));
  }
  start_or_refuse(stream, arguments);
}

void DeviceCall::run_with(Address stream, Address arguments) const {
  start_or_refuse(stream, pointer_to<void*>(arguments));
}

void DeviceCall::check_scalars(const py::bytes& scalars) const {
  if (size_of(scalars) > arguments_.size() - scalars_)
    throw py::value_error("a kernel takes other scalars");
}

void DeviceCall::refuse(int status) const {
  check_(status);
  throw std::runtime_error("a call of the device failed with status " + std::to_string(status));
}

void DeviceCall::start_or_refuse(Address stream, void* arguments) const {
  int status;
  {
    py::gil_scoped_release unlocked;  // a launch waits while the stream's queue is full
    status = start(stream, arguments);
  }
  if (status != 0) refuse(status);
}

DeviceLaunch::DeviceLaunch(Address launch, py::function check, Address kernel, unsigned grid_x,
                           unsigned grid_y, unsigned grid_z, unsigned threads,
                           unsigned shared_bytes, bool early, const py::bytes& arguments,
                           std::size_t addresses, std::size_t scalars)
    : DeviceCall(std::move(check), arguments, addresses, scalars),
      launch_(pointer_to<LaunchKernel>(launch)),
      kernel_(pointer_to<void*>(kernel)),
      configuration_{{grid_x, grid_y, grid_z}, {threads, 1, 1}, shared_bytes, nullptr, nullptr,
                     early ? 1u : 0u} {}

int DeviceLaunch::start(Address stream, void* arguments) const {
  LaunchAttribute early{programmatic_stream_serialization, 1, {}};
  LaunchConfiguration configuration = configuration_;
  configuration.stream = pointer_to<void*>(stream);
  configuration.attributes = &early;
  void* parameters[] = {arguments};
  return launch_(&configuration, kernel_, parameters, nullptr);
}

DeviceSequence::DeviceSequence(const py::list& calls, const std::vector<Places>& places,
                               std::size_t addresses)
    : calls_(py::tuple(calls)), addresses_(addresses) {
  if (calls.empty() || calls.size() != places.size())
    throw py::value_error("a sequence has places for each of its calls");
  for (std::size_t k = 0; k < places.size(); ++k) {
    Step step{&calls[k].cast<const DeviceCall&>(), {}};  // refuses None
    const std::size_t size = step.call->arguments().size();
    for (const auto& [at, number, offset] : places[k]) {
      if (size < sizeof(Address) || at > size - sizeof(Address) || number >= addresses)
        throw py::value_error("a place of a sequence does not fit");
      step.places.push_back({at, number, offset});
    }
    steps_.push_back(std::move(step));
  }
}

void DeviceSequence::run(Address stream, const py::tuple& addresses,
                         const py::bytes& scalars) const {
  if (addresses.size() != addresses_) throw py::value_error("a sequence takes other addresses");
  steps_.back().call->check_scalars(scalars);
  std::vector<Address> found(addresses_);
  for (std::size_t k = 0; k < addresses_; ++k) found[k] = address_in(addresses, k);
  const Step* failed = nullptr;
  int status;
  {
    py::gil_scoped_release unlocked;  // a launch waits while the stream's queue is full
    status = start(stream, found.data(), PyBytes_AS_STRING(scalars.ptr()), size_of(scalars), failed);
  }
  if (status != 0) failed->call->refuse(status);
}

int DeviceSequence::start(Address stream, const Address* addresses, const char* scalars,
                          std::size_t bytes, const Step*& failed) const {
  alignas(16) char arguments[DeviceCall::max_argument_bytes];
  for (const Step& step : steps_) {
    step.call->write(arguments, scalars, &step == &steps_.back() ? bytes : 0);
    for (const Place& place : step.places) {
      const Address address = addresses[place.number] + place.offset;
      std::memcpy(arguments + place.at, &address, sizeof(Address));
    }
    if (const int status = step.call->start(stream, arguments)) {
      failed = &step;
      return status;
    }
  }
  return 0;
}

void register_launch(py::module_& module) {
  py::class_<DeviceCall>(module, "DeviceCall")
      .def("__call__", &DeviceCall::run, py::arg("stream"), py::arg("addresses"),
           py::arg("scalars"))
      .def("run_with", &DeviceCall::run_with, py::arg("stream"), py::arg("arguments"));
  py::class_<DeviceLaunch, DeviceCall>(module, "DeviceLaunch")
      .def(py::init<Address, py::function, Address, unsigned, unsigned, unsigned, unsigned,
                    unsigned, bool, const py::bytes&, std::size_t, std::size_t>(),
           py::arg("launch"), py::arg("check"), py::arg("kernel"), py::arg("grid_x"),
           py::arg("grid_y"), py::arg("grid_z"), py::arg("threads"), py::arg("shared_bytes"),
           py::arg("early"), py::arg("arguments"), py::arg("addresses"), py::arg("scalars"));
  py::class_<DeviceSequence>(module, "DeviceSequence")
      .def(py::init<const py::list&, const std::vector<DeviceSequence::Places>&, std::size_t>(),
           py::arg("calls"), py::arg("places"), py::arg("addresses"))
      .def("__call__", &DeviceSequence::run, py::arg("stream"), py::arg("addresses"),
           py::arg("scalars"));
}

}  // namespace batchkron
