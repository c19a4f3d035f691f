#include "engine/interpolation/plan.hpp"

namespace batchkron {

template <class T>
InterpolationPlan<T>::InterpolationPlan(const std::vector<Index>& sizes,
                                        const SortedPoints<T>& points)
    : sizes_(sizes), modes_(Index(sizes.size())), count_(points.count) {
  strides_.assign(sizes.size(), 1);
  for (Index k = modes_ - 1; k > 0; --k) strides_[k - 1] = strides_[k] * sizes_[k];
  cells_ = checked_product(sizes_);
  weights_.assign(points.weights, points.weights + count_ * modes_ * kWeights);
  places_.assign(points.places, points.places + count_);
  choose_planes();
  set_corners(points.corners);
  scatter_rows_ = rows_of(table_modes(modes_ - 1 - owned_));
  gather_rows_ = rows_of(table_modes(modes_ - 1));
}

template <class T>
void InterpolationPlan<T>::scatter(const InterpolationCall<T, const T, T>& call) const {
  const ThreadTeam team(multiply_adds(Index(1) << call.power), scatter_gains_);
  const auto kernel = interpolation_kernels<T>().scatter[call.power];
  // With all products of weights in a table, a whole window adds the same numbers in the same
  // order as its planes do.
  if (team.threads() == 1 && modes_ - 1 <= kMaxTableModes) {
    for (Index plane = 0; plane < planes_; ++plane) clear(call, plane);
    kernel({list(0, count_, 0, nullptr, gather_rows_), call.points, call.point_step,
            call.vectors, call.grid, call.cell_step});
    return;
  }
  team.run(planes_, 1, [&](Index begin, Index end, int) {
    for (Index plane = begin; plane < end; ++plane) {
      clear(call, plane);
      visit_plane(plane, [&](Index first, Index last, const Index* digits) {
        kernel({list(first, last, owned_, digits, scatter_rows_), call.points, call.point_step,
                call.vectors, call.grid, call.cell_step});
      });
    }
  });
}

template <class T>
void InterpolationPlan<T>::gather(const InterpolationCall<T, T, const T>& call, T alpha,
                                  bool accumulate) const {
  const ThreadTeam team(multiply_adds(Index(1) << call.power), gather_gains_);
  const auto kernel = interpolation_kernels<T>().gather[call.power];
  const Index parts = (count_ + kGathered - 1) / kGathered;
  team.run(parts, 1, [&](Index begin, Index end, int) {
    for (Index part = begin; part < end; ++part) {
      const Index first = part * kGathered, last = std::min(first + kGathered, count_);
      kernel({list(first, last, 0, nullptr, gather_rows_), call.points, call.point_step,
              call.vectors, call.grid, call.cell_step, alpha, accumulate});
    }
  });
}

template class InterpolationPlan<float>;
template class InterpolationPlan<double>;

}  // namespace batchkron
