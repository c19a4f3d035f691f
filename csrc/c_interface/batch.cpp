// Batch lists: bk_batch_*, and bk_gemm_batched.
#include <numeric>

#include "c_interface/calls.hpp"
#include "engine/batch/gemm.hpp"
#include "engine/batch/list_call.hpp"
#include "engine/batch/plan.hpp"

using namespace batchkron;
using namespace batchkron::c_interface;

namespace {

void expect_indices(const int64_t* indices, Index count, Index limit, const char* name) {
  if (!indices && count > 0) refuse(std::string(name) + " is null");
  for (Index i = 0; i < count; ++i)
    if (indices[i] < 0 || indices[i] >= limit)
      refuse(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(indices[i]) +
             "; expected 0 to " + std::to_string(limit - 1));
}

// A list after all its numbers but ids, inputs and outputs have been checked, and its pools as
// matrices (K, C). Of transposed ones, `copies` hold them.
template <class T>
struct Given {
  BatchShape shape;
  std::vector<Index> counts;  // of matrices, by mode
  std::vector<const T*> pools;
  std::vector<std::vector<T>> copies;

  Given(const bk_batch_list* list, const void* const* matrices) {
    expect(list != nullptr, "the list is null");
    expect_size(list->num_modes, "num_modes", 1);
    expect(list->rows && list->columns && list->pool_counts,
           "rows, columns or pool_counts is null");
    expect_size(list->num_inputs, "num_inputs");
    expect_size(list->num_outputs, "num_outputs");
    expect_size(list->count, "count");
    const Index modes = list->num_modes;
    counts.assign(list->pool_counts, list->pool_counts + modes);
    for (Index k = 0; k < modes; ++k) {
      expect_size(list->rows[k], "the number of rows of a matrix", 1);
      expect_size(list->columns[k], "the number of columns of a matrix", 1);
      expect_size(counts[std::size_t(k)], "the number of matrices of a pool");
      expect(counts[std::size_t(k)] <= ListCall<T>::kMaxMatrices, "a pool has 2^31 matrices or more");
    }
    expect(list->num_inputs <= ListCall<T>::kMaxMatrices, "num_inputs is 2^31 or more");
    shape = {{list->columns, list->columns + modes},
             {list->rows, list->rows + modes},
             list->num_inputs,
             list->num_outputs};
    read(matrices, list->transposed != 0);
  }

  void read(const void* const* matrices, bool transposed) {
    pools.clear();
    copies.clear();
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const Index K = shape.outputs[k], C = shape.inputs[k];
      const Index size = checked_product({counts[k], K, C});
      const T* data = array_of<T>(matrices, Index(k), size, "pools");
      if (transposed) {
        std::vector<T> copy;
        copy.reserve(std::size_t(size));
        for (Index i = 0; i < counts[k]; ++i)
          for (Index row = 0; row < K; ++row)
            for (Index c = 0; c < C; ++c) copy.push_back(data[(i * C + c) * K + row]);
        copies.push_back(std::move(copy));
        data = copies.back().data();
      }
      pools.push_back(data);
    }
  }

  PoolView<T> view(std::size_t k) const {
    return {pools[k], 1, counts[k], shape.outputs[k], shape.inputs[k]};
  }

  // [matrix of a mode]: whether it is exactly the identity.
  std::vector<bool> identities(std::size_t k) const {
    const Index n = shape.outputs[k];
    std::vector<bool> found(std::size_t(counts[k]), n == shape.inputs[k]);
    if (n != shape.inputs[k]) return found;
    for (Index i = 0; i < counts[k]; ++i) {
      const T* matrix = pools[k] + i * n * n;
      for (Index entry = 0; entry < n * n; ++entry)
        if (!(matrix[entry] == T(entry / n == entry % n))) found[std::size_t(i)] = false;
    }
    return found;
  }
};

template <class T>
class Batch {
 public:
  Batch(const bk_batch_list* list, const void* const* pools, const void* weights, int32_t flags)
      : given_(list, pools), transposed_(list->transposed != 0) {
    const Index count = list->count, modes = list->num_modes;
    expect_indices(list->inputs, count, list->num_inputs, "inputs");
    expect_indices(list->outputs, count, list->num_outputs, "outputs");
    const Index numbers = checked_product({count, modes});
    expect(list->ids || count == 0, "ids is null");
    for (Index i = 0; i < numbers; ++i)
      if (list->ids[i] < 0 || list->ids[i] >= given_.counts[std::size_t(i % modes)])
        refuse("ids[" + std::to_string(i / modes) + ", " + std::to_string(i % modes) + "] is " +
               std::to_string(list->ids[i]) + "; expected 0 to " +
               std::to_string(given_.counts[std::size_t(i % modes)] - 1));
    expect((flags & ~(BK_ATOMIC | BK_KEEP_IDENTITIES)) == 0, "flags has an unknown one");
    for (std::size_t k = 0; k < given_.counts.size(); ++k) {
      std::vector<bool> used(std::size_t(given_.counts[k]), false);
      for (Index b = 0; b < count; ++b) used[std::size_t(list->ids[b * modes + Index(k)])] = true;
      skipped_.push_back(given_.identities(k));
      for (std::size_t i = 0; i < used.size(); ++i)
        if (!used[i] || flags & BK_KEEP_IDENTITIES) skipped_[k][i] = false;
    }
    const BatchList unsorted{count, list->ids, list->inputs, list->outputs, skipped_, {}};
    plan_ = std::make_unique<BatchPlan<T>>(given_.shape, sort_batch(given_.shape, unsorted), 1,
                                           flags & BK_ATOMIC ? Accumulation::atomic
                                                              : Accumulation::owner);
    set(array_of<T>(weights, 0, "weights"));
  }

  void set_values(const void* const* pools, const void* weights) {
    const std::lock_guard<std::mutex> first(turn_);
    const std::unique_lock<std::shared_mutex> alone(values_);
    Given<T> other = given_;
    other.read(pools, transposed_);
    for (std::size_t k = 0; k < skipped_.size(); ++k) {
      const std::vector<bool> identities = other.identities(k);
      for (std::size_t i = 0; i < identities.size(); ++i)
        if (skipped_[k][i] && !identities[i])
          refuse("pools[" + std::to_string(k) + "][" + std::to_string(i) +
                 "] was the identity and is skipped, but is not the identity any more: create the plan "
                 "with BK_KEEP_IDENTITIES");
    }
    const T* numbers = array_of<T>(weights, 0, "weights");
    given_ = std::move(other);
    set(numbers);
  }

  void run(Index outer, Index inner, const void* x, const void* alpha, const void* beta,
           void* y) const {
    const auto together = next_of(turn_, values_);
    expect_size(outer, "outer");
    expect_size(inner, "inner");
    const Vectors<T> vectors(x, checked_product({outer, plan_->input_elements(), inner}), alpha, beta,
                             y, checked_product({outer, plan_->output_elements(), inner}));
    const bool accumulates = vectors.scale();
    plan_->run(vectors.x, vectors.y, outer, inner, vectors.alpha, accumulates);
  }

 private:
  void set(const T* weights) {
    for (std::size_t k = 0; k < given_.counts.size(); ++k) plan_->set_pool(k, given_.view(k));
    if (weights)
      plan_->set_weights(weights, 1);
    else
      plan_->set_unit_weights();
    given_.pools.clear();
    given_.copies.clear();  // the plan has its own
  }

  Given<T> given_;
  bool transposed_;
  std::vector<std::vector<bool>> skipped_;
  std::unique_ptr<BatchPlan<T>> plan_;
  mutable std::mutex turn_;  // held while one waits for `values_`, so that runs do not pass by
  mutable std::shared_mutex values_;
};

template <class T>
void batched_gemm_of(const GemmShape& shape, Index count_a, const void* a, const void* b,
                     const void* alpha, const void* beta, void* c) {
  const Index size_a = checked_product({count_a, shape.m, shape.k});
  const Index size_b = checked_product({shape.count_b, shape.k, shape.n});
  const Index size_c = checked_product({shape.count_c, shape.m, shape.n});
  const T* matrices_a = array_of<T>(a, size_a, "a");
  Vectors<T>(a, size_a, nullptr, nullptr, c, size_c);  // c may overlap neither
  const Vectors<T> vectors(b, size_b, alpha, beta, c, size_c);
  kernels();  // throws for an unknown BATCHKRON_ISA
  if (!vectors.scale()) std::fill_n(vectors.y, size_c, T{});
  batched_gemm(shape, matrices_a, vectors.x, vectors.alpha, vectors.y);
}

}  // namespace

struct bk_batch : AnyPlan<Batch> {};

bk_status bk_batch_create(bk_batch** batch, bk_dtype dtype, const bk_batch_list* list,
                          const void* const* pools, const void* weights, int32_t flags) {
  return create(batch, dtype, [&](auto zero) {
    return std::make_unique<Batch<decltype(zero)>>(list, pools, weights, flags);
  });
}

bk_status bk_batch_set_values(bk_batch* batch, const void* const* pools, const void* weights) {
  return with_plan(batch, [&](auto& plan) { plan.set_values(pools, weights); });
}

bk_status bk_batch_run(const bk_batch* batch, int64_t outer, int64_t inner, const void* x,
                       const void* alpha, const void* beta, void* y) {
  return with_plan(batch, [&](const auto& plan) { plan.run(outer, inner, x, alpha, beta, y); });
}

void bk_batch_destroy(bk_batch* batch) { delete batch; }

bk_status bk_batch_once(bk_dtype dtype, const bk_batch_list* list, const void* const* pools,
                        const void* weights, int64_t outer, const void* x, void* y) {
  return guarded([&] {
    with_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      const Given<T> given(list, pools);
      expect_size(outer, "outer");
      expect((list->ids && list->inputs && list->outputs) || list->count == 0,
             "ids, inputs or outputs is null");
      ListCall<T> call;
      for (std::size_t k = 0; k < given.counts.size(); ++k)
        call.add_pool(given.pools[k], given.counts[k], given.shape.outputs[k], given.shape.inputs[k]);
      call.shape.num_inputs = list->num_inputs;
      call.shape.num_outputs = list->num_outputs;
      call.list.count = list->count;
      call.list.ids = list->ids;
      call.list.inputs = list->inputs;
      call.list.outputs = list->outputs;
      call.weights = array_of<T>(weights, 0, "weights");
      call.outer = outer;
      const Vectors<T> vectors(
          x, checked_product({outer, list->num_inputs, given.shape.input_size()}), nullptr, nullptr,
          y, checked_product({outer, list->num_outputs, given.shape.output_size()}));
      const Index outputs = outer * list->num_outputs * given.shape.output_size();
      for (std::size_t k = 0; k < given.counts.size(); ++k)
        if (!list->transposed)
          expect_apart(given.pools[k], given.counts[k] * given.shape.outputs[k] * given.shape.inputs[k],
                       vectors.y, outputs, "a pool");
      if (weights) expect_apart(call.weights, list->count, vectors.y, outputs, "weights");
      call.x = vectors.x;
      call.y = vectors.y;
      if (!call.run([](double) {})) refuse("a number of ids, inputs or outputs is out of range");
    });
  });
}

bk_status bk_gemm_batched(bk_dtype dtype, int64_t m, int64_t n, int64_t k, int32_t transpose_b,
                          int64_t count, const int64_t* a_ids, const int64_t* b_ids,
                          const int64_t* c_ids, int64_t count_a, int64_t count_b, int64_t count_c,
                          const void* a, const void* b, const void* alpha, const void* beta,
                          void* c) {
  return guarded([&] {
    for (const int64_t size : {m, n, k, count, count_a, count_b, count_c})
      expect_size(size, "a size or a count");
    expect_indices(a_ids, count, count_a, "a_ids");
    expect_indices(b_ids, count, count_b, "b_ids");
    expect_indices(c_ids, count, count_c, "c_ids");
    std::vector<Index> order(std::size_t(count), 0);
    std::iota(order.begin(), order.end(), Index(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](Index i, Index j) { return c_ids[i] < c_ids[j]; });
    GemmShape shape{m, n, k, transpose_b != 0, count_b, count_c, {}, {}, {}};
    shape.starts.assign(std::size_t(count_c) + 1, 0);
    for (const Index i : order) {
      shape.a_ids.push_back(a_ids[i]);
      shape.b_ids.push_back(b_ids[i]);
      ++shape.starts[std::size_t(c_ids[i]) + 1];
    }
    std::partial_sum(shape.starts.begin(), shape.starts.end(), shape.starts.begin());
    with_dtype(dtype, [&](auto zero) {
      batched_gemm_of<decltype(zero)>(shape, count_a, a, b, alpha, beta, c);
    });
  });
}
