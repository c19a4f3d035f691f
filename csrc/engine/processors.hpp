// The processors that this process may use, and how many threads it has by default.
#pragma once

#ifdef __linux__
#include <sched.h>
#endif

namespace batchkron {

#ifdef __linux__
// The processors of the calling thread. If an OpenMP runtime that another library has brought binds
// it to some (OMP_PROC_BIND), all of that runtime's. False if the system does not say.
bool usable_processors(cpu_set_t& processors);
#endif
int num_processors();
// What OMP_NUM_THREADS says (its first number), at most OMP_THREAD_LIMIT, else one for each processor.
int default_threads();
// Whether OMP_NUM_THREADS says how many threads there are.
bool threads_are_set_by_user();

}  // namespace batchkron
