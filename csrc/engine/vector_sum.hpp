// A linear combination of vectors in one pass over memory.
#pragma once

#include <algorithm>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {

// y = sum over k of factors[k] * vectors[k], as VectorSum has it. No element depends on the number
// of threads.
template <class T>
void sum_vectors(T* y, const T* const* vectors, const T* factors, Index count, Index size) {
  const auto kernel = vector_sum_kernel<T>();
  constexpr double kWorkPerElement = 24;  // an element's memory access in multiply-adds
  const int threads = threads_for(kWorkPerElement * double(size) * double(count));
  if (threads == 1) return kernel({y, vectors, factors, count, 0, size});
  constexpr Index kLine = 64 / Index(sizeof(T));  // of a cache: written by one thread
  const Index part = (size / threads / kLine + 1) * kLine;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Index t = 0; t < threads; ++t)
    kernel({y, vectors, factors, count, std::min(t * part, size), std::min((t + 1) * part, size)});
}

}  // namespace batchkron
