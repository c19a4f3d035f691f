// Blocks that are brought into the second-level cache while others are worked on.
#pragma once

#include <algorithm>
#include <array>

#include "simd/common/compiler.hpp"
#include "simd/common/scalar.hpp"

namespace batchkron {

class BlockFetches {
 public:
  explicit BlockFetches(Index bytes) : bytes_(bytes) {}

  // Forgets what has not been fetched.
  void clear() {
    at_ = end_ = nullptr;
    next_ = count_ = 0;
  }
  // More than there is room for are left out.
  void add(const void* block) {
    if (count_ < blocks_.size()) blocks_[count_++] = static_cast<const char*>(block);
  }
  // Asks for the next lines, so few that memory answers while a tile of a block is worked on.
  // Inline in kernels of every instruction set: no object file may bring its own to the others.
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
