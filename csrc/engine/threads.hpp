// The number of threads, and how work is spread over them.
#pragma once

namespace batchkron {

// 1 in a child forked after threads were used, whatever was set.
int num_threads();
void set_num_threads(int count);

// The index of the calling thread in the innermost parallel region, 0 outside of any.
int thread_index();

// Threads worth waking for `multiply_adds` of work: one below about 20 microseconds.
int threads_for(double multiply_adds);

}  // namespace batchkron
