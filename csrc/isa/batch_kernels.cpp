// The batch kernels for one instruction set; compiled like kernels.cpp.
#include "engine/batch_kernels.hpp"
#include "engine/pair_kernels.hpp"
#include "engine/segment_kernels.hpp"
#include "isa/tables.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T>
constexpr BatchKernels<T> kernels_of() {
  return {lanes::kLanes<T>,
          lanes::add_products<T>,
          lanes::add_lanes<T>,
          {pairs::add_products<T, 4>, pairs::add_products<T, 5>, pairs::add_products<T, 6>,
           pairs::add_products<T, 7>, pairs::add_products<T, 8>}};
}

extern const BatchKernelTable batch_table = {
    kernels_of<float>(),
    kernels_of<double>(),
    segments::kernels_of<float>(),
    segments::kernels_of<double>(),
    segments::kernels_of<Complex<float>>(),
    segments::kernels_of<Complex<double>>(),
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
