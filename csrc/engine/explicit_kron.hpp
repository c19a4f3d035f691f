// The Kronecker product of two matrices, written out.
#pragma once

#include "engine/threads.hpp"

namespace batchkron {

// out[i * rows_b + k, j * columns_b + l] = a[i, j] * b[k, l]; all row-major and contiguous.
template <class T>
void explicit_kron(const T* a, Index rows_a, Index columns_a, const T* b, Index rows_b,
                   Index columns_b, T* out) {
  const Index rows = rows_a * rows_b, columns = columns_a * columns_b;
  const int threads = threads_for(double(rows) * double(columns));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
  for (Index row = 0; row < rows; ++row) {
    const T* a_row = a + row / rows_b * columns_a;
    const T* b_row = b + row % rows_b * columns_b;
    T* target = out + row * columns;
    for (Index j = 0; j < columns_a; ++j, target += columns_b)
      for (Index l = 0; l < columns_b; ++l) target[l] = a_row[j] * b_row[l];
  }
}

}  // namespace batchkron
