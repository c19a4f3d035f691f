// Functions without a plan: the explicit Kronecker product, the batched multiply of small matrices,
// and linear combinations of vectors.
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "engine/batch/gemm.hpp"
#include "engine/kron/explicit_product.hpp"
#include "engine/vector_sum.hpp"

namespace batchkron {
namespace {

using Indices = py::array_t<Index, py::array::c_style>;

void bound_kron(const py::array& a, const py::array& b, py::array out) {
  if (a.ndim() != 2 || b.ndim() != 2) fail("a factor", "two-dimensional");
  with_dtype(a, [&](auto zero) {
    using T = decltype(zero);
    const T* left = read<T>(a, a.size(), "a");
    const T* right = read<T>(b, b.size(), "b");
    T* target = write<T>(out, a.size() * b.size(), "out");
    const Index rows_a = a.shape(0), columns_a = a.shape(1);
    const Index rows_b = b.shape(0), columns_b = b.shape(1);
    py::gil_scoped_release unlocked;
    ExplicitKron<T>(left, rows_a, columns_a, right, rows_b, columns_b).write(target);
  });
}

std::vector<Index> copy_of(const Indices& indices) {
  return {indices.data(), indices.data() + indices.size()};
}

void bound_gemm(const py::array& a, const py::array& b, py::array c, const py::object& alpha,
                bool transpose_b, const Indices& a_ids, const Indices& b_ids,
                const Indices& starts) {
  if (a_ids.size() != b_ids.size()) fail("the ids", "of one length");
  if (a.ndim() != 3 || b.ndim() != 3 || c.ndim() != 3) fail("a, b and c", "three-dimensional");
  with_dtype(a, [&](auto zero) {
    using T = decltype(zero);
    const GemmShape shape{a.shape(1),     c.shape(2),     a.shape(2),
                          transpose_b,    b.shape(0),     c.shape(0),
                          copy_of(a_ids), copy_of(b_ids), copy_of(starts)};
    const T* left = read<T>(a, a.size(), "a");
    const T* right = read<T>(b, b.size(), "b");
    T* target = write<T>(c, shape.count_c * shape.m * shape.n, "c");
    const T factor = scalar<T>(alpha);
    py::gil_scoped_release unlocked;
    batched_gemm(shape, left, right, factor, target);
  });
}

// out = sum over k of factors[k] * vectors[k], of real numbers. out may be one of the vectors, but
// must not overlap any other.
void bound_sum(const std::vector<double>& factors, const std::vector<py::array>& vectors,
               py::array out) {
  if (factors.empty() || factors.size() != vectors.size()) fail("factors", "one per vector");
  const auto sum = [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> converted(factors.begin(), factors.end());
    T* target = write<T>(out, out.size(), "out");
    std::vector<const T*> sources;
    for (const py::array& vector : vectors) {
      const T* source = read<T>(vector, out.size(), "a vector");
      if (source != target && source < target + out.size() && target < source + out.size())
        throw py::value_error("out overlaps vectors[" + std::to_string(sources.size()) +
                              "] in memory; pass an array of its own");
      sources.push_back(source);
    }
    py::gil_scoped_release unlocked;
    sum_vectors<T>(target, sources.data(), converted.data(), Index(sources.size()), out.size());
  };
  if (py::isinstance<Array<double>>(out)) return sum(double{});
  if (py::isinstance<Array<float>>(out)) return sum(float{});
  fail("out", "float32 or float64");
}

}  // namespace

void register_small(py::module_& module) {
  module.def("kron", &bound_kron, py::arg("a"), py::arg("b"), py::arg("out"));
  module.def("batched_gemm", &bound_gemm, py::arg("a"), py::arg("b"), py::arg("c"),
             py::arg("alpha"), py::arg("transpose_b"), py::arg("a_ids"), py::arg("b_ids"),
             py::arg("starts"));
  module.def("sum_vectors", &bound_sum, py::arg("factors"), py::arg("vectors"), py::arg("out"));
}

}  // namespace batchkron
