// Products with Kronecker-sparse matrices.
#include <pybind11/complex.h>

#include <optional>

#include "bindings/plain_call.hpp"
#include "bindings/register.hpp"
#include "engine/kron_sparse/once.hpp"

namespace batchkron {
namespace {

SparseShape sparse_shape(const py::array& values) {
  if (values.ndim() != 4) fail("values", "of shape (a, b, c, d)");
  return {values.shape(0), values.shape(1), values.shape(2), values.shape(3)};
}

template <class T>
class BoundKronSparse {
 public:
  explicit BoundKronSparse(const py::array& values) : matrix_(sparse_shape(values)) {
    read<T>(values, values.size(), "values");
    values_ = values;
  }

  void set_values(const py::array& values) {
    read<T>(values, values_.size(), "values");
    values_ = values;
    matrix_.forget();
  }

  // y = alpha K x, or +=, with x (outer, columns, inner) and y (outer, rows, inner).
  void run(const py::array& x, py::array y, Index outer, Index inner, const py::object& alpha,
           bool accumulate) {
    if (outer < 0 || inner < 0) fail("numbers of vectors", "not negative");
    const T* source = read<T>(x, checked_product({matrix_.plan().columns(), inner}, outer), "x");
    T* target = write<T>(y, checked_product({matrix_.plan().rows(), inner}, outer), "y");
    multiply(source, target, outer, inner, scalar<T>(alpha), accumulate);
  }

  // out[..., :] = K x[..., :] by the fast path (bindings/plain_call.hpp). Returns false and does
  // nothing if an array has to be converted or refused.
  bool apply(py::handle x, py::handle out) {
    const auto call = FastCall<T>::of(x, out, matrix_.plan().columns(), matrix_.plan().rows());
    if (!call) return false;
    multiply(call->x, call->out, call->outer, 1, T(1), false);
    return true;
  }

  // out[:, ...] = K x[:, ...], likewise.
  bool apply_last(py::handle x, py::handle out) {
    if (!FastArray<T>::is_plain(x, false) || !FastArray<T>::is_plain(out, true)) return false;
    const FastArray<T> source(x), target(out);
    const Index columns = matrix_.plan().columns(), rows = matrix_.plan().rows();
    const int axes = source.dimensions();
    if (target.dimensions() != axes || source.size(0) != columns || target.size(0) != rows)
      return false;
    for (int axis = 1; axis < axes; ++axis)
      if (source.size(axis) != target.size(axis)) return false;
    const Index inner = source.size(1, axes);
    if (inner == 0 ||
        overlaps(source.data(), columns * inner, target.data(), rows * inner))
      return false;
    multiply(source.data(), target.data(), 1, inner, T(1), false);
    return true;
  }

 private:
  void multiply(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) {
    // while the interpreter is locked
    const T* packed = matrix_.pack(static_cast<const T*>(values_.data()), inner);
    std::optional<py::gil_scoped_release> unlocked;
    if (matrix_.plan().multiply_adds(outer, inner) >= kMinReleaseWork) unlocked.emplace();
    matrix_.run({packed, x, y, outer, inner, alpha, accumulate});
  }

  KronSparse<T> matrix_;
  py::array values_;  // which nobody changes
};

// y = K x for values that are packed for this call only, in memory that is kept.
void multiply_kron_sparse(const py::array& values, const py::array& x, py::array y, Index outer,
                          Index inner) {
  with_dtype(values, [&](auto zero) {
    using T = decltype(zero);
    const KronSparsePlan<T> plan(sparse_shape(values));
    const T* given = read<T>(values, values.size(), "values");
    const T* source = read<T>(x, checked_product({plan.columns(), inner}, outer), "x");
    T* target = write<T>(y, checked_product({plan.rows(), inner}, outer), "y");
    py::gil_scoped_release unlocked;
    multiply_once(plan, given, source, target, outer, inner);
  });
}

template <class T>
void register_type(py::module_& module, const char* name) {
  using Bound = BoundKronSparse<T>;
  py::class_<Bound>(module, name)
      .def(py::init<const py::array&>(), py::arg("values"))
      .def("set_values", &Bound::set_values, py::arg("values"))
      .def("run", &Bound::run, py::arg("x"), py::arg("y"), py::arg("outer"), py::arg("inner"),
           py::arg("alpha"), py::arg("accumulate"))
      .def("apply", &Bound::apply, py::arg("x"), py::arg("out"))
      .def("apply_last", &Bound::apply_last, py::arg("x"), py::arg("out"));
}

}  // namespace

void register_kron_sparse(py::module_& module) {
  register_type<float>(module, "KronSparseFloat32");
  register_type<double>(module, "KronSparseFloat64");
  register_type<Complex<float>>(module, "KronSparseComplex64");
  register_type<Complex<double>>(module, "KronSparseComplex128");
  module.def("multiply_kron_sparse", &multiply_kron_sparse, py::arg("values"), py::arg("x"),
             py::arg("y"), py::arg("outer"), py::arg("inner"));
}

}  // namespace batchkron
