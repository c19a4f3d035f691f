// Multiplies along several modes of a block in a thread's registers, and where the thread's part of
// the block is in shared memory.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// A mode that a thread holds whole: C entries, `from` elements apart where the pass reads, become K
// entries, `to` elements apart where it writes.
template <int step_, int C_, int K_, int from_, int to_>
struct HeldMode {
  static constexpr int step = step_, C = C_, K = K_, from = from_, to = to_;
};

// A mode whose entries belong to different items, which are divided among threads.
template <int size_, int from_, int to_>
struct SpreadMode {
  static constexpr int size = size_, from = from_, to = to_;
};

// All held modes; the first is the slowest index of the registers. from(i), to(i): offset of
// register i.
template <class... Mode>
struct HeldModes {
  static constexpr int inputs = (Mode::C * ... * 1), outputs = (Mode::K * ... * 1);

  static constexpr int from(int i) {
    constexpr int sizes[] = {Mode::C..., 1}, strides[] = {Mode::from..., 0};
    return offset(sizes, strides, i);
  }
  static constexpr int to(int i) {
    constexpr int sizes[] = {Mode::K..., 1}, strides[] = {Mode::to..., 0};
    return offset(sizes, strides, i);
  }
  // Whether registers are read (written) as whole words of `pack` neighbouring elements.
  static constexpr bool reads_words(int pack) {
    for (int i = 0; i < inputs; ++i)
      if (inputs % pack != 0 || from(i) != from(i - i % pack) + i % pack || from(i - i % pack) % pack)
        return false;
    return true;
  }
  static constexpr bool writes_words(int pack) {
    for (int i = 0; i < outputs; ++i)
      if (outputs % pack != 0 || to(i) != to(i - i % pack) + i % pack || to(i - i % pack) % pack)
        return false;
    return true;
  }

 private:
  template <int count>
  static constexpr int offset(const int (&sizes)[count], const int (&strides)[count], int i) {
    int sum = 0;
    UNROLLED for (int mode = count - 1; mode >= 0; --mode) {
      sum += i % sizes[mode] * strides[mode];
      i /= sizes[mode];
    }
    return sum;
  }
};

// All spread modes, the fastest first. from(i), to(i): offset of item i.
template <class... Mode>
struct SpreadModes {
  static constexpr int size = (Mode::size * ... * 1);

  static constexpr bool from_words(int pack) { return ((Mode::from % pack == 0) && ... && true); }
  static constexpr bool to_words(int pack) { return ((Mode::to % pack == 0) && ... && true); }
  __device__ static int from(int i) {
    int sum = 0;
    ((sum += i % Mode::size * Mode::from, i /= Mode::size), ...);
    return sum;
  }
  __device__ static int to(int i) {
    int sum = 0;
    ((sum += i % Mode::size * Mode::to, i /= Mode::size), ...);
    return sum;
  }
};

// A word of 16 bytes of shared memory.
template <class T>
struct alignas(16) Word {
  static constexpr int pack = 16 / int(sizeof(T));
  T values[pack];
};

template <class T, class Held, class Spread>
__device__ void load_held(const T* source, int item, T* registers) {
  constexpr int pack = Word<T>::pack;
  source += Spread::from(item);
  if constexpr (Held::reads_words(pack) && Spread::from_words(pack)) {
    UNROLLED for (int i = 0; i < Held::inputs; i += pack) {
      const Word<T> word = *reinterpret_cast<const Word<T>*>(source + Held::from(i));
      UNROLLED for (int j = 0; j < pack; ++j) registers[i + j] = word.values[j];
    }
  } else {
    UNROLLED for (int i = 0; i < Held::inputs; ++i) registers[i] = source[Held::from(i)];
  }
}

template <class T, class Held, class Spread>
__device__ void store_held(T* target, int item, const T* registers) {
  constexpr int pack = Word<T>::pack;
  target += Spread::to(item);
  if constexpr (Held::writes_words(pack) && Spread::to_words(pack)) {
    UNROLLED for (int i = 0; i < Held::outputs; i += pack) {
      Word<T> word;
      UNROLLED for (int j = 0; j < pack; ++j) word.values[j] = registers[i + j];
      *reinterpret_cast<Word<T>*>(target + Held::to(i)) = word;
    }
  } else {
    UNROLLED for (int i = 0; i < Held::outputs; ++i) target[Held::to(i)] = registers[i];
  }
}

// out[a, k, b] = sum_c f(c, k) in[a, c, b] in registers, for a < before and b < after, c in order.
// The factor is [c][k], or [k][c] with by_row, padded to whole words of 16 bytes. Factors of up to 8
// words are loaded to registers first, and fibres are computed one after another; of larger ones a
// word at a time is loaded and used for all fibres.
template <class T, bool by_row, int before, int C, int K, int after>
__device__ void multiply_held_mode(const T* factor, const T* in, T* out) {
  constexpr int pack = Word<T>::pack, words = (C * K + pack - 1) / pack;
  constexpr int c_step = by_row ? 1 : K, k_step = by_row ? C : 1;
  const Word<T>* const source = reinterpret_cast<const Word<T>*>(factor);
  if constexpr (words <= 8) {
    Word<T> held[words];
    UNROLLED for (int i = 0; i < words; ++i) held[i] = source[i];
    UNROLLED for (int a = 0; a < before; ++a)
      UNROLLED for (int b = 0; b < after; ++b)
        UNROLLED for (int k = 0; k < K; ++k) {
          T sum{};
          UNROLLED for (int c = 0; c < C; ++c)
            sum = multiply_add(sum, in[(a * C + c) * after + b],
                               held[(c * c_step + k * k_step) / pack]
                                   .values[(c * c_step + k * k_step) % pack]);
          out[(a * K + k) * after + b] = sum;
        }
  } else {
    UNROLLED for (int i = 0; i < before * K * after; ++i) out[i] = T{};
    UNROLLED for (int i = 0; i < words; ++i) {
      const Word<T> word = source[i];
      UNROLLED for (int j = 0; j < pack; ++j) {
        const int place = i * pack + j;
        const int c = by_row ? place % C : place / K, k = by_row ? place / C : place % K;
        if (place < C * K)
          UNROLLED for (int f = 0; f < before * after; ++f) {
            const int a = f / after, b = f % after;
            out[(a * K + k) * after + b] =
                multiply_add(out[(a * K + k) * after + b], in[(a * C + c) * after + b], word.values[j]);
          }
      }
    }
  }
}

// Multiplies `in` along the held modes, one after another, and calls use(result). Factors::by_row
// says how matrices are stored.
template <class T, int before, class Factors, class Use>
__device__ void multiply_held(const Factors&, const T* in, HeldModes<>, Use use) { use(in); }
template <class T, int before, class Factors, class Mode, class... Rest, class Use>
__device__ void multiply_held(const Factors& factors, const T* in, HeldModes<Mode, Rest...>,
                              Use use) {
  constexpr int after = HeldModes<Rest...>::inputs;
  T out[before * Mode::K * after];
  if (factors.template skips<Mode::step>()) {
    UNROLLED for (int i = 0; i < before * Mode::K * after; ++i)
      out[i] = Mode::C == Mode::K ? in[i] : T{};
  } else {
    multiply_held_mode<T, Factors::by_row, before, Mode::C, Mode::K, after>(
        factors.template at<Mode::step>(), in, out);
  }
  multiply_held<T, before * Mode::K>(factors, out, HeldModes<Rest...>{}, use);
}

}  // namespace batchkron
