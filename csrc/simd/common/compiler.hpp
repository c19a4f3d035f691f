// Hints to the compiler that the language does not have.
#pragma once

#define BATCHKRON_INLINE inline __attribute__((always_inline))

// Stands before loops over an array of vectors. GCC keeps such an array in registers only if all
// loops over it are unrolled early; without this GCC 12 copies it to memory and back.
#define BATCHKRON_UNROLL _Pragma("GCC unroll 16")

namespace batchkron {

// Whether these kernels are compiled for processors that the build is not for (is_spare in
// CMakeLists.txt). They do the same sums by fewer kernels that know a size at compile time.
#ifdef BATCHKRON_IS_SPARE
constexpr bool kIsSpare = true;
#else
constexpr bool kIsSpare = false;
#endif

// The size that a kernel for n is compiled with; 0: any.
static constexpr int known_size(int n) { return kIsSpare ? 0 : n; }

}  // namespace batchkron
