// Kronecker products: bk_kron_*.
#include "c_interface/calls.hpp"
#include "engine/kron/explicit_product.hpp"
#include "engine/kron/plan.hpp"

using namespace batchkron;
using namespace batchkron::c_interface;

namespace {

template <class T>
struct Kron {
  std::vector<Index> rows, columns;
  KronPlan<T> plan;

  void run(const void* const* factors, bool transposed, const void* x, const void* alpha,
           const void* beta, void* y) const {
    std::vector<FactorView<T>> views;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const Index K = rows[k], C = columns[k];
      const T* data = array_of<T>(factors, Index(k), checked_product({K, C}), "factors");
      views.push_back({data, K, C, transposed ? 1 : C, transposed ? K : 1});
    }
    const Vectors<T> vectors(x, plan.input_elements(), alpha, beta, y, plan.output_elements());
    for (const FactorView<T>& view : views)
      expect_apart(view.data, view.K * view.C, vectors.y, plan.output_elements(), "a factor");
    const bool accumulates = vectors.scale();
    plan.run(views.data(), vectors.x, vectors.alpha, vectors.y, accumulates);
  }
};

}  // namespace

struct bk_kron : AnyPlan<Kron> {};

bk_status bk_kron_create(bk_kron** kron, bk_dtype dtype, int32_t num_factors, const int64_t* rows,
                         const int64_t* columns, int64_t outer, int64_t inner) {
  return create(kron, dtype, [&](auto zero) {
    using T = decltype(zero);
    expect_size(num_factors, "num_factors", 1);
    expect(rows && columns, "rows or columns is null");
    for (int32_t k = 0; k < num_factors; ++k) {
      expect_size(rows[k], "the number of rows of a factor", 1);
      expect_size(columns[k], "the number of columns of a factor", 1);
    }
    expect_size(outer, "outer");
    expect_size(inner, "inner");
    const std::vector<Index> K(rows, rows + num_factors), C(columns, columns + num_factors);
    return std::make_unique<Kron<T>>(Kron<T>{K, C, KronPlan<T>(C, K, outer, inner)});
  });
}

bk_status bk_kron_run(const bk_kron* kron, const void* const* factors, int32_t transposed,
                      const void* x, const void* alpha, const void* beta, void* y) {
  return with_plan(kron, [&](const auto& plan) {
    plan.run(factors, transposed != 0, x, alpha, beta, y);
  });
}

void bk_kron_destroy(bk_kron* kron) { delete kron; }

bk_status bk_kron_explicit(bk_dtype dtype, int64_t rows_a, int64_t columns_a, const void* a,
                           int64_t rows_b, int64_t columns_b, const void* b, void* out) {
  return guarded([&] {
    with_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const int64_t size : {rows_a, columns_a, rows_b, columns_b})
        expect_size(size, "a size of a matrix");
      const Index size_a = checked_product({rows_a, columns_a});
      const Index size_b = checked_product({rows_b, columns_b});
      const Index size = checked_product({size_a, size_b});
      const T* matrix_a = array_of<T>(a, size_a, "a");
      const Vectors<T> vectors(b, size_b, nullptr, nullptr, out, size);
      expect_apart(matrix_a, size_a, vectors.y, size, "a");
      ExplicitKron<T>(matrix_a, rows_a, columns_a, vectors.x, rows_b, columns_b).write(vectors.y);
    });
  });
}
