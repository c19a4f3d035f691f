// std::vector with its first element at the beginning of a cache line (64 bytes): aligned vector
// loads from it then never straddle two lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace batchkron {

template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  AlignedAllocator() = default;
  template <class Other>
  AlignedAllocator(const AlignedAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    if (count > std::size_t(-1) / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, std::size_t) { ::operator delete(data, kAlignment); }

  template <class Other>
  bool operator==(const AlignedAllocator<Other>&) const { return true; }
  template <class Other>
  bool operator!=(const AlignedAllocator<Other>&) const { return false; }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace batchkron
