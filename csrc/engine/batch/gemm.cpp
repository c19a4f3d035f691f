#include "engine/batch/gemm.hpp"

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {
namespace {

// (count, n, k) -> (count, k, n).
template <class T>
void transpose_all(const GemmShape& shape, const T* b, T* transposed, const ThreadTeam& team) {
  const Index n = shape.n, k = shape.k;
  team.run(shape.count_b, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i)
      for (Index c = 0; c < k; ++c)
        for (Index j = 0; j < n; ++j) transposed[(i * k + c) * n + j] = b[(i * n + j) * k + c];
  });
}

}  // namespace

template <class T>
void batched_gemm(const GemmShape& shape, const T* a, const T* b, T alpha, T* c) {
  const Index m = shape.m, n = shape.n, k = shape.k, size = m * n;
  if (size == 0 || k == 0) return;
  kernels();  // throws for an unknown BATCHKRON_ISA: outside of the parallel region, as it must
  static ThreadGains gains;
  const ThreadTeam team(double(shape.a_ids.size()) * double(size) * double(k), gains);
  const Index transposed = shape.transpose_b ? checked_product({shape.count_b, k, n}) : 0;
  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(
      workspace.reserve(bytes_of<T>(transposed, 1) + bytes_of<T>(size, team.threads())));
  T* all_sums = scratch + transposed;
  if (shape.transpose_b) transpose_all(shape, b, scratch, team);
  const T* blocks = shape.transpose_b ? scratch : b;
  const auto add_to = [&](Index output, T* sums) {
    const Index begin = shape.starts[output], count = shape.starts[output + 1] - begin;
    if (count == 0) return;
    segment_kernels<T>().add_edges({sums, blocks, k * n, n, n, k, m, a, 1, k,
                                    shape.a_ids.data() + begin, shape.b_ids.data() + begin,
                                    count});
    T* target = c + output * size;
    for (Index i = 0; i < size; ++i) target[i] = multiply_add(target[i], sums[i], alpha);
  };
  team.run(shape.count_c, [&](Index begin, Index end, int thread) {
    for (Index output = begin; output < end; ++output) add_to(output, all_sums + size * thread);
  });
}

template void batched_gemm(const GemmShape&, const float*, const float*, float, float*);
template void batched_gemm(const GemmShape&, const double*, const double*, double, double*);
template void batched_gemm(const GemmShape&, const Complex<float>*, const Complex<float>*,
                           Complex<float>, Complex<float>*);
template void batched_gemm(const GemmShape&, const Complex<double>*, const Complex<double>*,
                           Complex<double>, Complex<double>*);

}  // namespace batchkron
