// The batch kernels for one instruction set; compiled like kernels.cpp.
#include "engine/batch_kernels.hpp"
#include "engine/segment_kernels.hpp"
#include "isa/tables.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

extern const BatchKernelTable batch_table = {
    lanes::batch_kernels_of<float>(),
    lanes::batch_kernels_of<double>(),
    segments::kernels_of<float>(),
    segments::kernels_of<double>(),
    segments::kernels_of<Complex<float>>(),
    segments::kernels_of<Complex<double>>(),
};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
