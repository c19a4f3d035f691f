// The Kronecker product of two matrices as a dense matrix, written in bands of rows.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/explicit/words.cuh"

namespace batchkron {

// One product, or several ("slices") whose results follow each other in memory: the matrices of
// slice z begin at a_data + z / b_slices * a_slice and b_data + z % b_slices * b_slice. Addresses
// come first in the struct, because a launch fills in its first fields only. A band is as many rows
// of a as make whole words of the result, or whole lines of the cache.
template <class T>
struct ExplicitKronArguments {
  const T *a_data, *b_data;
  T* out;
  MatrixLayout a, b;
  Index b_slices, a_slice, b_slice;
  Index total;                   // elements of out in a slice
  Index words;                   // words of a band
  Index a_band, out_band;        // elements from a band to the next one, in a and in out
  Index whole, rest;             // whole bands of a slice, and elements after the last of them
  Index repeats, groups, parts;  // bands a thread block, thread blocks a slice, and of all slices
  Index alignment;               // bytes that the address of the first word is a multiple of
  // floor((2^32 - 1) / n) where n is the columns of out, the rows of b, and the columns of b
  unsigned over_columns, over_b_rows, over_b_columns;
};

// What a thread keeps of one word of a band: its elements of b, and the offsets from the band's
// first row of the elements of a that these are multiplied by. `entries` is how many of a a word
// needs at most: 1 for the whole word, 2 (one before element `cut` of the word and one from there
// on), or one for each element.
template <class T, int elements, int bytes, int entries, class Size>
struct HeldWord {
  using Offset = typename Choice<sizeof(Size) == 4, int, Index>::Type;
  using Word = OutWord<T, elements, bytes>;

  Word b;
  Size a[entries];
  int cut;

  // Reads the word that begins at element `place` of a band.
  __device__ void read(const ExplicitKronArguments<T>& x, const T* b_data, Size place) {
    const Size a_row = Size(x.a.row), a_column = Size(x.a.column);
    const Size b_row = Size(x.b.row), b_column = Size(x.b.column);
    const Size columns = Size(x.a.columns), rows = Size(x.b.rows), width = Size(x.b.columns);
    const Division<Size> in_row = divide(place, columns * width, x.over_columns);
    const Division<Size> in_b = divide(in_row.rest, width, x.over_b_columns);
    const Division<Size> in_a = divide(in_row.quotient, rows, x.over_b_rows);
    Size i = in_a.quotient, k = in_a.rest, j = in_b.quotient, l = in_b.rest;
    // goes on to the next element of a, in the order of elements of out
    const auto advance = [&] {
      if (++j == columns) {
        j = 0;
        if (++k == rows) {
          k = 0;
          ++i;
        }
      }
    };
    const auto load = [&](Size offset) { return b_data[Offset(offset)]; };
    Size from = k * b_row + l * b_column;
    a[0] = i * a_row + j * a_column;
    cut = elements;
    if constexpr (entries == 1) {
      const bool aligned = b_column == 1 && b_row % elements == 0 &&
                           reinterpret_cast<Bits>(b_data) % bytes == 0;
      if (aligned) b = *reinterpret_cast<const Word*>(b_data + Offset(from));
      else for (int t = 0; t < elements; ++t) b.values[t] = load(from + Size(t) * b_column);
    } else if constexpr (entries == 2) {
      Size after = from;
      a[1] = a[0];
      if (width - l < elements) {
        cut = int(width - l);
        advance();
        after = k * b_row - Size(cut) * b_column;
        a[1] = i * a_row + j * a_column;
      }
      for (int t = 0; t < elements; ++t)
        b.values[t] = load((t < cut ? from : after) + Size(t) * b_column);
    } else {
      b.values[0] = load(from);
      for (int t = 1; t < elements; ++t) {
        if (++l == width) {
          l = 0;
          advance();
        }
        b.values[t] = load(k * b_row + l * b_column);
        a[t] = i * a_row + j * a_column;
      }
    }
  }

  __device__ void load(T (&values)[entries], const T* band) const {
    for (int e = 0; e < entries; ++e) values[e] = band[Offset(a[e])];
  }

  __device__ Word product(const T (&values)[entries]) const {
    Word result;
    for (int t = 0; t < elements; ++t) {
      const T value = entries == elements ? values[t] : t < cut ? values[0] : values[entries - 1];
      result.values[t] = multiply(value, b.values[t]);
    }
    return result;
  }
};

// out[i * b.rows + k, j * b.columns + l] = a[i, j] b[k, l]
// a and b have any strides; out is row-major, contiguous, aligned to an element, overlaps neither,
// and is never read. Each element is one multiplication. out is written as one sequence of words
// across its rows. All bands have the same elements of b in the same places, so a thread keeps its
// words of b in registers and goes down the bands, `batch` of them at a time: a word then costs loads
// of a, multiplies and a store. `bytes` is the size and alignment of a word. Elements before the first
// word and after the last one are written singly. Bands of whole lines have no warp that stores to
// parts of lines, which the cache takes 1.2 times as long for.
template <class T, int elements, int bytes, int entries, class Size, int threads, int words,
          int batch, bool streaming>
__global__ void __launch_bounds__(threads) explicit_kron(const ExplicitKronArguments<T> x) {
  wait_for_earlier_kernels();
  using Held = HeldWord<T, elements, bytes, entries, Size>;
  using Word = typename Held::Word;
  using Offset = typename Held::Offset;
  const Size band_elements = Size(x.words) * elements, rest = Size(x.rest), whole = Size(x.whole);
  const Size bands = whole + (rest > 0), repeats = Size(x.repeats);
  const Size first = Size(blockIdx.x) * (threads * words) + threadIdx.x;
  for (unsigned part = blockIdx.y; part < unsigned(x.parts); part += gridDim.y) {
    unsigned group = part;
    Matrix<T> a{x.a, x.a_data}, b{x.b, x.b_data};
    T* out = x.out;
    if (x.groups != x.parts) {
      const unsigned slice = part / unsigned(x.groups);
      group = part % unsigned(x.groups);
      a.data += slice / unsigned(x.b_slices) * x.a_slice;
      b.data += slice % unsigned(x.b_slices) * x.b_slice;
      out += slice * x.total;
    }
    const Size head =
        elements > 1 ? Size(-reinterpret_cast<Bits>(out) % Bits(x.alignment) / sizeof(T)) : Size(0);
    if (elements > 1 && blockIdx.x == 0 && group == 0)
      write_ends<elements, threads>(a, b, out, x.total, head);

    const Size begin = group * repeats;
    const Offset limit = Offset(repeats < bands - begin ? repeats : bands - begin);
    Held held[words];
    Offset live[words], minimum = limit;
    UNROLLED for (int u = 0; u < words; ++u) {
      const Size word = first + u * threads, end = head + (word + 1) * elements;
      // the number of bands in which the whole word lies in the slice
      const Offset ends = Offset(whole - begin) + (end <= rest) - (end > band_elements + rest);
      live[u] = word >= Size(x.words) ? 0 : ends < limit ? ends : limit;
      minimum = minimum < live[u] ? minimum : live[u];
      if (live[u] > 0) held[u].read(x, b.data, end - elements);
    }
    const Index step = x.a_band, out_step = x.out_band;
    const T* a_band = a.data + begin * step;
    T* target = out + begin * out_step + (head + first * elements);
    Offset done = 0;
    UNROLLED_BY(1) for (; done + batch <= minimum; done += batch) {
      T values[batch][words][entries];
      UNROLLED for (int q = 0; q < batch; ++q)
        UNROLLED for (int u = 0; u < words; ++u) held[u].load(values[q][u], a_band + q * step);
      UNROLLED for (int q = 0; q < batch; ++q)
        UNROLLED for (int u = 0; u < words; ++u)
          put<streaming>(reinterpret_cast<Word*>(target + q * out_step) + u * threads,
                         held[u].product(values[q][u]));
      a_band += batch * step;
      target += batch * out_step;
    }
    UNROLLED_BY(1) for (; done < limit; ++done) {
      UNROLLED for (int u = 0; u < words; ++u) {
        if (done >= live[u]) continue;
        T values[entries];
        held[u].load(values, a_band);
        put<streaming>(reinterpret_cast<Word*>(target) + u * threads, held[u].product(values));
      }
      a_band += step;
      target += out_step;
    }
  }
}

}  // namespace batchkron
