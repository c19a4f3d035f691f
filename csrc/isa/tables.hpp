// The kernel tables that exist in this build.
#pragma once

#include "engine/kernel_table.hpp"

namespace batchkron {
namespace baseline {
extern const KernelTable table;
}
#ifdef BATCHKRON_X86
namespace avx2 {
extern const KernelTable table;
}
namespace avx512 {
extern const KernelTable table;
}
#endif
}  // namespace batchkron
