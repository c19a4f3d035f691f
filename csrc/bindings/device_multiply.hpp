// Matrix products by cuBLAS. The addresses of its functions come from Python, because this module is
// built and imported without CUDA.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "bindings/device_launch.hpp"

namespace batchkron {

// A handle of cuBLAS for one device, the current one when it is made. It is never destroyed: at the
// end of a process CUDA may be gone first.
class MatrixLibrary {
 public:
  using Create = int (*)(void** handle);
  using SetMathMode = int (*)(void* handle, int mode);
  using SetStream = int (*)(void* handle, void* stream);
  using SetWorkspace = int (*)(void* handle, void* workspace, std::size_t bytes);
  // cublasGemmStridedBatchedEx
  using Multiply = int (*)(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
                           const void* alpha, const void* a, int a_type, int a_step,
                           long long a_stride, const void* b, int b_type, int b_step,
                           long long b_stride, const void* beta, void* c, int c_type, int c_step,
                           long long c_stride, int count, int compute_type, int algorithm);

  // The functions in the order of the types above. check: called with a status that is not 0, and
  // raises the error.
  MatrixLibrary(const std::array<Address, 5>& functions, pybind11::function check);

  // cuBLAS's handle has one stream and one workspace: who uses it holds this lock.
  std::mutex& using_handle() const { return using_handle_; }

  void* handle() const { return handle_; }
  SetStream set_stream() const { return set_stream_; }
  SetWorkspace set_workspace() const { return set_workspace_; }
  Multiply multiply() const { return multiply_; }
  const pybind11::function& check() const { return check_; }

 private:
  SetStream set_stream_;
  SetWorkspace set_workspace_;
  Multiply multiply_;
  pybind11::function check_;
  void* handle_ = nullptr;
  mutable std::mutex using_handle_;
};

// Products C = alpha op(A) op(B) + beta C of matrices in column-major order, some with equal steps
// from one to the next at a time. The arguments are the addresses of x, y, the values and a
// workspace, then accumulate (int64), which is beta, and alpha. x is A and the values are B, or the
// other way round; y is C.
class DeviceMultiply : public DeviceCall {
 public:
  // Of A, B and C.
  struct Operands {
    std::array<int, 3> steps;         // elements from column to column
    std::array<long long, 3> strides; // elements from matrix to matrix
    std::array<std::size_t, 3> jumps; // bytes from one batch of products to the next
  };
  struct Sizes {
    int m, n, k, count, batches;
  };

  // types: cudaDataType of the elements, cublasComputeType. arguments: the struct's bytes.
  DeviceMultiply(const MatrixLibrary& library, const Sizes& sizes, const Operands& operands,
                 std::array<bool, 2> transposed, bool values_first, std::array<int, 2> types,
                 bool is_double, std::size_t workspace, const pybind11::bytes& arguments);

  int start(Address stream, void* arguments) const override;

 private:
  const MatrixLibrary& library_;
  Sizes sizes_;
  Operands operands_;
  std::array<bool, 2> transposed_;
  bool values_first_;
  std::array<int, 2> types_;
  bool is_double_;
  std::size_t workspace_;
};

}  // namespace batchkron
