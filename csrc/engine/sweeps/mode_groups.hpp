// Neighbouring modes of a block that one kernel of sweeps takes together.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/steps.hpp"
#include "simd/sweeps/table.hpp"

namespace batchkron {

// Neighbouring modes of equal size n that one kernel takes: blocks are (L, n, ..., n, R). C is n, or
// the size of a single mode in blocks that are read.
template <class T>
struct ModeGroup {
  Index first, modes;
  Index L, n, C, R;
  SweepKernel<T> kernel;
};

// Divides all modes into groups, from the last mode to the first, each with as many modes as a
// kernel takes together; returns them in ascending order. This throws for an unknown
// BATCHKRON_ISA, so it is called before any parallel region, out of which nothing may throw.
// Vectors are `inner` at once. Blocks have `sizes`, those that are read have `given`.
template <class T>
std::vector<ModeGroup<T>> mode_groups(const std::vector<Index>& sizes,
                                      const std::vector<Index>& given, Index inner) {
  std::vector<ModeGroup<T>> groups;
  const FindSweepKernel<T> find = sweep_kernels<T>();
  const bool plain = inner > 1 || without("tails");
  Index L = checked_product(sizes), R = inner;
  for (Index stop = Index(sizes.size()); stop > 0;) {
    const Index n = sizes[std::size_t(stop - 1)], C = given[std::size_t(stop - 1)];
    Index alike = 1;
    while (n == C && alike < std::min<Index>(stop, kMaxSweepModes) &&
           sizes[std::size_t(stop - alike - 1)] == n && given[std::size_t(stop - alike - 1)] == n)
      ++alike;
    for (Index modes = alike;; --modes) {
      Index rows = 1;
      for (Index i = 0; i < modes; ++i) rows *= n;
      const SweepKernel<T> kernel = find(L / rows, n, C, int(modes), R, plain);
      if (!kernel.add_edges) continue;
      stop -= modes;
      L /= rows;
      groups.push_back({stop, modes, L, n, C, R, kernel});
      R *= rows;
      break;
    }
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

template <class T>
const ModeGroup<T>& group_of(const std::vector<ModeGroup<T>>& groups, Index mode) {
  auto group = groups.begin();
  while (group->first + group->modes <= mode) ++group;
  return *group;
}

// The kernel for several vectors at once of the mode of a group.
template <class T>
SweepKernel<T> plain_kernel(const ModeGroup<T>& group) {
  return sweep_kernels<T>()(1, group.n, group.C, 1, 1, true);
}

}  // namespace batchkron
