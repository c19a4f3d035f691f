// The instruction sets of this machine's processor.
#pragma once

namespace batchkron {

#ifdef __x86_64__
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}
#else
inline bool has_avx2() { return false; }
inline bool has_avx512() { return false; }
#endif

// The best one that there are kernels for.
inline const char* best_instruction_set() {
  return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "baseline";
}

}  // namespace batchkron
