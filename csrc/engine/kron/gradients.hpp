// All gradients of a Kron-Matmul of real numbers, where there are rows for all threads.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/pack.hpp"
#include "engine/steps.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// x is (outer, P_1, ..., P_d, inner), and y, x with mode k multiplied by A_k for each k, and its
// gradient G are (outer, Q_1, ..., Q_d, inner), C-contiguous. A row is one of the `outer`. The
// gradient of A_k is
//
//   sum over all indices but those of mode k of z_k[..., p, ...] g_k[..., q, ...],
//
// where z_k is x multiplied by the factors before A_k, and g_k is G multiplied by the transposes of
// those after it. That of x is G multiplied by all transposes.
//
// A chunk of rows goes through all of this while it stays in the caches. Its tensors are as in
// memory, or have a row in each vector lane where numbers behind a mode would not fill vectors; rows
// that do not fill the lanes come last, as in memory.
// Each part of the rows has sums of its own, which are added at the end: results have the same bits
// for any number of threads.
template <class T>
class KronGradients {
 public:
  // The factors are P_k x Q_k: K is P_k and C is Q_k. No size is 0.
  KronGradients(const std::vector<FactorView<T>>& factors, Index outer, Index inner);

  // of_x may be null; of_factors[k] is, where that gradient is not wanted, but not all of them. A
  // result overlaps nothing else.
  void run(const T* x, const T* gradient, T* of_x, T* const* of_factors) const;

 private:
  // Bytes of a chunk's largest tensor, unless a row is larger; those up to which rows are put into
  // lanes; and those of the sums of all parts. Chosen by hand.
  static constexpr Index kChunkBytes = 64 << 10;
  static constexpr Index kLaneBytes = 256 << 10;
  static constexpr Index kSumsBytes = 16 << 20;
  static constexpr Index kMaxParts = 64;  // more than that many threads have no work

  struct Call {
    const T* x;
    const T* gradient;
    T* of_x;
    T* const* of_factors;
    std::vector<const T*> back, forward;  // packed transposes, packed factors
    Index between, turned;                // elements of a tensor, and of one that is turned
    int first, last;                      // wanted gradients of factors
  };

  static ThreadGains& gains() {
    static ThreadGains all;
    return all;
  }

  // Elements of the largest tensor whose rows are turned into lanes for the sums of one mode.
  Index turned_elements() const {
    const Index lanes = kernels_.lanes, rows = in_lanes_ ? lanes - 1 : rows_;
    Index most = 0;
    for (int k = 0; k < modes_; ++k) {
      if (behind_[k + 1] >= lanes) continue;
      const Index L = rows * sizes_[k] / behind_[k];
      const Index row = behind_[k + 1] * std::max(factors_[k].K, factors_[k].C);
      most = std::max(most, (L + lanes - 1) / lanes * lanes * row + lanes * row);
    }
    return most;
  }

  // Writes tile[block, s, lane] = rows[block * lanes + lane, s], zeros for rows that there are not.
  // `spare` has room for one block.
  void turn(T* tile, const T* rows, Index count, Index size, T* spare) const {
    const Index lanes = kernels_.lanes, whole = count / lanes * lanes;
    for (Index i = 0; i < whole; i += lanes)
      kernels_.to_lanes(tile + i * size, rows + i * size, lanes, size);
    if (whole == count) return;
    std::copy_n(rows + whole * size, (count - whole) * size, spare);
    std::fill_n(spare + (count - whole) * size, (lanes - count + whole) * size, T{});
    kernels_.to_lanes(tile + whole * size, spare, lanes, size);
  }

  // Adds to the sums of mode k of tensors (L, P, R) and (L, Q, R).
  void add_sums(const Call& call, int k, T* sums, const T* x, const T* y, Index L, Index R,
                T* memory) const {
    const Index P = factors_[k].K, Q = factors_[k].C, lanes = kernels_.lanes;
    if (R >= lanes) return kernels_.gram({sums, x, y, L, P, Q, R});
    T* const of_x = memory;
    T* const of_y = memory + call.turned;
    const Index blocks = (L + lanes - 1) / lanes;
    turn(of_x, x, L, P * R, of_x + blocks * lanes * P * R);
    turn(of_y, y, L, Q * R, of_y + blocks * lanes * Q * R);
    kernels_.gram({sums, of_x, of_y, blocks, P, Q, R * lanes});
  }

  void multiply(T* y, const T* x, const T* packed, Index C, Index K, Index L, Index R) const {
    kernels_.multiply(contiguous_pass(y, x, packed, C, K, L, R, T(1), false), 1, C);
  }

  void run_part(const Call& call, Index part, T* sums, T* memory) const {
    std::fill_n(sums, sums_, T{});
    const Index end = (part + 1) * chunks_ / parts_;
    for (Index chunk = part * chunks_ / parts_; chunk < end; ++chunk) {
      const Index first = chunk * rows_, count = std::min(rows_, outer_ - first);
      const Index filling = in_lanes_ ? count / kernels_.lanes * kernels_.lanes : 0;
      if (filling > 0) run_chunk(call, first, filling, true, sums, memory);
      if (filling < count) run_chunk(call, first + filling, count - filling, false, sums, memory);
    }
  }

  // in_lanes: count is a multiple of the lanes.
  void run_chunk(const Call& call, Index first, Index count, bool in_lanes, T* sums,
                 T* memory) const {
    const Index between = call.between, width = in_lanes ? kernels_.lanes : 1;
    const auto tensor = [&](int k) { return memory + k * between; };
    T* const spare = memory + (modes_ + 1) * between;  // for two tensors, and for turned ones
    const T* x = call.x + first * sizes_[0];
    const T* const last = call.gradient + first * sizes_[modes_];
    T* const of_x = call.of_x ? call.of_x + first * sizes_[0] : nullptr;
    if (in_lanes) {
      turn(tensor(modes_), last, count, sizes_[modes_], spare);
      turn(spare, x, count, sizes_[0], spare + between);
      x = spare;
    }
    const auto after = [&](int k) -> const T* {
      if (in_lanes) return tensor(k);
      return k == modes_ ? last : k == 0 ? of_x : tensor(k);
    };
    const int lowest = call.of_x ? 0 : call.first + 1;
    for (int k = modes_ - 1; k >= lowest; --k) {
      const Index L = count / width * (sizes_[k] / behind_[k]), R = behind_[k + 1] * width;
      multiply(k == 0 && !in_lanes ? of_x : tensor(k), after(k + 1), call.back[k],
               factors_[k].C, factors_[k].K, L, R);
    }
    if (in_lanes && of_x)
      for (Index i = 0; i < count; i += width)
        kernels_.from_lanes(of_x + i * sizes_[0], tensor(0) + i * sizes_[0], width, sizes_[0], T(1),
                            false);
    for (int k = 0; k <= call.last; ++k) {
      const Index L = count / width * (sizes_[k] / behind_[k]), R = behind_[k + 1] * width;
      if (call.of_factors[k])
        add_sums(call, k, sums, x, after(k + 1), L, R, spare + 2 * between);
      sums += factors_[k].K * factors_[k].C;
      if (k == call.last) break;
      T* const target = spare + (k + 1) % 2 * between;
      multiply(target, x, call.forward[k], factors_[k].K, factors_[k].C, L, R);
      x = target;
    }
  }

  const ModeKernels<T>& kernels_;
  const std::vector<FactorView<T>>& factors_;
  Index outer_;
  int modes_;
  std::vector<Index> sizes_;   // of a row that is multiplied by the factors before k
  std::vector<Index> behind_;  // elements of it from mode k on
  Index largest_ = 0, sums_ = 0;
  double multiply_adds_ = 0;  // of a row
  bool in_lanes_ = false;
  Index rows_, chunks_, parts_;
};

// Compiled once, in gradients.cpp.
extern template class KronGradients<float>;
extern template class KronGradients<double>;

}  // namespace batchkron
