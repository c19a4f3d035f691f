#include "engine/dispatch.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/processor.hpp"
#include "simd/compiled_tables.hpp"

namespace batchkron {
namespace {

struct InstructionSet {
  const KernelTable* table;
  const KrylovTable* krylov;
  bool is_supported;  // by this processor
};

// Those that kernels were compiled for, the best one last.
const std::vector<InstructionSet>& compiled_sets() {
  static const std::vector<InstructionSet> sets = {
      {&baseline::table, &baseline::krylov_table, true},
#ifdef BATCHKRON_HAS_avx2
      {&avx2::table, &avx2::krylov_table, has_avx2()},
#endif
#ifdef BATCHKRON_HAS_avx512
      {&avx512::table, &avx512::krylov_table, has_avx512()},
#endif
  };
  return sets;
}

const InstructionSet& choose() {
  const char* variable = std::getenv("BATCHKRON_ISA");
  const std::string name = variable ? variable : "";
  const InstructionSet* best = nullptr;
  std::string names;
  for (const InstructionSet& set : compiled_sets()) {
    if (!set.is_supported) continue;
    names += (names.empty() ? "" : ", ") + std::string(set.table->name);
    if (name.empty() || name == set.table->name) best = &set;
  }
  if (best) return *best;
  throw std::runtime_error("BATCHKRON_ISA=" + name + " is not supported by this processor and this "
                           "build; expected one of " + names +
                           ", or unset it to let batchkron choose.");
}

const InstructionSet& chosen() {
  static const InstructionSet& set = choose();
  return set;
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& table = *chosen().table;
  return table;
}

bool without(const std::string& part) {
  const char* variable = std::getenv("BATCHKRON_WITHOUT");
  return variable && ("," + std::string(variable) + ",").find("," + part + ",") != std::string::npos;
}

std::string missing_instruction_set() {
  const std::string best = best_instruction_set();
  for (const InstructionSet& set : compiled_sets()) {
    if (best == set.table->name) return "";
  }
  return best;
}

const KrylovTable& krylov_passes() { return *chosen().krylov; }

}  // namespace batchkron
