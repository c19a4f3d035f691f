// A product with a Kronecker-sparse matrix whose values are packed for this call only.
#pragma once

#include "engine/kron_sparse/plan.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// y = K x, with values (a, b, c, d), x (outer, columns, inner) and y (outer, rows, inner).
template <class T>
void multiply_once(const KronSparsePlan<T>& plan, const T* values, const T* x, T* y, Index outer,
                   Index inner) {
  static ThreadGains gains;
  const ThreadTeam team(plan.multiply_adds(outer, inner), gains);
  const auto packing = plan.packing(inner);
  thread_local Workspace workspace;  // kept, as new memory would take longer than to pack
  T* packed = static_cast<T*>(workspace.reserve(bytes_of<T>(plan.packed_elements(packing), 1)));
  plan.pack(packing, values, packed, team);
  plan.run({packed, x, y, outer, inner, T(1), false}, team);
}

}  // namespace batchkron
