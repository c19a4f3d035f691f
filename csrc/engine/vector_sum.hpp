// A linear combination of vectors in one pass over memory.
#pragma once

#include <algorithm>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {

// Reading an element counts as so many multiply-adds when the number of threads is chosen: memory
// and not arithmetic takes the time. Chosen by hand.
constexpr double kWorkPerElement = 24;

// y = sum over k of factors[k] * vectors[k] for `count` vectors of `size` elements (contract:
// VectorSum). The result has the same bits for any number of threads.
template <class T>
void sum_vectors(T* y, const T* const* vectors, const T* factors, Index count, Index size) {
  const auto kernel = vector_sum_kernel<T>();
  static ThreadGains gains;
  const ThreadTeam team(kWorkPerElement * double(size) * double(count), gains);
  constexpr Index kLine = 64 / Index(sizeof(T));  // elements of a cache line
  team.run((size + kLine - 1) / kLine, [&](Index begin, Index end, int) {
    kernel({y, vectors, factors, count, begin * kLine, std::min(end * kLine, size)});
  });
}

}  // namespace batchkron
