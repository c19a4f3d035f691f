// The choice between the kernels of sweeps for one instruction set (contract:
// simd/sweeps/table.hpp).
#pragma once

#include "simd/sweeps/panels.hpp"
#include "simd/sweeps/rows.hpp"
#include "simd/sweeps/shared_vectors.hpp"
#include "simd/sweeps/tails.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

// The kernel in which rows of R elements share vectors, or null if there is none for these sizes.
template <class T, int n, int C = n>
constexpr void (*find_shared(Index R))(const SweepTask<T>&) {
  constexpr int width = kWidth<T>;
  if constexpr (width >= 4)
    if (R == 2) return shared<T, n, C, 2>;
  if constexpr (width >= 8)
    if (R > 2 && R <= 4) return shared<T, n, C, 4>;
  if constexpr (width >= 16)
    if (R > 4 && R <= 8) return shared<T, n, C, 8>;
  return nullptr;
}

template <class T>
constexpr auto find_single(Index L, Index n, Index R) -> void (*)(const SweepTask<T>&) {
  if (kWidth<T> > 1 && R == 1 && n > 4) return rows<T>;
  if constexpr (kIsSpare) return panels<T, 0>;
  void (*found)(const SweepTask<T>&) = nullptr;
  if (L > 1) {
    if (n == 2) found = find_shared<T, 2>(R);
    if (n == 3) found = find_shared<T, 3>(R);
    if (n == 4) found = find_shared<T, 4>(R);
  }
  if (found) return found;
  if (n == 1) return panels<T, 1>;
  if (n == 2) return panels<T, 2>;
  if (n == 3) return panels<T, 3>;
  if (n == 4) return panels<T, 4>;
  return panels<T, 0>;
}

// From so many rows (L) on, a block is large beside the factors of a matrix that are stored for all
// lanes of a row; they are then stored, and otherwise computed from the matrix's diagonals. Chosen
// by hand.
constexpr Index kMinManyRows = 9;

// The kernel of the last `asked` modes, or null if there is none.
template <class T, int n, int modes = kMaxSweepModes>
constexpr SweepKernel<T> find_tail(Index L, int asked) {
  using Many = Row<T, n, modes, !kIsSpare>;
  using Few = Row<T, n, modes, false>;
  if constexpr (Few::fits) {
    if (asked == modes && L >= kMinManyRows) return {tails<Many>, Many::matrix, lay_out_row<Many>};
    if (asked == modes) return {tails<Few>, Few::matrix, lay_out_row<Few>};
  }
  if constexpr (modes > 1)
    return find_tail<T, n, modes - 1>(L, asked);
  else
    return {nullptr, 0, nullptr};
}

template <class T>
constexpr SweepKernel<T> find_tail_of(Index L, Index n, int modes) {
  if (n == 2) return find_tail<T, 2>(L, modes);
  if (n == 3) return find_tail<T, 3>(L, modes);
  if (n == 4) return find_tail<T, 4>(L, modes);
  if (n == 5) return find_tail<T, 5>(L, modes);
  if (n == 6) return find_tail<T, 6>(L, modes);
  return {nullptr, 0, nullptr};
}

// The kernel for matrices (n, C) that are not square.
template <class T>
constexpr auto find_rectangular(Index L, Index n, Index C, Index R) -> void (*)(const SweepTask<T>&) {
  if constexpr (kIsSpare) return kWidth<T> > 1 && R == 1 && n > 1 ? rows<T> : panels<T, 0>;
  void (*found)(const SweepTask<T>&) = nullptr;
  if (L > 1) {  // the sizes of maps between degrees p and p + 1
    if (n == 2 && C == 3) found = find_shared<T, 2, 3>(R);
    if (n == 3 && C == 2) found = find_shared<T, 3, 2>(R);
    if (n == 3 && C == 4) found = find_shared<T, 3, 4>(R);
    if (n == 4 && C == 3) found = find_shared<T, 4, 3>(R);
  }
  if (found) return found;
  if constexpr (kWidth<T> >= 4)
    if (R == 1) {
      if (n == 2 && C == 3) return short_rows<T, 2, 3>;
      if (n == 3 && C == 2) return short_rows<T, 3, 2>;
      if (n == 3 && C == 4) return short_rows<T, 3, 4>;
      if (n == 4 && C == 3) return short_rows<T, 4, 3>;
    }
  if (kWidth<T> > 1 && R == 1 && n > 1) return rows<T>;
  if (n == 2 && C == 3) return panels<T, 2, 3>;
  if (n == 3 && C == 2) return panels<T, 3, 2>;
  if (n == 3 && C == 4) return panels<T, 3, 4>;
  if (n == 4 && C == 3) return panels<T, 4, 3>;
  return panels<T, 0>;
}

template <class T>
SweepKernel<T> find(Index L, Index n, Index C, int modes, Index R, bool plain) {
  if (n != C) return {find_rectangular<T>(L, n, C, R), n * C, lay_out_plain<T>};
  if (R == 1 && !plain) {
    const SweepKernel<T> tail = find_tail_of<T>(L, n, modes);
    if (tail.add_edges) return tail;
  }
  if (modes > 1) return {nullptr, 0, nullptr};
  return {find_single<T>(L, n, R), n * n, lay_out_plain<T>};
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
