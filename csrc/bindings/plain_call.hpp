// The fast path of a call whose arrays need no conversion: reads the fields of NumPy arrays
// directly, because NumPy's functions take longer than a small product.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "bindings/arrays.hpp"

namespace batchkron {

// Multiply-adds from which a call releases the interpreter lock: fewer take less time than a switch
// between threads. Chosen by hand.
constexpr double kMinReleaseWork = 1e5;

// The fields of an array for which is_plain holds.
template <class T>
class FastArray {
 public:
  explicit FastArray(py::handle object) : proxy_(py::detail::array_proxy(object.ptr())) {}

  // Whether this is a NumPy array of T (no subclass), C-contiguous, aligned, with at least one
  // dimension and, if asked for, writeable.
  static bool is_plain(py::handle object, bool writeable) {
    constexpr int readable = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ |
                             py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    return has(object, writeable ? readable | py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : readable);
  }

  T* data() const { return reinterpret_cast<T*>(proxy_->data); }
  int dimensions() const { return proxy_->nd; }
  Index size(int axis) const { return proxy_->dimensions[axis]; }
  Index last() const { return size(proxy_->nd - 1); }
  // The product of the dimensions `begin` ... `end` - 1.
  Index size(int begin, int end) const {
    Index product = 1;
    for (int axis = begin; axis < end; ++axis) product *= size(axis);
    return product;
  }
  // The product of all dimensions but the last, or nothing if these differ from those of `other`.
  std::optional<Index> leading(const FastArray& other) const {
    Index product = 1;
    for (int axis = 0; axis + 1 < proxy_->nd; ++axis) {
      if (proxy_->dimensions[axis] != other.proxy_->dimensions[axis]) return {};
      product *= proxy_->dimensions[axis];
    }
    return product;
  }

  // As a factor whose rows are inputs or outputs. Nothing if it has another dtype, is no matrix, is
  // empty, or its elements do not lie one beside the other in one of the two orders.
  static std::optional<FactorView<T>> factor(py::handle object, bool rows_are_outputs) {
    if (!has(object, py::detail::npy_api::NPY_ARRAY_ALIGNED_)) return {};
    const FastArray array(object);
    if (array.dimensions() != 2) return {};
    constexpr Index item = sizeof(T);
    const Index rows = array.size(0), columns = array.size(1);
    const Index by_row = array.proxy_->strides[0], by_column = array.proxy_->strides[1];
    const bool contiguous = (by_column == item && by_row == item * columns) ||
                            (by_row == item && by_column == item * rows);
    if (!contiguous || rows == 0 || columns == 0) return {};
    if (rows_are_outputs) return FactorView<T>{array.data(), rows, columns, by_row / item,
                                               by_column / item};
    return FactorView<T>{array.data(), columns, rows, by_column / item, by_row / item};
  }

 private:
  static bool has(py::handle object, int flags) {
    static PyObject* const dtype = py::dtype::of<T>().release().ptr();
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto* proxy = py::detail::array_proxy(object.ptr());
    if (proxy->descr != dtype && !is_equal(proxy->descr, dtype)) return false;
    return (proxy->flags & flags) == flags && proxy->nd >= 1;
  }
  // Whether two dtypes are the same though two objects, as those of unpickled arrays are.
  static bool is_equal(PyObject* first, PyObject* second) {
    const auto one = py::reinterpret_borrow<py::dtype>(first);
    const auto other = py::reinterpret_borrow<py::dtype>(second);
    return one.num() == other.num() && one.byteorder() == other.byteorder();
  }

  const py::detail::PyArray_Proxy* proxy_;
};

// Whether two pieces of memory have an element in common.
template <class T>
bool overlaps(const T* a, Index count_a, const T* b, Index count_b) {
  return a < b + count_b && b < a + count_a;
}

// A Python float or int (no other number, also no bool) that is finite.
inline std::optional<double> plain_number(py::handle object) {
  if (!PyFloat_CheckExact(object.ptr()) && !PyLong_CheckExact(object.ptr())) return {};
  const double value = PyFloat_AsDouble(object.ptr());
  if (PyErr_Occurred()) PyErr_Clear();  // an int beyond all floats: returned as -1
  else if (std::isfinite(value)) return value;
  return {};
}

// The items of a list or a tuple.
inline std::optional<std::pair<PyObject**, Index>> items_of(py::handle object) {
  if (PyList_CheckExact(object.ptr()) || PyTuple_CheckExact(object.ptr()))
    return std::pair(PySequence_Fast_ITEMS(object.ptr()),
                     Index(PySequence_Fast_GET_SIZE(object.ptr())));
  return {};
}

// Returns call(T{}) of the first T of the four dtypes for which it is not None, else None.
template <class Call>
py::object first_dtype(Call call) {
  py::object result = call(double{});
  if (result.is_none()) result = call(float{});
  if (result.is_none()) result = call(Complex<double>{});
  if (result.is_none()) result = call(Complex<float>{});
  return result;
}

// x (outer, columns) and out (outer, rows) of a call on the fast path; the arrays may have any
// number of leading dimensions, of which `outer` is the product.
template <class T>
struct FastCall {
  const T* x;
  T* out;
  Index outer;

  // Nothing if an array has to be converted or refused, is empty, or overlaps the other one: the
  // caller then takes the way through Python.
  static std::optional<FastCall> of(py::handle x, py::handle out, Index columns, Index rows) {
    if (!FastArray<T>::is_plain(x, false) || !FastArray<T>::is_plain(out, true)) return {};
    const FastArray<T> source(x), target(out);
    if (source.dimensions() != target.dimensions()) return {};
    if (source.last() != columns || target.last() != rows) return {};
    const std::optional<Index> outer = source.leading(target);
    if (!outer || *outer == 0) return {};
    if (overlaps(source.data(), *outer * columns, target.data(), *outer * rows)) return {};
    return FastCall{source.data(), target.data(), *outer};
  }

  // The same for x (outer, blocks, elements) and out with other numbers of both: (number, elements).
  static std::optional<FastCall> of_blocks(py::handle x, py::handle out,
                                           std::pair<Index, Index> given,
                                           std::pair<Index, Index> made) {
    if (!FastArray<T>::is_plain(x, false) || !FastArray<T>::is_plain(out, true)) return {};
    const FastArray<T> source(x), target(out);
    const int axes = source.dimensions();
    if (axes < 2 || target.dimensions() != axes) return {};
    if (source.size(axes - 2) != given.first || source.last() != given.second ||
        target.size(axes - 2) != made.first || target.last() != made.second)
      return {};
    for (int axis = 0; axis + 2 < axes; ++axis)
      if (source.size(axis) != target.size(axis)) return {};
    const Index read = source.size(0, axes), written = target.size(0, axes);
    if (read == 0 || written == 0 || overlaps<T>(source.data(), read, target.data(), written))
      return {};
    return FastCall{source.data(), target.data(), source.size(0, axes - 2)};
  }
};

// out = A x of a plan with `run` on the fast path, for flat vectors or blocks of them; `given` and
// `made` are number and elements of the blocks of x and out. Returns false and does nothing if an
// array has to be converted or refused. work: multiply-adds for one vector.
template <class T, class Plan>
bool run_plain(const Plan& plan, double work, py::handle x, py::handle out,
               std::pair<Index, Index> given, std::pair<Index, Index> made) {
  auto call = FastCall<T>::of(x, out, given.first * given.second, made.first * made.second);
  if (!call) call = FastCall<T>::of_blocks(x, out, given, made);
  if (!call) return false;
  std::optional<py::gil_scoped_release> unlocked;
  if (work * double(call->outer) >= kMinReleaseWork) unlocked.emplace();
  plan.run(call->x, call->out, call->outer, 1, T(1), false);
  return true;
}

}  // namespace batchkron
