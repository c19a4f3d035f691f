// All gradients of y = x (A_1 ⊗ … ⊗ A_d) for real rows that fit into shared memory, by one kernel.
//
// With G, the gradient of y, it writes ∂x = G (A_1 ⊗ … ⊗ A_d)ᵀ, if that is wanted, and
//   parts[b, k] = Σ z_kᵀ g_k   over the rows of thread block b, for each k that is wanted,
// where z_k is x multiplied by the factors before A_k, g_k is G multiplied by the transposes of those
// after A_k, and the sum is over all indices but those of mode k. gram_total (cuda/gram/total.cuh)
// adds the parts, which are one after another for each block, (columns, rows) if they are turned. x
// and G are contiguous and aligned to an element; ∂x overlaps neither.
// A block takes some rows at a time, a chunk. Neighbouring small modes are a group. Buffer k of shared
// memory has room for these rows multiplied by the factors of the first k groups: buffer 0 holds x,
// and buffer k + 1 first G multiplied by the transposes of the factors after group k, from which
// buffer k is made, and at the end z for group k + 1. A fibre has the elements for all indices of a
// group and a pair (l, r) of those before and after it. Of a group of small modes, a thread has the
// same fibre of both, and the sums of all modes; of a large mode, some warps share out the pairs, and
// others have other tiles of the sums. Sums stay in registers from chunk to chunk. All additions have
// a fixed order.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"
#include "cuda/gram/row_sizes.cuh"
#include "cuda/gram/warp_sums.cuh"

namespace batchkron {

template <class T, int modes>
struct RowGradientsArguments {
  const T* x;
  const T* gradient;
  T* of_x;
  T* parts;
  const T* factors[modes];
  Index along[modes], across[modes];  // elements from row to row, column to column of a factor
  Index rows, chunk;                  // of x, and at most in a chunk
};

// Copies lines to shared memory; as words of 16 bytes if nothing is between them, and they begin at a
// whole word.
template <int threads, int line, int stride, class T>
__device__ void copy_lines(T* to, const T* from, int count) {
  constexpr int word = 16 / int(sizeof(T));
  int copied = 0;
  if (line == stride && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
    copied = count / word * word;
    for (int i = int(threadIdx.x) * word; i < copied; i += threads * word)
      copy_asynchronously<16, false>(to + i, from + i);
  }
  for (int i = copied + int(threadIdx.x); i < count; i += threads)
    copy_asynchronously<int(sizeof(T)), true>(to + i / line * stride + i % line, from + i);
}

// A fibre in registers: to[l, p, r] = Σ from[l, q, r] matrix[p, q], or the other way round.
template <int outer, int rows, int columns, int inner, bool forward, class T>
__device__ void multiply_fibre(const T* from, T* to, const T* matrix) {
  constexpr int ins = forward ? rows : columns, outs = forward ? columns : rows;
  constexpr int stride = whole_words<T>(columns);
  UNROLLED for (int l = 0; l < outer; ++l)
    UNROLLED for (int o = 0; o < outs; ++o)
      UNROLLED for (int r = 0; r < inner; ++r) {
        T sum{};
        UNROLLED for (int i = 0; i < ins; ++i)
          sum = multiply_add(sum, from[(l * ins + i) * inner + r],
                             matrix[forward ? i * stride + o : o * stride + i]);
        to[(l * outs + o) * inner + r] = sum;
      }
}

// wanted: bit k is set if the gradient of A_k is wanted, of one at least; with_x: if that of x is.
// turned: gradients of factors are written (columns, rows).
template <class T, unsigned wanted, bool with_x, bool turned, int threads, int last_padding,
          class... Group>
class RowGradients {
  using Sizes = RowSizes<T, wanted, last_padding, Group...>;
  using Arguments = RowGradientsArguments<T, Sizes::modes>;
  template <int k>
  struct Chosen {
    using Type = typename GroupAt<k, Group...>::Type;
  };
  template <int k>
  using At = typename Chosen<k>::Type;
  static constexpr int groups = Sizes::groups, warps = threads / 32;
  static constexpr int matrices = Sizes::matrices(groups);  // elements of all of them
  static constexpr int first_wanted() {
    int k = 0;
    while (!Sizes::wanted_of(k)) ++k;
    return k;
  }
  static constexpr int last_wanted() {
    int k = groups - 1;
    while (!Sizes::wanted_of(k)) --k;
    return k;
  }

  const Arguments& a_;
  T* const matrices_;
  T* const buffers_;
  T sums_[Sizes::sums(groups)] = {};
  Index first_ = 0;
  int rows_ = 0;  // of this chunk

  template <int k>
  __device__ T* buffer() const {
    constexpr int begin = Sizes::buffer(k);
    return buffers_ + begin * int(a_.chunk);
  }
  template <int k, int j, bool transposed = false>
  __device__ T* matrix() const {
    constexpr int begin = Sizes::matrices(k) + At<k>::template matrix<T>(j, transposed);
    return matrices_ + begin;
  }

  template <int k>
  __device__ void copy(const T* from) const {
    constexpr int size = Sizes::elements(k);
    copy_lines<threads, Sizes::line(k), Sizes::stride(k)>(buffer<k>(), from + first_ * size,
                                                          rows_ * size);
  }

  template <int k = 0, int j = 0>
  __device__ void read_matrices() {
    if constexpr (j < At<k>::modes) {
      constexpr int P = At<k>::rows_of(j), Q = At<k>::columns_of(j);
      constexpr int mode = Sizes::first_mode(k) + j;
      T* const plain = matrix<k, j>();
      T* const transposed = matrix<k, j, true>();
      for (int i = int(threadIdx.x); i < P * Q; i += threads) {
        const int p = i / Q, q = i % Q;
        const T value = a_.factors[mode][p * a_.along[mode] + q * a_.across[mode]];
        plain[p * whole_words<T>(Q) + q] = value;
        transposed[q * whole_words<T>(P) + p] = value;
      }
      read_matrices<k, j + 1>();
    } else if constexpr (k + 1 < groups) {
      read_matrices<k + 1>();
    }
  }

  // Where element i of the fibre (l, r) of group k is in the buffer before it, and in that behind it.
  template <int k>
  static __device__ int before(int l, int i, int r) {
    constexpr int stride = Sizes::stride(k), inner = Sizes::inner(k);
    return l * stride + i * inner + r;
  }
  template <int k>
  static __device__ int behind(int l, int i, int r) {
    constexpr int stride = Sizes::stride(k + 1);
    return k + 1 == groups ? l * stride + i : (l * At<k>::columns + i) * stride + r;
  }

  // Calls body(l, r) for the thread's pairs of the group.
  template <int k, class Body>
  __device__ void each_fibre(Body body) const {
    constexpr int inner = Sizes::inner(k), each = Sizes::outer(k) * inner;
    for (int n = int(threadIdx.x); n < rows_ * each; n += threads) body(n / inner, n % inner);
  }

  // Writes an element of a fibre that is multiplied back.
  template <int k>
  __device__ void put_before(int l, int i, int r, T value) const {
    constexpr int inner = Sizes::inner(0), size = Sizes::elements(0);
    if constexpr (k > 0) buffer<k>()[before<k>(l, i, r)] = value;
    else a_.of_x[first_ * size + (l * At<0>::rows + i) * inner + r] = value;
  }

  // Multiplies by the factor of a group of one mode, or by its transpose.
  template <int k, bool forward>
  __device__ void multiply_rows() const {
    constexpr int ins = forward ? At<k>::rows : At<k>::columns;
    constexpr int outs = forward ? At<k>::columns : At<k>::rows;
    const T* const from = buffer<forward ? k : k + 1>();
    const T* const factor = matrix<k, 0, forward>();
    each_fibre<k>([&](int l, int r) {
      T values[ins];
      UNROLLED for (int i = 0; i < ins; ++i)
        values[i] = from[forward ? before<k>(l, i, r) : behind<k>(l, i, r)];
      UNROLLED_BY(ins * outs <= 36 ? outs : 4) for (int o = 0; o < outs; ++o) {
        T sum{};
        UNROLLED for (int i = 0; i < ins; ++i)
          sum = multiply_add(sum, values[i], factor[o * whole_words<T>(ins) + i]);
        if constexpr (forward) buffer<k + 1>()[behind<k>(l, o, r)] = sum;
        else put_before<k>(l, o, r, sum);
      }
    });
  }

  // Multiplies a fibre, in which the modes after j are multiplied, by the transposes of the rest of
  // its factors, and writes the result.
  template <int k, int j>
  __device__ void finish_back(const T* values, int l, int r) const {
    using G = At<k>;
    if constexpr (j < 0) {
      UNROLLED for (int i = 0; i < G::rows; ++i) put_before<k>(l, i, r, values[i]);
    } else {
      T next[G::elements(j)];
      multiply_fibre<G::outer(j), G::rows_of(j), G::columns_of(j), G::inner(j), false>(
          values, next, matrix<k, j>());
      finish_back<k, j - 1>(next, l, r);
    }
  }

  // From what lies behind group k what lies before it; down to ∂x, or to what the first mode whose
  // gradient is wanted needs.
  template <int k = groups - 1>
  __device__ void go_back() const {
    if constexpr (k >= 0 && (with_x || k > first_wanted())) {
      using G = At<k>;
      if constexpr (G::modes == 1) {
        multiply_rows<k, false>();
      } else {
        each_fibre<k>([&](int l, int r) {
          T values[G::columns];
          UNROLLED for (int i = 0; i < G::columns; ++i)
            values[i] = buffer<k + 1>()[behind<k>(l, i, r)];
          finish_back<k, G::modes - 1>(values, l, r);
        });
      }
      if constexpr (k > 0) __syncthreads();
      go_back<k - 1>();
    }
  }

  // Adds to the sums of mode j of a group and of those after it, from a fibre of x multiplied by the
  // factors before j, and one of G of which no mode of the group is multiplied yet. `multiplied` is
  // the first fibre multiplied by all factors.
  template <int k, int j>
  __device__ void sum_fibres(const T* before, const T* last, T* multiplied) {
    using G = At<k>;
    if constexpr (j < G::modes) {
      constexpr int P = G::rows_of(j), Q = G::columns_of(j);
      constexpr int outer = G::outer(j), inner = G::inner(j);
      if constexpr (Sizes::wanted_of(k) >> j & 1) {
        T after[G::elements(j + 1)];
        go_back_to<k, j, G::modes - 1>(last, after);
        constexpr int held = Sizes::sums(k) + G::sums(j, Sizes::wanted_of(k));
        T* const sums = sums_ + held;
        UNROLLED for (int l = 0; l < outer; ++l)
          UNROLLED for (int p = 0; p < P; ++p)
            UNROLLED for (int q = 0; q < Q; ++q)
              UNROLLED for (int r = 0; r < inner; ++r)
                sums[p * Q + q] = multiply_add(sums[p * Q + q], before[(l * P + p) * inner + r],
                                               after[(l * Q + q) * inner + r]);
      }
      if constexpr (k < last_wanted() || Sizes::wanted_of(k) >> (j + 1)) {
        T next[G::elements(j + 1)];
        multiply_fibre<G::outer(j), P, Q, inner, true>(before, next, matrix<k, j>());
        sum_fibres<k, j + 1>(next, last, multiplied);
      }
    } else {
      UNROLLED for (int i = 0; i < G::columns; ++i) multiplied[i] = before[i];
    }
  }

  // Multiplies the fibre of G by the transposes of the factors after j, of which `at` is the next.
  template <int k, int j, int at>
  __device__ void go_back_to(const T* values, T* after) {
    using G = At<k>;
    if constexpr (at > j) {
      T next[G::elements(at)];
      multiply_fibre<G::outer(at), G::rows_of(at), G::columns_of(at), G::inner(at), false>(
          values, next, matrix<k, at>());
      go_back_to<k, j, at - 1>(next, after);
    } else {
      constexpr int size = G::elements(j + 1);
      UNROLLED for (int i = 0; i < size; ++i) after[i] = values[i];
    }
  }

  // Sums of a group of small modes; z for the next group replaces what is behind this one.
  template <int k>
  __device__ void sum_up_group() {
    using G = At<k>;
    T* const next = buffer<k + 1>();
    each_fibre<k>([&](int l, int r) {
      T x[G::rows], y[G::columns], multiplied[G::columns];
      UNROLLED for (int i = 0; i < G::rows; ++i) x[i] = buffer<k>()[before<k>(l, i, r)];
      if constexpr (Sizes::wanted_of(k))
        UNROLLED for (int i = 0; i < G::columns; ++i) y[i] = next[behind<k>(l, i, r)];
      sum_fibres<k, 0>(x, y, multiplied);
      if constexpr (k < last_wanted())
        UNROLLED for (int i = 0; i < G::columns; ++i) next[behind<k>(l, i, r)] = multiplied[i];
    });
  }

  // Sums of a mode that is cut into tiles.
  template <int k>
  __device__ void sum_up_tiles() {
    using G = At<k>;
    constexpr int P = G::rows, Q = G::columns, inner = Sizes::inner(k);
    constexpr int own_p = G::tile(P), own_q = G::tile(Q), across = G::tiles(Q);
    constexpr int each = warps / G::tile_count;  // warps of a tile
    static_assert(each > 0, "a warp for each tile");
    const int warp = int(threadIdx.x) / 32, tile = warp / each;
    if (tile >= G::tile_count) return;
    const int p = tile / across * own_p, q = tile % across * own_q;
    const T* const from_x = buffer<k>();
    const T* const from_y = buffer<k + 1>();
    constexpr int held = Sizes::sums(k), each_row = Sizes::outer(k) * inner;
    T* const sums = sums_ + held;
    const int pairs = rows_ * each_row;
    for (int n = int(threadIdx.x) - tile * each * 32; n < pairs; n += each * 32) {
      const int l = n / inner, r = n % inner;
      T x[own_p], y[own_q];
      UNROLLED for (int i = 0; i < own_p; ++i)
        x[i] = P % own_p == 0 || p + i < P ? from_x[before<k>(l, p + i, r)] : T{};
      UNROLLED for (int i = 0; i < own_q; ++i)
        y[i] = Q % own_q == 0 || q + i < Q ? from_y[behind<k>(l, q + i, r)] : T{};
      UNROLLED for (int i = 0; i < own_p; ++i)
        UNROLLED for (int j = 0; j < own_q; ++j)
          sums[i * own_q + j] = multiply_add(sums[i * own_q + j], x[i], y[j]);
    }
  }

  template <int k = 0>
  __device__ void go_forward() {
    using G = At<k>;
    if constexpr (!G::cut) {
      sum_up_group<k>();
    } else {
      if constexpr (Sizes::wanted_of(k)) sum_up_tiles<k>();
      if constexpr (k < last_wanted()) {
        if constexpr (Sizes::wanted_of(k)) __syncthreads();
        multiply_rows<k, true>();
      }
    }
    if constexpr (k < last_wanted()) {
      __syncthreads();
      go_forward<k + 1>();
    }
  }

  // Each warp's sums in shared memory: of mode j of group k, `size` for each warp.
  template <int k = 0, int j = 0>
  __device__ void share_sums() {
    using G = At<k>;
    if constexpr (j < G::modes) {
      if constexpr (Sizes::wanted_of(k) >> j & 1) {
        constexpr int size = G::cut ? G::tile_size : G::rows_of(j) * G::columns_of(j);
        constexpr int held = Sizes::sums(k) + G::sums(j, Sizes::wanted_of(k));
        const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
        share_out<size, 16>(sums_ + held, lane);
        const int number = shared_out<size, 16>(0, lane);
        if (number < size) buffers_[held * warps + warp * size + number] = sums_[held];
      }
      share_sums<k, j + 1>();
    } else if constexpr (k + 1 < groups) {
      share_sums<k + 1>();
    }
  }

  template <int k = 0, int j = 0>
  __device__ void write_sums() {
    using G = At<k>;
    if constexpr (j < G::modes) {
      if constexpr (Sizes::wanted_of(k) >> j & 1) {
        constexpr int P = G::rows_of(j), Q = G::columns_of(j);
        constexpr int own_p = G::cut ? G::tile(P) : P, own_q = G::cut ? G::tile(Q) : Q;
        constexpr int across = (Q + own_q - 1) / own_q, tiles = (P + own_p - 1) / own_p * across;
        constexpr int size = own_p * own_q, each = warps / tiles;
        constexpr int held = Sizes::sums(k) + G::sums(j, Sizes::wanted_of(k));
        constexpr int all = Sizes::results(groups);
        constexpr int first = Sizes::results(k) + G::results(j, Sizes::wanted_of(k));
        const T* const sums = buffers_ + held * warps;
        T* const to = a_.parts + Index(blockIdx.x) * all + first;
        for (int i = int(threadIdx.x); i < P * Q; i += threads) {
          const int p = i / Q, q = i % Q, tile = p / own_p * across + q / own_q;
          const T* const from = sums + tile * each * size + p % own_p * own_q + q % own_q;
          T sum{};
          UNROLLED for (int w = 0; w < each; ++w) sum = add(sum, from[w * size]);
          to[turned ? q * P + p : i] = sum;
        }
      }
      write_sums<k, j + 1>();
    } else if constexpr (k + 1 < groups) {
      write_sums<k + 1>();
    }
  }

 public:
  __device__ RowGradients(const Arguments& a, T* shared)
      : a_(a), matrices_(shared), buffers_(shared + matrices) {}

  __device__ void run() {
    read_matrices();
    for (Index chunk = blockIdx.x; chunk * a_.chunk < a_.rows; chunk += gridDim.x) {
      first_ = chunk * a_.chunk;
      rows_ = int(a_.rows - first_ < a_.chunk ? a_.rows - first_ : a_.chunk);
      copy<groups>(a_.gradient);
      copy<0>(a_.x);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      go_back();
      go_forward();
      __syncthreads();
    }
    share_sums();
    __syncthreads();
    write_sums();
  }
};

// resident: thread blocks that a multiprocessor has at a time. last_padding: as of a group, of the
// buffer behind the last one, whose lines are its fibres.
template <class T, unsigned wanted, bool with_x, bool turned, int threads, int resident,
          int last_padding, class... Group>
__global__ void __launch_bounds__(threads, resident)
    row_gradients(RowGradientsArguments<T, (Group::modes + ...)> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];  // matrices, then buffers
  RowGradients<T, wanted, with_x, turned, threads, last_padding, Group...> block(
      a, reinterpret_cast<T*>(shared_memory));
  block.run();
}

}  // namespace batchkron
