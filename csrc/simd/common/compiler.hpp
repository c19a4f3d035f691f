// What the compiler is told beyond the language.
#pragma once

#define BATCHKRON_INLINE inline __attribute__((always_inline))

// Before loops over an array of vectors: it lives in registers only if the loops over it are gone
// before the compiler looks.
#define BATCHKRON_UNROLL _Pragma("GCC unroll 16")
