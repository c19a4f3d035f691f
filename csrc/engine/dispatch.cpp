#include "engine/dispatch.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "simd/compiled_tables.hpp"

namespace batchkron {
namespace {

#ifdef BATCHKRON_X86
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}
#endif

const KernelTable& best_table() {
#ifdef BATCHKRON_X86
  if (has_avx512()) return avx512::table;
  if (has_avx2()) return avx2::table;
#endif
  return baseline::table;
}

const KernelTable& named_table(const std::string& name) {
  if (name == "baseline") return baseline::table;
#ifdef BATCHKRON_X86
  if (name == "avx2" && has_avx2()) return avx2::table;
  if (name == "avx512" && has_avx512()) return avx512::table;
#endif
  throw std::runtime_error("BATCHKRON_ISA=" + name +
                           " is unknown or not supported by this processor; expected baseline, "
                           "avx2 or avx512, or unset it to let batchkron choose.");
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& chosen = []() -> const KernelTable& {
    const char* name = std::getenv("BATCHKRON_ISA");
    return name && *name ? named_table(name) : best_table();
  }();
  return chosen;
}

const KrylovTable& krylov_passes() {
#ifdef BATCHKRON_X86
  if (&kernels() == &avx512::table) return avx512::krylov_table;
  if (&kernels() == &avx2::table) return avx2::krylov_table;
#endif
  return baseline::krylov_table;
}

}  // namespace batchkron
