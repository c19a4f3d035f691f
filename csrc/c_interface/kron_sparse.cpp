// Kronecker-sparse matrices: bk_kron_sparse_*.
#include "c_interface/calls.hpp"
#include "engine/kron_sparse/plan.hpp"

using namespace batchkron;
using namespace batchkron::c_interface;

namespace {

template <class T>
class Sparse {
 public:
  Sparse(const SparseShape& shape, const void* values)
      : size_(checked_product({shape.a, shape.b, shape.c, shape.d})), matrix_(shape) {
    set_values(values);
  }

  void set_values(const void* values) {
    const T* given = array_of<T>(values, size_, "values");
    const std::lock_guard<std::mutex> first(turn_);
    const std::unique_lock<std::shared_mutex> alone(mutex_);
    values_.assign(given, given + size_);
    matrix_.forget();
  }

  void run(Index outer, Index inner, const void* x, const void* alpha, const void* beta, void* y) {
    expect_size(outer, "outer");
    expect_size(inner, "inner");
    const Vectors<T> vectors(
        x, checked_product({outer, matrix_.plan().columns(), inner}), alpha, beta, y,
        checked_product({outer, matrix_.plan().rows(), inner}));
    const auto together = next_of(turn_, mutex_);
    const T* packed = nullptr;
    {
      const std::lock_guard<std::mutex> one(packing_);
      packed = matrix_.pack(values_.data(), inner);
    }
    const bool accumulates = vectors.scale();
    matrix_.run({packed, vectors.x, vectors.y, outer, inner, vectors.alpha, accumulates});
  }

 private:
  Index size_;
  KronSparse<T> matrix_;
  std::vector<T> values_;
  std::mutex turn_;          // held while one waits for `mutex_`, so that runs do not pass by
  std::shared_mutex mutex_;  // of the values: runs share it
  std::mutex packing_;
};

}  // namespace

struct bk_kron_sparse : AnyPlan<Sparse> {};

bk_status bk_kron_sparse_create(bk_kron_sparse** matrix, bk_dtype dtype, int64_t a, int64_t b,
                                int64_t c, int64_t d, const void* values) {
  return create(matrix, dtype, [&](auto zero) {
    for (const int64_t size : {a, b, c, d}) expect_size(size, "a size of the pattern");
    return std::make_unique<Sparse<decltype(zero)>>(SparseShape{a, b, c, d}, values);
  });
}

bk_status bk_kron_sparse_set_values(bk_kron_sparse* matrix, const void* values) {
  return with_plan(matrix, [&](auto& plan) { plan.set_values(values); });
}

bk_status bk_kron_sparse_run(const bk_kron_sparse* matrix, int64_t outer, int64_t inner,
                             const void* x, const void* alpha, const void* beta, void* y) {
  return with_plan(matrix, [&](auto& plan) { plan.run(outer, inner, x, alpha, beta, y); });
}

void bk_kron_sparse_destroy(bk_kron_sparse* matrix) { delete matrix; }
