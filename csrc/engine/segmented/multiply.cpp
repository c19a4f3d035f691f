#include "engine/segmented/multiply.hpp"

namespace batchkron {

template <class T>
SegmentedModeMultiply<T>::SegmentedModeMultiply(SegmentShape shape)
    : shape_(std::move(shape)),
      flat_(find_flat()),
      packs_(!flat_.add_edges && decide_packing()),
      stride_(row_stride()),
      edges_(list_edges()) {
  input_elements();
  output_elements();
}

template <class T>
void SegmentedModeMultiply<T>::set_values(const T* matrices, Index count) {
  const Index C = shape_.C, K = shape_.K;
  if (flat_.add_edges) return set_patterns(matrices, count);
  matrices_.resize(std::size_t(count * C * K));
  for (Index i = 0; i < count; ++i)
    for (Index c = 0; c < C; ++c)
      for (Index k = 0; k < K; ++k)
        matrices_[i * C * K + c * K + k] = matrices[i * C * K + k * C + c];
}

template <class T>
void SegmentedModeMultiply<T>::run(const T* x, T* y, T alpha, bool accumulate) const {
  if (output_elements() == 0) return;
  kernels();  // throws for an unknown BATCHKRON_ISA: outside of the parallel region, as it must
  const ThreadTeam team(multiply_adds(), gain_);
  const Index packed =
      packs_ ? checked_product({shape_.num_inputs, shape_.C, stride_}) : copied_elements();
  const Index sums = 2 * sums_elements();
  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(
      workspace.reserve(bytes_of<T>(padded<T>(packed), 1) + bytes_of<T>(sums, team.threads())));
  T* thread_sums = scratch + padded<T>(packed);
  if (flat_.add_edges) copy_last(x, scratch);
  if (packs_)
    team.run(shape_.num_inputs, [&](Index begin, Index end, int) {
      for (Index i = begin; i < end; ++i) pack_block(x, i, scratch);
    });
  team.run(shape_.num_outputs, [&](Index begin, Index end, int thread) {
    T* mine = thread_sums + sums * thread;
    for (Index node = begin; node < end; ++node) {
      if (flat_.add_edges)
        add_flat(x, scratch, node, mine, y, alpha, accumulate);
      else
        add_node(packs_ ? scratch : x, node, mine, y, alpha, accumulate);
    }
  });
}

template class SegmentedModeMultiply<float>;
template class SegmentedModeMultiply<double>;
template class SegmentedModeMultiply<Complex<float>>;
template class SegmentedModeMultiply<Complex<double>>;

}  // namespace batchkron
