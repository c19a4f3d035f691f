// c[c_ids[i]] += alpha * a[a_ids[i]] b[b_ids[i]] (or b transposed) for many small matrices.
#pragma once

#include <vector>

#include "engine/steps.hpp"

namespace batchkron {

// a is (any, m, k); b is (count_b, k, n), or (count_b, n, k) if transpose_b; c is (count_c, m, n);
// all contiguous. Products are sorted by output: those of output i are starts[i] ...
// starts[i + 1] - 1, where starts has count_c + 1 entries.
struct GemmShape {
  Index m, n, k;
  bool transpose_b;
  Index count_b, count_c;
  std::vector<Index> a_ids, b_ids, starts;
};

// Adds to c, which therefore holds beta * c or zeros on entry; c does not alias a or b. The kernel
// of segmented multiplies takes an output as a node and its products as edges, so that sums stay in
// registers over all of them. One thread computes an output: the bits are the same for any number
// of threads.
template <class T>
void batched_gemm(const GemmShape& shape, const T* a, const T* b, T alpha, T* c);

}  // namespace batchkron
