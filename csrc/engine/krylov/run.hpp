// Runs passes of Krylov methods over all systems.
#pragma once

#include <string>
#include <vector>

#include "engine/threads.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {

// Passes that follow each other. Results do not depend on the number of threads: sums are taken
// over parts of fixed sizes, and added in their order.
class KrylovSequence {
 public:
  // dtype: as in KrylovTable. Throws std::invalid_argument for a name that there is not.
  KrylovSequence(const std::vector<std::string>& names, int dtype);

  // Runs all passes; returns how many systems are still running. `arguments` is a
  // KrylovArguments<T>.
  Index run(const void* arguments) const;

 private:
  void run_system(const void* arguments, Index system, std::vector<double>& sums) const;
  void run_in_parts(const void* arguments, int threads) const;

  std::vector<KrylovPass> passes_;
  mutable ThreadGains gains_;
};

}  // namespace batchkron
