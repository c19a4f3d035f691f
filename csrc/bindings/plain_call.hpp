// The fast path of a call whose arrays need no conversion: reads the fields of NumPy arrays
// directly, because NumPy's functions take longer than a small product.
#pragma once

#include <optional>

#include "bindings/arrays.hpp"

namespace batchkron {

// The fields of an array for which is_plain holds.
template <class T>
class FastArray {
 public:
  explicit FastArray(py::handle object) : proxy_(py::detail::array_proxy(object.ptr())) {}

  // Whether this is a NumPy array of T (no subclass), C-contiguous, aligned, with at least one
  // dimension and, if asked for, writeable.
  static bool is_plain(py::handle object, bool writeable) {
    static PyObject* const dtype = py::dtype::of<T>().release().ptr();
    constexpr int readable = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ |
                             py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    const int wanted =
        writeable ? readable | py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : readable;
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto* proxy = py::detail::array_proxy(object.ptr());
    return proxy->descr == dtype && (proxy->flags & wanted) == wanted && proxy->nd >= 1;
  }

  T* data() const { return reinterpret_cast<T*>(proxy_->data); }
  int dimensions() const { return proxy_->nd; }
  Index last() const { return proxy_->dimensions[proxy_->nd - 1]; }
  // The product of all dimensions but the last, or nothing if these differ from those of `other`.
  std::optional<Index> leading(const FastArray& other) const {
    Index product = 1;
    for (int axis = 0; axis + 1 < proxy_->nd; ++axis) {
      if (proxy_->dimensions[axis] != other.proxy_->dimensions[axis]) return {};
      product *= proxy_->dimensions[axis];
    }
    return product;
  }

 private:
  const py::detail::PyArray_Proxy* proxy_;
};

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
    if (source.data() < target.data() + *outer * rows &&
        target.data() < source.data() + *outer * columns)
      return {};
    return FastCall{source.data(), target.data(), *outer};
  }
};

}  // namespace batchkron
