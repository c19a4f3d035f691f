// Hints to the compiler that the language does not have.
#pragma once

#define BATCHKRON_INLINE inline __attribute__((always_inline))

// Stands before loops over an array of vectors. GCC keeps such an array in registers only if all
// loops over it are unrolled early; without this GCC 12 copies it to memory and back.
#define BATCHKRON_UNROLL _Pragma("GCC unroll 16")
