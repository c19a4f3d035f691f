// Matrix products by cuBLAS.
#include "bindings/device_multiply.hpp"

#include <pybind11/stl.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "bindings/register.hpp"

namespace py = pybind11;

namespace batchkron {
namespace {

// CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: parts of a sum are added in the sum's precision.
constexpr int whole_precision = 16;
constexpr int default_algorithm = -1;  // CUBLAS_GEMM_DEFAULT

struct MultiplyArguments {
  Address x, y, values, workspace;
  std::int64_t accumulate;
  double alpha;  // or a float at the same place
};

}  // namespace

MatrixLibrary::MatrixLibrary(const std::array<Address, 5>& functions, py::function check)
    : set_stream_(reinterpret_cast<SetStream>(functions[2])),
      set_workspace_(reinterpret_cast<SetWorkspace>(functions[3])),
      multiply_(reinterpret_cast<Multiply>(functions[4])),
      check_(std::move(check)) {
  int status = reinterpret_cast<Create>(functions[0])(&handle_);
  if (!status) status = reinterpret_cast<SetMathMode>(functions[1])(handle_, whole_precision);
  if (!status) return;
  check_(status);
  throw std::runtime_error("cuBLAS failed with status " + std::to_string(status));
}

DeviceMultiply::DeviceMultiply(const MatrixLibrary& library, const Sizes& sizes,
                               const Operands& operands, std::array<bool, 2> transposed,
                               bool values_first, std::array<int, 2> types, bool is_double,
                               std::size_t workspace, const py::bytes& arguments)
    : DeviceCall(library.check(), arguments, 4, offsetof(MultiplyArguments, accumulate)),
      library_(library),
      sizes_(sizes),
      operands_(operands),
      transposed_(transposed),
      values_first_(values_first),
      types_(types),
      is_double_(is_double),
      workspace_(workspace) {
  if (this->arguments().size() > sizeof(MultiplyArguments))
    throw py::value_error("the arguments of a product do not fit");
}

int DeviceMultiply::start(Address stream, void* arguments) const {
  MultiplyArguments given;
  std::memcpy(&given, arguments, this->arguments().size());
  const double beta_double = double(given.accumulate);
  const float beta_single = float(given.accumulate);
  const void* beta = is_double_ ? static_cast<const void*>(&beta_double) : &beta_single;
  const auto& [m, n, k, count, batches] = sizes_;
  const auto& [steps, strides, jumps] = operands_;
  const auto [type, compute] = types_;
  const Address a = values_first_ ? given.values : given.x;
  const Address b = values_first_ ? given.x : given.values;
  const auto at = [](Address address) { return reinterpret_cast<void*>(address); };
  void* const handle = library_.handle();

  const std::lock_guard<std::mutex> lock(library_.using_handle());
  if (const int status = library_.set_stream()(handle, at(stream))) return status;
  if (const int status = library_.set_workspace()(handle, at(given.workspace), workspace_))
    return status;
  for (std::size_t r = 0; r < std::size_t(batches); ++r) {
    const int status = library_.multiply()(
        handle, transposed_[0], transposed_[1], m, n, k, &given.alpha, at(a + r * jumps[0]), type,
        steps[0], strides[0], at(b + r * jumps[1]), type, steps[1], strides[1], beta,
        at(given.y + r * jumps[2]), type, steps[2], strides[2], count, compute, default_algorithm);
    if (status) return status;
  }
  return 0;
}

void register_multiply(py::module_& module) {
  py::class_<MatrixLibrary>(module, "MatrixLibrary")
      .def(py::init<const std::array<Address, 5>&, py::function>(), py::arg("functions"),
           py::arg("check"));
  py::class_<DeviceMultiply, DeviceCall>(module, "DeviceMultiply")
      .def(py::init([](const MatrixLibrary& library, const std::array<int, 5>& sizes,
                       const std::array<int, 3>& steps, const std::array<long long, 3>& strides,
                       const std::array<std::size_t, 3>& jumps, std::array<bool, 2> transposed,
                       bool values_first, std::array<int, 2> types, bool is_double,
                       std::size_t workspace, const py::bytes& arguments) {
             const auto [m, n, k, count, batches] = sizes;
             return new DeviceMultiply(library, {m, n, k, count, batches}, {steps, strides, jumps},
                                       transposed, values_first, types, is_double, workspace,
                                       arguments);
           }),
           py::keep_alive<1, 2>(), py::kw_only(), py::arg("library"), py::arg("sizes"),
           py::arg("steps"), py::arg("strides"), py::arg("jumps"), py::arg("transposed"),
           py::arg("values_first"), py::arg("types"), py::arg("is_double"), py::arg("workspace"),
           py::arg("arguments"));
}

}  // namespace batchkron
