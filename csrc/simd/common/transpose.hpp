// Transposes in registers: between rows and vectors whose lanes belong to consecutive rows.
#pragma once

#include "simd/common/vectors.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// One stage of a transpose: two vectors of n reals exchange every other block of `block` reals.
template <int n, int block>
struct LowBlocks {
  static constexpr int at(int i) { return i / block % 2 == 0 ? i : n + i - block; }
};
template <int n, int block>
struct HighBlocks {
  static constexpr int at(int i) { return i / block % 2 == 0 ? i + block : n + i; }
};

// A row is a vector of lanes / piece pieces of `piece` elements, and there are as many rows: piece j
// of rows[i] becomes piece i of rows[j].
template <class T, int piece = 1, int distance = 1>
BATCHKRON_INLINE void transpose(Pack<T, widest<T>>* rows) {
  constexpr int lanes = widest<T>, reals = Element<T>::reals, count = lanes / piece;
  if constexpr (distance < count) {
    constexpr int block = distance * piece * reals;
#pragma GCC unroll 16
    for (int pair = 0; pair < count / 2; ++pair) {
      const int i = pair / distance * 2 * distance + pair % distance;
      const Pack<T, lanes> low = rows[i], high = rows[i + distance];
      rows[i] = arrange<LowBlocks<lanes * reals, block>>(low, high);
      rows[i + distance] = arrange<HighBlocks<lanes * reals, block>>(low, high);
    }
    transpose<T, piece, 2 * distance>(rows);
  }
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
