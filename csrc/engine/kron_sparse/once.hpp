// A product with a Kronecker-sparse matrix whose values are packed for this call only.
#pragma once

#include "engine/kron_sparse/plan.hpp"

namespace batchkron {

// y = K x, with values (a, b, c, d), x (outer, columns, inner) and y (outer, rows, inner).
template <class T>
void multiply_once(const KronSparsePlan<T>& plan, const T* values, const T* x, T* y, Index outer,
                   Index inner);

}  // namespace batchkron
