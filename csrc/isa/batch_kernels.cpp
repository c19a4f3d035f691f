// The batch kernels for one instruction set; compiled like kernels.cpp.
#include "engine/batch_kernels.hpp"
#include "isa/tables.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

extern const BatchKernelTable batch_table = {lanes::batch_kernels_of<float>(),
                                             lanes::batch_kernels_of<double>()};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
