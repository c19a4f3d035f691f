// Neighbouring elements that are read and written in one access.
#pragma once

namespace batchkron {

template <class T, int count>
struct alignas(count == 1 ? alignof(T) : count * sizeof(T)) Elements {
  T values[count];
};

}  // namespace batchkron
