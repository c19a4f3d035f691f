#include "engine/vector_sum.hpp"

#include <algorithm>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {

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

template void sum_vectors(float*, const float* const*, const float*, Index, Index);
template void sum_vectors(double*, const double* const*, const double*, Index, Index);

}  // namespace batchkron
