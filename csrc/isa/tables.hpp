// The kernel tables that exist in this build.
#pragma once

#include "engine/sweep_kernel_table.hpp"

namespace batchkron {
namespace baseline {
extern const KernelTable table;
extern const BatchKernelTable batch_table;
extern const SweepKernelTable sweep_table;
}
#ifdef BATCHKRON_X86
namespace avx2 {
extern const KernelTable table;
extern const BatchKernelTable batch_table;
extern const SweepKernelTable sweep_table;
}
namespace avx512 {
extern const KernelTable table;
extern const BatchKernelTable batch_table;
extern const SweepKernelTable sweep_table;
}
#endif
}  // namespace batchkron
