// Checked access to NumPy arrays. The Python code above validates what users pass, with texts for
// users; these checks make sure that no mistake in it can read or write outside of an array.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/pack.hpp"
#include "simd/common/scalar.hpp"

namespace pybind11::detail {
// batchkron's complex number has the layout and the NumPy dtype of std::complex.
template <class Real>
struct npy_format_descriptor<batchkron::Complex<Real>>
    : npy_format_descriptor<std::complex<Real>> {};
}  // namespace pybind11::detail

namespace batchkron {

namespace py = pybind11;

template <class T>
using Array = py::array_t<T>;

using Indices = py::array_t<Index, py::array::c_style>;

inline std::vector<Index> copy_of(const Indices& indices) {
  return {indices.data(), indices.data() + indices.size()};
}

[[noreturn]] inline void fail(const std::string& name, const std::string& expected) {
  throw std::invalid_argument("internal error: " + name + " must be " + expected);
}

// NumPy may give an array without elements any address.
template <class T>
bool is_aligned(const py::array& array) {
  return array.size() == 0 || reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) == 0;
}

// The array itself, if it has dtype T, is C-contiguous, aligned and has so many elements; else
// throws.
template <class T>
const py::array& expect(const py::array& array, Index elements, const char* name) {
  if (!py::isinstance<Array<T>>(array)) fail(name, "of the plan's dtype");
  if (!(array.flags() & py::array::c_style)) fail(name, "C-contiguous");
  if (!is_aligned<T>(array)) fail(name, "aligned");
  if (array.size() != elements) fail(name, "of " + std::to_string(elements) + " elements");
  return array;
}

template <class T>
const T* read(const py::array& array, Index elements, const char* name) {
  return static_cast<const T*>(expect<T>(array, elements, name).data());
}

template <class T>
T* write(py::array& array, Index elements, const char* name) {
  expect<T>(array, elements, name);
  return static_cast<T*>(array.mutable_data());
}

// A (K, C) factor with any strides, negative and zero ones too, that are multiples of the item
// size.
template <class T>
FactorView<T> factor_view(const py::array& array, Index K, Index C) {
  constexpr Index item = sizeof(T);
  if (!py::isinstance<Array<T>>(array)) fail("a factor", "of the plan's dtype");
  if (array.ndim() != 2 || array.shape(0) != K || array.shape(1) != C)
    fail("a factor", "of shape (" + std::to_string(K) + ", " + std::to_string(C) + ")");
  if (array.strides(0) % item || array.strides(1) % item || !is_aligned<T>(array))
    fail("a factor", "aligned");
  return {static_cast<const T*>(array.data()), K, C, array.strides(0) / item,
          array.strides(1) / item};
}

// Returns function(T{}), where T is the C++ type of the array's dtype.
template <class Function>
auto with_dtype(const py::array& array, Function function) {
  if (py::isinstance<Array<double>>(array)) return function(double{});
  if (py::isinstance<Array<float>>(array)) return function(float{});
  if (py::isinstance<Array<Complex<double>>>(array)) return function(Complex<double>{});
  if (py::isinstance<Array<Complex<float>>>(array)) return function(Complex<float>{});
  fail("an array", "float32, float64, complex64 or complex128");
}

// A Python or NumPy number as T.
template <class T>
T scalar(const py::object& value) {
  return py::cast<T>(value);
}
template <>
inline Complex<double> scalar(const py::object& value) {
  const auto number = py::cast<std::complex<double>>(value);
  return {number.real(), number.imag()};
}
template <>
inline Complex<float> scalar(const py::object& value) {
  const auto number = scalar<Complex<double>>(value);
  return {float(number.real), float(number.imag)};
}

}  // namespace batchkron
