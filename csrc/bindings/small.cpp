// Functions without a plan: the explicit Kronecker product, the batched multiply of small matrices,
// and linear combinations of vectors.
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <numeric>

#include "bindings/plain_call.hpp"
#include "bindings/register.hpp"
#include "engine/batch/gemm.hpp"
#include "engine/fields/blocks.hpp"
#include "engine/kron/explicit_product.hpp"
#include "engine/vector_sum.hpp"

namespace batchkron {
namespace {

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

// Blocks of multiplications by fields, see engine/fields/blocks.hpp; `fields`, `signs` and `lowest`
// have one entry for each part.
void bound_field_blocks(const py::array& values, const Indices& fields, const py::array& signs,
                        const py::array& lowest, const py::array& outer,
                        const py::array& coarsen, const py::array& upward, py::array heap,
                        py::array ancestors) {
  if (heap.ndim() != 3 || outer.ndim() != 2 || upward.ndim() != 3) fail("an array", "of other shape");
  const Index cells = heap.shape(0), parts = heap.shape(1), q = outer.shape(1);
  const Index points = outer.shape(0), n = upward.shape(1);
  if (cells < 1 || points < 1) fail("an array", "not empty");
  Index level = 0;
  while ((Index(1) << level) < cells) ++level;
  if ((Index(1) << level) != cells || n * n != q || fields.size() != parts || cells < 1)
    fail("shapes", "those of blocks");
  const Index count = values.size() / (cells * points);
  for (Index p = 0; p < parts; ++p)
    if (fields.data()[p] < 0 || fields.data()[p] >= count) fail("fields", "in range");
  const FieldBlocks task{level, n, points, parts,
                         read<double>(values, count * cells * points, "values"), fields.data(),
                         read<double>(signs, parts, "signs"), read<double>(lowest, parts, "lowest"),
                         read<double>(outer, points * q, "outer"),
                         read<double>(coarsen, 8 * q * q, "coarsen"),
                         read<double>(upward, (cells - 1) * n * n * level, "upward"),
                         write<double>(heap, cells * parts * 4 * q, "heap"),
                         write<double>(ancestors, (cells - 1) * parts * n * n * level, "ancestors")};
  py::gil_scoped_release unlocked;
  write_field_blocks(task);
}

// The calls below take arrays that need no conversion. They return None and do nothing where that is
// not so, also where an error has to be raised.

// A_1 (x) ... (x) A_d, from the right: all but the last product are small.
template <class T>
py::object plain_kron(py::handle given, py::handle out) {
  const auto items = items_of(given);
  if (!items || items->second < 2) return py::none();
  std::vector<py::object> kept;  // the caller's list may lose them while others run
  Index rows = 1, columns = 1;
  for (Index k = 0; k < items->second; ++k) {
    const py::handle factor = items->first[k];
    if (!FastArray<T>::is_plain(factor, false)) return py::none();
    const FastArray<T> array(factor);
    if (array.dimensions() != 2 || __builtin_mul_overflow(rows, array.size(0), &rows) ||
        __builtin_mul_overflow(columns, array.size(1), &columns))
      return py::none();
    kept.push_back(py::reinterpret_borrow<py::object>(factor));
  }
  Index elements;
  if (__builtin_mul_overflow(rows, columns, &elements) || elements == 0) return py::none();
  py::object result;
  if (out.is_none()) {
    result = py::array_t<T>({rows, columns});
  } else {
    if (!FastArray<T>::is_plain(out, true)) return py::none();
    const FastArray<T> target(out);
    if (target.dimensions() != 2 || target.size(0) != rows || target.size(1) != columns)
      return py::none();
    for (const py::object& factor : kept) {
      const FastArray<T> array(factor);
      if (overlaps<T>(array.data(), array.size(0, 2), target.data(), elements)) return py::none();
    }
    result = py::reinterpret_borrow<py::object>(out);
  }
  std::vector<FastArray<T>> factors(kept.begin(), kept.end());
  T* target = FastArray<T>(result).data();
  py::gil_scoped_release unlocked;
  std::vector<T> right, product;
  const T* last = factors.back().data();
  Index last_rows = factors.back().size(0), last_columns = factors.back().size(1);
  for (std::size_t k = factors.size() - 1; k-- > 0;) {
    const FastArray<T>& left = factors[k];
    const ExplicitKron<T> both(left.data(), left.size(0), left.size(1), last, last_rows,
                               last_columns);
    last_rows *= left.size(0);
    last_columns *= left.size(1);
    if (k > 0) product.resize(std::size_t(last_rows * last_columns));
    both.write(k > 0 ? product.data() : target);
    right.swap(product);
    last = right.data();
  }
  return result;
}

// alpha a[i] b[i] for all i, where b may be transposed.
template <class T>
py::object plain_gemm(py::handle a, py::handle b, double alpha, bool transpose_b) {
  if (!FastArray<T>::is_plain(a, false) || !FastArray<T>::is_plain(b, false)) return py::none();
  const FastArray<T> left(a), right(b);
  if (left.dimensions() != 3 || right.dimensions() != 3) return py::none();
  const Index count = left.size(0), m = left.size(1), k = left.size(2);
  const Index n = right.size(transpose_b ? 1 : 2);
  if (right.size(0) != count || right.size(transpose_b ? 2 : 1) != k || m * n * k * count == 0)
    return py::none();
  py::array_t<T> result({count, m, n});
  const py::object keep_a = py::reinterpret_borrow<py::object>(a);
  const py::object keep_b = py::reinterpret_borrow<py::object>(b);
  T* target = FastArray<T>(result).data();
  py::gil_scoped_release unlocked;
  GemmShape shape{m, n, k, transpose_b, count, count, {}, {}, {}};
  shape.starts.resize(std::size_t(count + 1));
  std::iota(shape.starts.begin(), shape.starts.end(), Index(0));
  shape.a_ids.assign(shape.starts.begin(), shape.starts.end() - 1);
  shape.b_ids = shape.a_ids;
  std::fill_n(target, count * m * n, T{});
  batched_gemm(shape, left.data(), right.data(), T(alpha), target);
  return result;
}

py::object bound_plain_kron(py::handle factors, py::handle out) {
  return first_dtype([&](auto zero) { return plain_kron<decltype(zero)>(factors, out); });
}

py::object bound_plain_gemm(py::handle a, py::handle b, py::handle alpha, bool transpose_b) {
  const auto scale = plain_number(alpha);
  if (!scale) return py::none();
  return first_dtype([&](auto zero) {
    return plain_gemm<decltype(zero)>(a, b, *scale, transpose_b);
  });
}

}  // namespace

void register_small(py::module_& module) {
  module.def("kron", &bound_kron, py::arg("a"), py::arg("b"), py::arg("out"));
  module.def("batched_gemm", &bound_gemm, py::arg("a"), py::arg("b"), py::arg("c"),
             py::arg("alpha"), py::arg("transpose_b"), py::arg("a_ids"), py::arg("b_ids"),
             py::arg("starts"));
  module.def("plain_kron", &bound_plain_kron, py::arg("factors"), py::arg("out"));
  module.def("plain_gemm", &bound_plain_gemm, py::arg("a"), py::arg("b"), py::arg("alpha"),
             py::arg("transpose_b"));
  module.def("field_blocks", &bound_field_blocks, py::arg("values"), py::arg("fields"),
             py::arg("signs"), py::arg("lowest"), py::arg("outer"), py::arg("coarsen"),
             py::arg("upward"), py::arg("heap"), py::arg("ancestors"));
  module.def("sum_vectors", &bound_sum, py::arg("factors"), py::arg("vectors"), py::arg("out"));
}

}  // namespace batchkron
