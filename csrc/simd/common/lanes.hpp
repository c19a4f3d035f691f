// Vectors whose lanes belong to different products: loading a lane each from rows that lie apart,
// by contiguous loads and transposes in registers, and summing over the lanes. The vectors' element
// order in memory is [element][lane].
#pragma once

#include "simd/common/vectors.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace lanes {

template <class T>
constexpr int kLanes = widest<T>;

// Unlike those of simd/common/vectors.hpp, these vectors have elements of type T. There are none of
// complex numbers except of width 1, which is the number itself.
template <class T, int width>
struct Vector {
  typedef T type __attribute__((vector_size(width * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <class T>
struct Vector<T, 1> {
  typedef T type;
};
template <class T, int width>
using Pack = typename Vector<T, width>::type;
template <class T>
using Wide = Pack<T, kLanes<T>>;

// Elements of a 128-bit part of a vector: shuffles within parts are cheaper than across them.
template <class T>
constexpr int kPart = 16 / int(sizeof(T));
template <class T>
constexpr int kParts = kLanes<T> / kPart<T>;

// The indices 0 ... count - 1.
template <int count>
using UpTo = typename CountTo<count>::type;

template <class V, class T>
inline V load(const T* p) {
  return *reinterpret_cast<const V*>(p);
}
template <class V, class T>
inline void store(T* p, V v) {
  *reinterpret_cast<V*>(p) = v;
}

// Within each 128-bit part: the elements of a's and b's lower halves alternating, or of the upper
// halves.
template <class T, int upper, class V, int... i>
inline V zip(V a, V b, Indices<i...>) {
  constexpr int part = kPart<T>, other = sizeof...(i);
  return __builtin_shufflevector(
      a, b, (i / part * part + part / 2 * upper + i % part / 2 + (i % 2 ? other : 0))...);
}
// Within each part: a's lower half and then b's, or the upper halves.
template <class T, int upper, class V, int... i>
inline V halves(V a, V b, Indices<i...>) {
  constexpr int part = kPart<T>, half = part / 2, other = sizeof...(i);
  return __builtin_shufflevector(
      a, b, (i / part * part + half * upper + i % half + (i % part / half ? other : 0))...);
}
// Of whole parts: the even ones of a and then of b, or the odd ones.
template <class T, int odd, class V, int... i>
inline V every_other_part(V a, V b, Indices<i...>) {
  constexpr int part = kPart<T>;
  return __builtin_shufflevector(a, b, ((2 * (i / part) + odd) * part + i % part)...);
}
template <class T, int width, int... i>
inline Pack<T, 2 * width> joined(Pack<T, width> a, Pack<T, width> b, Indices<i...>) {
  return __builtin_shufflevector(a, b, i...);
}

// Part p of kPart vectors is a square matrix; transposes all of these.
template <class T, class V, class All>
inline void transpose_parts(V* v, All all) {
  const V a = zip<T, 0>(v[0], v[1], all), b = zip<T, 1>(v[0], v[1], all);
  v[0] = a;
  v[1] = b;
  if constexpr (kPart<T> == 4) {
    const V c = zip<T, 0>(v[2], v[3], all), d = zip<T, 1>(v[2], v[3], all);
    v[0] = halves<T, 0>(a, c, all);
    v[1] = halves<T, 1>(a, c, all);
    v[2] = halves<T, 0>(b, d, all);
    v[3] = halves<T, 1>(b, d, all);
  }
}

// A vector of `width` elements: `piece` consecutive ones, from `offset` on, from each of rows[0],
// rows[kPart], rows[2 kPart], ...
template <class T, int width, int piece>
inline Pack<T, width> gather(const T* const* rows, Index offset) {
  if constexpr (width == piece) {
    return load<Pack<T, width>>(rows[0] + offset);
  } else {
    constexpr int half = width / 2;
    return joined<T, half>(gather<T, half, piece>(rows, offset),
                           gather<T, half, piece>(rows + half / piece * kPart<T>, offset),
                           UpTo<width>{});
  }
}

// target[element, lane] = rows[lane][element] for the `parts` * kPart elements from `offset` on.
template <class T, int parts>
inline void interleave_piece(const T* const* rows, Index offset, T* target) {
  constexpr int width = kLanes<T>, part = kPart<T>, piece = parts * part;
  constexpr int copies = width / piece;
  using V = Wide<T>;
  const UpTo<width> all;
  V v[piece];
  BATCHKRON_UNROLL
  for (int group = 0; group < parts; ++group) {
    BATCHKRON_UNROLL
    for (int i = 0; i < part; ++i)
      v[group * part + i] = gather<T, width, piece>(rows + group * copies * part + i, offset);
    transpose_parts<T>(v + group * part, all);
  }
  target += offset * width;
  BATCHKRON_UNROLL
  for (int i = 0; i < part; ++i) {
    if constexpr (parts == 1) {
      store(target + i * width, v[i]);
    } else {
      store(target + i * width, every_other_part<T, 0>(v[i], v[part + i], all));
      store(target + (part + i) * width, every_other_part<T, 1>(v[i], v[part + i], all));
    }
  }
}

// target[element, lane] = rows[lane][element] for all `size` elements; rows are not read beyond
// `size`. Two parts of a row are loaded at a time: wider loads would spare shuffles, but cost more
// by straddling cache lines.
template <class T>
inline void interleave(const T* const* rows, Index size, T* target) {
  constexpr int part = kPart<T>, parts = kParts<T> < 2 ? 1 : 2;
  Index i = 0;
  for (; i + parts * part <= size; i += parts * part)
    interleave_piece<T, parts>(rows, i, target);
  if (i + part <= size) {
    interleave_piece<T, 1>(rows, i, target);
    i += part;
  }
  if (i == size) return;
  if (size >= part) return interleave_piece<T, 1>(rows, size - part, target);
  for (; i < size; ++i)
    for (int lane = 0; lane < kLanes<T>; ++lane) target[i * kLanes<T> + lane] = rows[lane][i];
}

// For kPart elements [element][lane] the sums over all lanes, each in a lane of the result.
template <class T>
inline Pack<T, kPart<T>> lane_sums(const T* sums) {
  constexpr int part = kPart<T>;
  using V = Pack<T, part>;
  V v[part];
  BATCHKRON_UNROLL
  for (int i = 0; i < part; ++i) {
    v[i] = load<V>(sums + i * kLanes<T>);
    BATCHKRON_UNROLL
    for (int j = part; j < kLanes<T>; j += part) v[i] += load<V>(sums + i * kLanes<T> + j);
  }
  transpose_parts<T>(v, UpTo<part>{});
  BATCHKRON_UNROLL
  for (int i = 1; i < part; ++i) v[0] += v[i];
  return v[0];
}

}  // namespace lanes
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
