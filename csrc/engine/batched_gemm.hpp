// c[c_ids[i]] += alpha * a[a_ids[i]] b[b_ids[i]] (or b transposed) for many small matrices.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/pack.hpp"
#include "engine/steps.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// a is (., m, k); b is (., k, n), or (., n, k) if transpose_b; c is (count_c, m, n); contiguous.
// `order` lists the products sorted by output, starts (count_c + 1,) where each output's begin.
struct GemmShape {
  Index m, n, k;
  bool transpose_b;
  Index count_c;
  std::vector<Index> order, starts;
};

// c must hold beta * c or zeros on entry. One thread owns an output: bitwise repeatable.
template <class T>
void batched_gemm(const GemmShape& shape, const Index* a_ids, const Index* b_ids, const T* a,
                  const T* b, T alpha, T* c) {
  const Index m = shape.m, n = shape.n, k = shape.k;
  kernels();  // throws for an unknown instruction set, which no thread of a region may
  const int threads = threads_for(double(shape.order.size()) * double(m) * double(n) * double(k));
  const Index packed = packed_size<T>(n, k);
  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(workspace.reserve(bytes_of<T>(packed, threads)));
  const auto kernel = mode_kernels<T>().pick(true, k, n);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (Index output = 0; output < shape.count_c; ++output) {
    T* f = scratch + packed * thread_index();
    for (Index i = shape.starts[output]; i < shape.starts[output + 1]; ++i) {
      const Index product = shape.order[i];
      const T* factor = b + b_ids[product] * k * n;
      pack(shape.transpose_b ? FactorView<T>{factor, n, k, k, 1} : FactorView<T>{factor, n, k, 1, n},
           f);
      kernel({c + output * m * n, a + a_ids[product] * m * k, f, k, n, 1, 0, m, 0, 1, alpha});
    }
  }
}

}  // namespace batchkron
