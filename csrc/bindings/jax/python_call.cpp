// XLA's calls of Python functions that work on its buffers: on arrays of NumPy on the CPU, and on a
// device by addresses and XLA's stream.
#include <pybind11/numpy.h>

#include "bindings/jax/call.hpp"
#include "bindings/register.hpp"

namespace batchkron {
namespace {

namespace py = pybind11;

// Python's function that all calls go to; null until it is set.
py::object& python_function() {
  static py::object& function = *new py::object;  // never destroyed: Python may have ended before
  return function;
}

// An array of NumPy in the buffer's memory.
py::object host_array(const xla::Buffer& buffer, bool writeable) {
  const std::vector<Index> shape(buffer.sizes, buffer.sizes + buffer.axes);
  py::array array(py::dtype(dtype_name(buffer.dtype)), shape, buffer.data, py::none());
  if (!writeable)
    py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

// The address, the name of the dtype, and the shape.
py::object device_array(const xla::Buffer& buffer, bool) {
  py::tuple shape(buffer.axes);
  for (Index k = 0; k < buffer.axes; ++k) shape[std::size_t(k)] = buffer.sizes[k];
  return py::make_tuple(reinterpret_cast<std::uintptr_t>(buffer.data), dtype_name(buffer.dtype),
                        shape);
}

using MakeArray = py::object(const xla::Buffer&, bool writeable);

// Calls function(name, arguments, results, transpose, stream) of Python with the interpreter's lock.
void call_python(const XlaCall& call, MakeArray* array, const void* stream) {
  const std::string name = call.text("function");
  const bool transpose = call.flag("transpose");
  const py::gil_scoped_acquire locked;
  try {
    py::list arguments, results;
    for (Index k = 0; k < call.arguments(); ++k) arguments.append(array(call.argument(k), false));
    for (Index k = 0; k < call.results(); ++k) results.append(array(call.result(k), true));
    python_function()(name, arguments, results, transpose, reinterpret_cast<std::uintptr_t>(stream));
  } catch (py::error_already_set& error) {
    const std::string text = error.what();  // whose memory is Python's, freed with the lock
    throw std::runtime_error(text);
  }
}

xla::Error* handle_on_host(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) { call_python(call, &host_array, nullptr); });
}

xla::Error* handle_python_on_device(xla::CallFrame* frame) {
  return handle(frame, [](const XlaCall& call) {
    call_python(call, &device_array, call.stream());
  });
}

}  // namespace

void register_jax_python_call(py::module_& module) {
  module.attr("jax_python_on_host") = capsule_of(&handle_on_host);
  module.attr("jax_python_on_device") = capsule_of(&handle_python_on_device);
  module.def("set_jax_function", [](py::object function) { python_function() = function; },
             py::arg("function"));
}

}  // namespace batchkron
