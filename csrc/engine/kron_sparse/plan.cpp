#include "engine/kron_sparse/plan.hpp"

namespace batchkron {

template class KronSparsePlan<float>;
template class KronSparsePlan<double>;
template class KronSparsePlan<Complex<float>>;
template class KronSparsePlan<Complex<double>>;
template class KronSparse<float>;
template class KronSparse<double>;
template class KronSparse<Complex<float>>;
template class KronSparse<Complex<double>>;

}  // namespace batchkron
