// Prefetches of blocks to the L2 cache, a few cache lines at a time, while kernels work on other
// blocks.
#pragma once

#include <algorithm>
#include <array>

#include "simd/common/compiler.hpp"
#include "simd/common/scalar.hpp"

namespace batchkron {

class BlockFetches {
 public:
  explicit BlockFetches(Index bytes) : bytes_(bytes) {}

  // Forgets blocks that have not been prefetched.
  void clear() {
    at_ = end_ = nullptr;
    next_ = count_ = 0;
  }
  // Adds a block to prefetch; if the list is full it is left out.
  void add(const void* block) {
    if (count_ < blocks_.size()) blocks_[count_++] = static_cast<const char*>(block);
  }
  // Prefetches the next kLines lines: so few that memory delivers them while a tile of a block is
  // computed (24 and other numbers measured in docs/results/sparse-grids.md, "Fetching ahead").
  // It must be inlined: of an ordinary inline function the linker would keep one copy, compiled for
  // one instruction set, for the kernels of all.
  BATCHKRON_INLINE void some() {
    if (at_ == end_) {
      if (next_ == count_) return;
      at_ = blocks_[next_++];
      end_ = at_ + bytes_;
    }
    constexpr Index kLine = 64, kLines = 24;
    const char* const stop = at_ + std::min(kLines * kLine, end_ - at_);
    for (; at_ < stop; at_ += kLine) __builtin_prefetch(at_, 0, 2);
    at_ = stop;
  }

 private:
  Index bytes_;
  const char *at_ = nullptr, *end_ = nullptr;
  std::size_t next_ = 0, count_ = 0;
  std::array<const char*, 64> blocks_;
};

}  // namespace batchkron
