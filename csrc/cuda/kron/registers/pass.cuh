// For cuda/kron/registers/kernel.cuh: the axes of a pass over a tile, and the multiplies along
// several modes in a thread's registers.
#pragma once

#include "cuda/common/mode_multiply.cuh"

namespace batchkron {

// An axis of a tile that a thread holds whole in registers: C entries, `from` elements apart where
// the pass reads, become K entries, `to` elements apart where it writes. factor: number of the
// factor that multiplies along it; -1: none, and K is C.
template <int factor_, int C_, int K_, Index from_, Index to_>
struct RegisterAxis {
  static constexpr int factor = factor_, C = C_, K = K_;
  static constexpr Index from = from_, to = to_;
};

// An axis whose entries are divided among the threads. bound: whether entries may lie beyond the
// edge of the array: kInside: no; kSlices: the axis counts values of l; kColumns: values of r.
// from, to: as in RegisterAxis.
enum Bound { kInside, kSlices, kColumns };
template <int size_, int bound_, Index from_, Index to_>
struct ThreadAxis {
  static constexpr int size = size_, bound = bound_;
  static constexpr Index from = from_, to = to_;
};

// The registers of a thread: the first axis is the slowest index.
template <class... Axis>
struct RegisterAxes {
  static constexpr int inputs = (Axis::C * ... * 1), outputs = (Axis::K * ... * 1);

  // The offset of register i where the pass reads, and where it writes.
  static constexpr Index from(int i) {
    constexpr int sizes[] = {Axis::C..., 1};
    constexpr Index strides[] = {Axis::from..., 0};
    return offset(sizes, strides, i);
  }
  static constexpr Index to(int i) {
    constexpr int sizes[] = {Axis::K..., 1};
    constexpr Index strides[] = {Axis::to..., 0};
    return offset(sizes, strides, i);
  }

 private:
  template <int count>
  static constexpr Index offset(const int (&sizes)[count], const Index (&strides)[count], int i) {
    Index sum = 0;
    UNROLLED for (int axis = count - 1; axis >= 0; --axis) {
      sum += i % sizes[axis] * strides[axis];
      i /= sizes[axis];
    }
    return sum;
  }
};

// Where a thread's part of a tile begins: rows + columns elements from the tile's begin in shared
// memory, rows * R + columns elements in x or y.
struct Place {
  Index rows = 0;
  int columns = 0;
};

// The items of a pass, which are divided among the threads: the first axis is the fastest index.
template <class... Axis>
struct ThreadAxes {
  static constexpr int size = (Axis::size * ... * 1);

  // Finds where item i begins; returns whether it is inside of the array, which has so many slices
  // and columns left.
  __device__ static bool places(int i, Index slices, Index columns, Place& from, Place& to) {
    bool inside = true;
    (place<Axis>(i, slices, columns, from, to, inside), ...);
    return inside;
  }

 private:
  template <class A>
  __device__ static void place(int& i, Index slices, Index columns, Place& from, Place& to,
                               bool& inside) {
    const int entry = i % A::size;
    i /= A::size;
    if constexpr (A::bound == kColumns) {
      from.columns += entry * int(A::from);
      to.columns += entry * int(A::to);
      inside = inside && entry < columns;
    } else {
      from.rows += entry * A::from;
      to.rows += entry * A::to;
      if (A::bound == kSlices) inside = inside && entry < slices;
    }
  }
};

// A factor as passes read it: [c][k], each row padded to whole words of 16 bytes.
template <class T, class Axis>
struct FactorLayout {
  static constexpr int word = 16 / int(sizeof(T));
  static constexpr int stride = (Axis::K + word - 1) / word * word;
  static constexpr int elements = Axis::C * stride;
};

template <class T>
struct FactorWord {
  T values[16 / int(sizeof(T))];
};

// A factor in shared memory. Loads are in assembly so that compilers repeat them for each use:
// words kept from one use to the next would take the registers of the tile. sums: sums of a thread
// that share a load, 128 bytes of them.
template <class T>
struct SharedMatrix {
  static constexpr int sums = 128 / int(sizeof(T));
  unsigned address;

  __device__ FactorWord<T> load(int element) const {
    unsigned words[4];
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address + element * int(sizeof(T))));
    FactorWord<T> word;
    memcpy(word.values, words, 16);
    return word;
  }
};

#ifdef BATCHKRON_CONSTANTS
// The factors of a kernel that is compiled for one operator: multiply-adds take constants as
// operands, without loads.
extern "C" { __constant__ BATCHKRON_SCALAR constant_factors[BATCHKRON_CONSTANTS]; }

template <class T, int first>
struct ConstantMatrix {
  static constexpr int sums = 1;

  __device__ static FactorWord<T> load(int element) {
    FactorWord<T> word;
    UNROLLED for (int j = 0; j < 16 / int(sizeof(T)); ++j)
      word.values[j] = constant_factors[first + element + j];
    return word;
  }
};
#endif

// out[a, k, b] = sum_c f(c, k) in[a, c, b] in registers, for a < before and b < after. The sum runs
// over c in order with one accumulator.
template <class T, class Axis, int before, int after, class Matrix>
__device__ void multiply_registers(const Matrix& factor, const T* in, T* out) {
  using Layout = FactorLayout<T, Axis>;
  constexpr int C = Axis::C, K = Axis::K, fibres = before * after;
  constexpr int together = Matrix::sums < K ? 1 : Matrix::sums / K;
  UNROLLED for (int first = 0; first < fibres; first += together) {
    T sums[together][Layout::stride] = {};
    UNROLLED for (int c = 0; c < C; ++c)
      UNROLLED for (int k = 0; k < K; k += Layout::word) {
        const FactorWord<T> word = factor.load(c * Layout::stride + k);
        UNROLLED for (int f = 0; f < together; ++f)
          if (first + f < fibres) {
            const int a = (first + f) / after, b = (first + f) % after;
            UNROLLED for (int j = 0; j < Layout::word; ++j)
              sums[f][k + j] =
                  multiply_add(sums[f][k + j], in[(a * C + c) * after + b], word.values[j]);
          }
      }
    UNROLLED for (int f = 0; f < together; ++f)
      if (first + f < fibres) {
        const int a = (first + f) / after, b = (first + f) % after;
        UNROLLED for (int k = 0; k < K; ++k) out[(a * K + k) * after + b] = sums[f][k];
      }
  }
}

// Multiplies `in` along all axes, one after another, and calls use(result).
template <class T, int before, class Factors, class Use>
__device__ void multiply_axes(const Factors&, const T* in, RegisterAxes<>, Use use) { use(in); }
template <class T, int before, class Factors, class Axis, class... Rest, class Use>
__device__ void multiply_axes(const Factors& factors, const T* in, RegisterAxes<Axis, Rest...>,
                              Use use) {
  constexpr int after = RegisterAxes<Rest...>::inputs;
  if constexpr (Axis::factor < 0) {
    multiply_axes<T, before * Axis::C>(factors, in, RegisterAxes<Rest...>{}, use);
  } else {
    T out[before * Axis::K * after];
    multiply_registers<T, Axis, before, after>(factors.template at<Axis::factor>(), in, out);
    multiply_axes<T, before * Axis::K>(factors, out, RegisterAxes<Rest...>{}, use);
  }
}

}  // namespace batchkron
