// The tables of the kernels of batch lists and of sums over edges for one instruction set. Both are
// in one file because compilers decide by all that a file holds what they inline, and so the speed
// would change.
#include "simd/batch/lane_kernels.hpp"
#include "simd/batch/pair_kernels.hpp"
#include "simd/batch/tensor_kernels.hpp"
#include "simd/batch/vector_kernels.hpp"
#include "simd/segmented/kernels.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
constexpr BatchKernels<T> kernels_of() {
  return {lanes::kLanes<T>,
          lanes::add_products<T>,
          lanes::add_lanes<T>,
          vectors::add_products<T>,
          {pairs::add_products<T, 3>, pairs::add_products<T, 4>, pairs::add_products<T, 5>,
           pairs::add_products<T, 6>, pairs::add_products<T, 7>, pairs::add_products<T, 8>},
          {tensors::kernel<T, 2, 2>(), tensors::kernel<T, 2, 3>(), tensors::kernel<T, 2, 4>(),
           tensors::kernel<T, 2, 5>(), tensors::kernel<T, 2, 6>()},
          tensors::kernel<T, 4, 2>()};
}

extern const BatchKernelTable batch_table = {
    kernels_of<float>(),
    kernels_of<double>(),
    {segments::kernels_of<float>(),
     segments::kernels_of<double>(),
     segments::kernels_of<Complex<float>>(),
     segments::kernels_of<Complex<double>>()},
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
