// Marks a loop that the compiler unrolls: all of it, so that indices of registers are constants, or
// the given number of turns at a time, 1 for none.
#pragma once

#define UNROLLED _Pragma("unroll")
#define BATCHKRON_PRAGMA(text) _Pragma(#text)
#define UNROLLED_BY(turns) BATCHKRON_PRAGMA(unroll(turns))
