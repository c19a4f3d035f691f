// batchkron for C++17: the plans of batchkron.h as objects, and its errors as exceptions.
#ifndef BATCHKRON_BATCHKRON_HPP
#define BATCHKRON_BATCHKRON_HPP

#include <complex>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "batchkron/batchkron.h"

namespace bk {

class Error : public std::runtime_error {
 public:
  Error(bk_status status, const std::string& text) : std::runtime_error(text), status(status) {}
  const bk_status status;
};

inline void check(bk_status status) {
  if (status != BK_OK) throw Error(status, bk_last_error());
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> { static constexpr bk_dtype value = BK_F32; };
template <>
struct dtype_of<double> { static constexpr bk_dtype value = BK_F64; };
template <>
struct dtype_of<std::complex<float>> { static constexpr bk_dtype value = BK_C64; };
template <>
struct dtype_of<std::complex<double>> { static constexpr bk_dtype value = BK_C128; };

namespace detail {
struct Destroy {
  void operator()(bk_kron* plan) const { bk_kron_destroy(plan); }
  void operator()(bk_batch* plan) const { bk_batch_destroy(plan); }
  void operator()(bk_sweeps* plan) const { bk_sweeps_destroy(plan); }
  void operator()(bk_kron_sparse* plan) const { bk_kron_sparse_destroy(plan); }
};
template <class T>
std::vector<const void*> untyped(const std::vector<const T*>& arrays) {
  return {arrays.begin(), arrays.end()};
}
}  // namespace detail

// y (outer, prod rows, inner) = alpha (F_1 x ... x F_n) x (outer, prod columns, inner) + beta y.
template <class T>
class Kron {
 public:
  Kron(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
       std::int64_t outer = 1, std::int64_t inner = 1)
      : count_(rows.size()) {
    if (columns.size() != count_) throw Error(BK_INVALID, "there are other rows than columns");
    bk_kron* plan = nullptr;
    check(bk_kron_create(&plan, dtype_of<T>::value, std::int32_t(count_), rows.data(),
                         columns.data(), outer, inner));
    plan_.reset(plan);
  }

  // transposed: the memory of the factors holds their transposes, as column-major matrices do.
  void run(const std::vector<const T*>& factors, const T* x, T* y, T alpha = T(1), T beta = T(0),
           bool transposed = false) const {
    if (factors.size() != count_) throw Error(BK_INVALID, "the plan is of another number of factors");
    check(bk_kron_run(plan_.get(), detail::untyped(factors).data(), transposed, x, &alpha, &beta, y));
  }

 private:
  std::size_t count_;
  std::unique_ptr<bk_kron, detail::Destroy> plan_;
};

// The batch list of bk_batch_list, with the matrices of each pool one behind the other.
template <class T>
class Batch {
 public:
  explicit Batch(const bk_batch_list& list, const std::vector<const T*>& pools,
                 const T* weights = nullptr, std::int32_t flags = 0)
      : count_(pools.size()) {
    if (list.num_modes < 0 || count_ != std::size_t(list.num_modes))
      throw Error(BK_INVALID, "there is not one pool for each mode");
    bk_batch* plan = nullptr;
    check(bk_batch_create(&plan, dtype_of<T>::value, &list, detail::untyped(pools).data(), weights,
                          flags));
    plan_.reset(plan);
  }

  void set_values(const std::vector<const T*>& pools, const T* weights = nullptr) {
    if (pools.size() != count_) throw Error(BK_INVALID, "there is not one pool for each mode");
    check(bk_batch_set_values(plan_.get(), detail::untyped(pools).data(), weights));
  }

  void run(const T* x, T* y, T alpha = T(1), T beta = T(0), std::int64_t outer = 1,
           std::int64_t inner = 1) const {
    check(bk_batch_run(plan_.get(), outer, inner, x, &alpha, &beta, y));
  }

 private:
  std::size_t count_;
  std::unique_ptr<bk_batch, detail::Destroy> plan_;
};

// A sum of Kronecker products on a sparse grid, as steps of sweeps: see bk_sweeps_create.
template <class T>
class Sweeps {
 public:
  Sweeps(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& vector_starts,
         const std::vector<std::int64_t>& vector_counts, const std::vector<bk_sweep_step>& steps,
         const std::vector<const T*>& matrices) {
    for (const bk_sweep_step& step : steps) count_ += std::size_t(step.num_parts);
    expect_parts(matrices);
    if (vector_counts.size() != vector_starts.size())
      throw Error(BK_INVALID, "there are other vector_counts than vector_starts");
    bk_sweeps* plan = nullptr;
    check(bk_sweeps_create(&plan, dtype_of<T>::value, std::int32_t(sizes.size()), sizes.data(),
                           std::int64_t(vector_starts.size()), vector_starts.data(),
                           vector_counts.data(), std::int64_t(steps.size()), steps.data(),
                           detail::untyped(matrices).data()));
    plan_.reset(plan);
  }

  void set_values(const std::vector<const T*>& matrices) {
    expect_parts(matrices);
    check(bk_sweeps_set_values(plan_.get(), detail::untyped(matrices).data()));
  }

  void run(const T* x, T* y, T alpha = T(1), T beta = T(0), std::int64_t outer = 1,
           std::int64_t inner = 1) const {
    check(bk_sweeps_run(plan_.get(), outer, inner, x, &alpha, &beta, y));
  }

 private:
  void expect_parts(const std::vector<const T*>& matrices) const {
    if (matrices.size() != count_)
      throw Error(BK_INVALID, "there is not one array of matrices for each part");
  }

  std::size_t count_ = 0;
  std::unique_ptr<bk_sweeps, detail::Destroy> plan_;
};

// K[(i b + k) d + j, (i c + l) d + j] = values[i, k, l, j].
template <class T>
class KronSparse {
 public:
  KronSparse(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, const T* values) {
    bk_kron_sparse* matrix = nullptr;
    check(bk_kron_sparse_create(&matrix, dtype_of<T>::value, a, b, c, d, values));
    matrix_.reset(matrix);
  }

  void set_values(const T* values) { check(bk_kron_sparse_set_values(matrix_.get(), values)); }

  void run(const T* x, T* y, T alpha = T(1), T beta = T(0), std::int64_t outer = 1,
           std::int64_t inner = 1) const {
    check(bk_kron_sparse_run(matrix_.get(), outer, inner, x, &alpha, &beta, y));
  }

 private:
  std::unique_ptr<bk_kron_sparse, detail::Destroy> matrix_;
};

}  // namespace bk

#endif
