// How many OpenMP threads a call uses.
#pragma once

namespace batchkron {

// The number that was set, else OpenMP's default. Always 1 in a process that was forked after its
// parent had used threads (the reason is in threads.cpp).
int num_threads();
void set_num_threads(int count);

// The index of the calling thread in the innermost parallel region, 0 outside of any.
int thread_index();

// Threads to use for so much work: num_threads(), or 1 where waking others takes longer than it
// saves.
int threads_for(double multiply_adds);

}  // namespace batchkron
