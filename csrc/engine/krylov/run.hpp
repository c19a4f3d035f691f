// Runs passes of Krylov methods over all systems.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/threads.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {

// Replaces `count` sums, or maxima, over the elements of this process by those of all processes.
using Reduction = std::function<void(double* sums, Index count, bool maxima)>;

// Passes that follow each other. Results do not depend on the number of threads: sums are taken
// over parts of fixed sizes, and added in their order.
class KrylovSequence {
 public:
  // dtype: as in KrylovTable. Throws std::invalid_argument for a name that there is not.
  // reduction: of vectors whose elements are spread over processes, each of which runs the same
  // passes; called once for each pass that has sums, for all systems together.
  KrylovSequence(const std::vector<std::string>& names, int dtype, Reduction reduction = {});

  // Runs all passes; returns how many systems are still running. `arguments` is a
  // KrylovArguments<T>.
  Index run(const void* arguments) const;

 private:
  void run_system(const void* arguments, Index system, std::vector<double>& sums) const;
  void run_in_parts(const void* arguments, const ThreadTeam& team) const;
  void reduce(double* totals, Index systems, Index distance, Index count, bool maxima) const;

  std::vector<KrylovPass> passes_;
  Reduction reduction_;
  mutable ThreadGains gains_;
};

}  // namespace batchkron
