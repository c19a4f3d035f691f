// kron_registers: y = alpha (A_g (x) ... (x) A_h) x + beta previous for neighbouring factors of up
// to 16 x 16 (contract: cuda/kron/arguments.cuh). A thread block multiplies a tile of x in a few
// passes. In each pass a thread holds part of the tile in registers, whole along several modes, and
// multiplies it along these; between passes the tile goes through shared memory, to other threads.
// Elements are read and written one by one, so that no alignment matters.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron/arguments.cuh"
#include "cuda/kron/registers/pass.cuh"

namespace batchkron {

// A pass: the axes that a thread holds in registers, and those that are divided among the threads.
template <class Registers_, class Threads_>
struct Pass {
  using Registers = Registers_;
  using Threads = Threads_;
};

template <int C_, int K_>
struct FactorSize {
  static constexpr int C = C_, K = K_;
};

// Where each factor begins, in elements, if they are stored one after another.
template <class T, class... Size>
struct FactorList {
  static constexpr int count = int(sizeof...(Size));

  static constexpr int begin(int factor) {
    constexpr int sizes[] = {FactorLayout<T, Size>::elements..., 0};
    int sum = 0;
    for (int f = 0; f < factor; ++f) sum += sizes[f];
    return sum;
  }
};

// All factors of a group in shared memory.
template <class T, class... Size>
struct SharedFactors : FactorList<T, Size...> {
  using List = FactorList<T, Size...>;
  static constexpr int elements = List::begin(List::count);
  unsigned address;

  template <int factor>
  __device__ SharedMatrix<T> at() const {
    constexpr int first = List::begin(factor);
    return {address + first * int(sizeof(T))};
  }

  __device__ static SharedFactors stage(const Factor<T>* factors, T* target, int threads) {
    SharedFactors staged;
    staged.address = unsigned(__cvta_generic_to_shared(target));
    int f = 0;
    (stage_one<Size>(factors[f++], target, threads), ...);
    __syncthreads();
    return staged;
  }

 private:
  template <class S>
  __device__ static void stage_one(const Factor<T>& factor, T*& target, int threads) {
    constexpr int stride = FactorLayout<T, S>::stride;
    for (int i = threadIdx.x; i < S::C * stride; i += threads) {
      const int c = i / stride, k = i % stride;
      target[i] = k < S::K ? factor.data[k * factor.row + c * factor.column] : T{};
    }
    target += S::C * stride;
  }
};

#ifdef BATCHKRON_CONSTANTS
// All factors in constant memory, for kernels that are compiled for one operator.
template <class T, class... Size>
struct ConstantFactors : FactorList<T, Size...> {
  static constexpr int elements = 0;  // of shared memory

  template <int factor>
  __device__ auto at() const { return ConstantMatrix<T, FactorList<T, Size...>::begin(factor)>{}; }
  __device__ static ConstantFactors stage(const Factor<T>*, T*, int) { return {}; }
};
#endif

// A tile: `slices` values of l by `columns` values of r, times the entries of all modes, which are
// `inputs` before and `outputs` after the multiplies. buffer: elements of a buffer in shared
// memory; buffers: 0 for a single pass, 1 if every pass writes where it has read, else 2. blocks:
// thread blocks on a multiprocessor.
template <int slices_, int columns_, Index R_, Index inputs_, Index outputs_, int buffer_,
          int buffers_, int threads_, int blocks_>
struct RegisterTile {
  static constexpr int slices = slices_, columns = columns_;
  static constexpr Index R = R_;  // 0: known when the kernel runs
  static constexpr Index inputs = inputs_, outputs = outputs_;
  static constexpr int buffer = buffer_, buffers = buffers_, threads = threads_, blocks = blocks_;
};

// The current tile of a thread block.
template <class T>
struct TilePlace {
  const T* x;             // its first element
  Index y;                // its offset in y and previous
  Index slices, columns;  // how many of them there are from the tile on to the end of the array
};

template <class T, class Tile, class Factors, class... Passes>
struct RegisterKernel {
  using Arguments = KronArguments<T, Factors::count>;
  static constexpr int passes = int(sizeof...(Passes));

  __device__ static Index row(const Arguments& a) { return Tile::R ? Tile::R : a.R; }

  __device__ static TilePlace<T> tile(const Arguments& a, Index number) {
    const Index R = row(a), across = (R + Tile::columns - 1) / Tile::columns;
    const Index l = number / across * Tile::slices, r = number % across * Tile::columns;
    return {a.x + l * Tile::inputs * R + r, l * Tile::outputs * R + r, a.L - l, R - r};
  }
  __device__ static Index tiles(const Arguments& a) {
    return (row(a) + Tile::columns - 1) / Tile::columns * ((a.L + Tile::slices - 1) / Tile::slices);
  }

  template <int number, class P>
  __device__ static void load(const Arguments& a, const TilePlace<T>& place, const T* buffer,
                              const Place& from, bool inside, T* block) {
    using Registers = typename P::Registers;
    if constexpr (number == 0) {
      const T* const source = place.x + from.rows * row(a) + from.columns;
      UNROLLED for (int i = 0; i < Registers::inputs; ++i)
        block[i] = inside ? source[Registers::from(i) * row(a)] : T{};
    } else {
      const T* const source = buffer + from.rows + from.columns;
      UNROLLED for (int i = 0; i < Registers::inputs; ++i) block[i] = source[Registers::from(i)];
    }
  }

  template <int number, class P>
  __device__ static void store(const Arguments& a, const TilePlace<T>& place, T* buffer,
                               const Place& to, bool inside, const T* block) {
    using Registers = typename P::Registers;
    if constexpr (number == passes - 1) {
      if (!inside) return;
      const Index first = place.y + to.rows * row(a) + to.columns;
      const auto offset = [&](int i) { return first + Registers::to(i) * row(a); };
      if (a.previous) {  // all of it is read first: it may be y, and loads would wait for stores
        T sums[Registers::outputs];
        UNROLLED for (int i = 0; i < Registers::outputs; ++i)
          sums[i] = multiply_add(multiply(a.alpha, block[i]), a.beta, a.previous[offset(i)]);
        UNROLLED for (int i = 0; i < Registers::outputs; ++i) a.y[offset(i)] = sums[i];
      } else {
        UNROLLED for (int i = 0; i < Registers::outputs; ++i)
          a.y[offset(i)] = multiply(a.alpha, block[i]);
      }
    } else {
      T* const target = buffer + to.rows + to.columns;
      UNROLLED for (int i = 0; i < Registers::outputs; ++i) target[Registers::to(i)] = block[i];
    }
  }

  template <int number, class P>
  __device__ static void pass(const Arguments& a, const TilePlace<T>& place, const Factors& factors,
                              T* buffers) {
    using Registers = typename P::Registers;
    using Threads = typename P::Threads;
    const T* const source = buffers + (number + 1) % 2 % (Tile::buffers + !Tile::buffers) * Tile::buffer;
    T* const target = buffers + number % 2 % (Tile::buffers + !Tile::buffers) * Tile::buffer;
    UNROLLED_BY(1) for (int item = threadIdx.x; item < Threads::size; item += Tile::threads) {
      Place from, to;
      const bool inside = Threads::places(item, place.slices, place.columns, from, to);
      T block[Registers::inputs];
      load<number, P>(a, place, source, from, inside, block);
      multiply_axes<T, 1>(factors, block, Registers{}, [&](const T* result) {
        store<number, P>(a, place, target, to, inside, result);
      });
    }
    __syncthreads();
  }

  template <int number>
  __device__ static void run(const Arguments&, const TilePlace<T>&, const Factors&, T*) {}
  template <int number, class P, class... Rest>
  __device__ static void run(const Arguments& a, const TilePlace<T>& place, const Factors& factors,
                             T* buffers) {
    pass<number, P>(a, place, factors, buffers);
    run<number + 1, Rest...>(a, place, factors, buffers);
  }

  __device__ static void every_tile(const Arguments& a, const Factors& factors, T* buffers) {
    const Index count = tiles(a);
    for (Index number = blockIdx.x; number < count; number += gridDim.x)
      run<0, Passes...>(a, tile(a, number), factors, buffers);
  }
};

template <class T, class Tile, class Factors, class... Passes>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    kron_registers(const KronArguments<T, Factors::count> a) {
  wait_for_earlier_kernels();
  using Kernel = RegisterKernel<T, Tile, Factors, Passes...>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  T* const staged = reinterpret_cast<T*>(shared_memory);
  Kernel::every_tile(a, Factors::stage(a.factors, staged, Tile::threads),
                     staged + Factors::elements);
}

}  // namespace batchkron
