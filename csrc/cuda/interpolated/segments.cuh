// The transpose of interpolation, the sums of cuda/interpolated/scatter.cuh, in two kernels. A row has all points whose windows have the same corner in all modes but the last. It is cut into
// segments, some points one behind another. The windows of a segment meet 4^(N-1) rows of cells,
// its leads. Their cells, from the corner of the segment's first point to the end of the last one's
// window, are the segment's span, rounded up to whole groups of four cells.
//
// 1. `interpolate_segments` sums over the points of each segment:
//      partial[((base 4^(N-1) + lead span + cell - first) vectors + r]
//    with base, span and first of the segment. A thread has one vector and 4^inner leads, with a
//    window of four sums in each: it follows the corners of the points along the last mode. A sum
//    that the window leaves behind is written. The weights of the modes before the inner ones are
//    multiplied to one factor. All loads of `batch` points are begun together.
// 2. `interpolate_cells` sums over the segments that meet a cell, which `covers` has for each row
//    and each cell of the last mode. `share` lanes have one sum: `turns` of them take turns at the
//    segments of a row, and share / turns at the leads. Their sums are added in a tree.
// All sums have a fixed order and no addition is atomic: results have the same bits in each run.
// weights and partial need an alignment of 16 bytes, points and grid that of an element; arrays may
// not overlap. The grid is not read; cells without points become zero. It has fewer than 2^27
// cells. Segments behind the last point are empty and write nothing.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/interpolated/windows.cuh"

namespace batchkron {

template <class T>
struct __align__(16) FourWeights {
  T values[kWindow];
};

// Writes four elements side by side.
template <class T>
__device__ void store_four(T* to, T a, T b, T c, T d) {
  if constexpr (sizeof(T) == 4) {
    put(to, Elements<T, 4>{a, b, c, d});
  } else {
    put(to, Elements<T, 2>{a, b});
    put(to + 2, Elements<T, 2>{c, d});
  }
}

template <int modes, int vectors, int inner>
struct SegmentThreads {
  static_assert(inner >= 0 && inner < 2 && inner < modes, "");
  static constexpr int outer = modes - 1 - inner;  // modes that are one factor
  static constexpr int held = 1 << 2 * inner;      // leads of a thread
  static constexpr int leads = 1 << 2 * (modes - 1);
  static constexpr int lanes = leads / held * vectors;  // threads of a segment
};

// What a thread keeps of a point.
template <class T, int inner>
struct PointTerms {
  T factor;  // the point's value times the weights of the outer modes
  int column;
  FourWeights<T> weights[inner + 1];
};

template <class T, int modes, int vectors, int inner>
__device__ PointTerms<T, inner> terms_of(const InterpolationArguments<T, modes>& a, Index p,
                                         PointEntry entry, Index vector, int outer_lead,
                                         bool is_there) {
  using Cut = SegmentThreads<modes, vectors, inner>;
  PointTerms<T, inner> terms;
  const T* weights = a.weights + p * modes * kWindow;
  terms.column = entry.column;
  terms.factor = a.points[entry.place * a.point_step + vector];
  UNROLLED for (int k = 0; k <= inner; ++k)
    terms.weights[k] =
        *reinterpret_cast<const FourWeights<T>*>(weights + (Cut::outer + k) * kWindow);
  UNROLLED for (int k = 0; k < Cut::outer; ++k) {
    const int digit = outer_lead >> 2 * (Cut::outer - 1 - k) & (kWindow - 1);
    terms.factor = multiply(terms.factor, weights[k * kWindow + digit]);
  }
  if (!is_there) terms.factor = 0;
  return terms;
}

// Sums of one thread, of the cells `column`, ..., `column` + 3 of its leads.
template <class T, int held, int vectors>
struct WindowSums {
  static constexpr bool by_fours = vectors == 1;  // else neighbouring threads write side by side
  T sums[held][kWindow] = {};
  T behind[by_fours ? held : 1][kWindow - 1] = {};  // the last three cells that were left
  T* target;     // the first lead's first cell
  Index apart;   // elements from lead to lead
  int position = 0;  // of `column` in the span

  // Writes the sums of one cell and goes to the next one.
  __device__ void advance() {
    UNROLLED for (int r = 0; r < held; ++r) {
      const T sum = sums[r][0];
      if constexpr (by_fours) {
        if (position % kWindow == kWindow - 1)
          store_four(target + r * apart + position - (kWindow - 1), behind[r][0], behind[r][1],
                     behind[r][2], sum);
        behind[r][0] = behind[r][1];
        behind[r][1] = behind[r][2];
        behind[r][2] = sum;
      } else {
        target[r * apart + Index(position) * vectors] = sum;
      }
      UNROLLED for (int i = 0; i < kWindow - 1; ++i) sums[r][i] = sums[r][i + 1];
      sums[r][kWindow - 1] = 0;
    }
    ++position;
  }

  template <int inner>
  __device__ void add_point(const PointTerms<T, inner>& point) {
    UNROLLED for (int r = 0; r < held; ++r) {
      T scaled = point.factor;
      UNROLLED for (int k = 0; k < inner; ++k)
        scaled = multiply(scaled, point.weights[k].values[r >> 2 * (inner - 1 - k) & 3]);
      UNROLLED for (int i = 0; i < kWindow; ++i)
        sums[r][i] = multiply_add(sums[r][i], point.weights[inner].values[i], scaled);
    }
  }
};

template <class T, int modes, int vectors, int inner, int batch, int threads>
__global__ void __launch_bounds__(threads)
    interpolate_segments(InterpolationArguments<T, modes> a) {
  wait_for_earlier_kernels();
  using Cut = SegmentThreads<modes, vectors, inner>;
  const Index work = a.segment_count * Cut::lanes, step = Index(gridDim.x) * threads;
  for (Index w = Index(blockIdx.x) * threads + threadIdx.x; w < work; w += step) {
    const int lane = int(w % Cut::lanes);
    const int outer_lead = lane / vectors;
    const PointSegment segment = a.segments[w / Cut::lanes];
    const int end = a.segments[w / Cut::lanes + 1].begin;
    if (segment.begin == end) continue;
    const Index vector = a.vectors[lane % vectors];
    WindowSums<T, Cut::held, vectors> window;
    window.apart = Index(segment.span) * vectors;
    window.target = a.partial + lane % vectors + Index(segment.base) * Cut::leads * vectors +
                    outer_lead * Cut::held * window.apart;
    PointEntry entries[batch];  // one batch ahead, as the addresses of values depend on them
    UNROLLED for (int u = 0; u < batch; ++u)
      entries[u] = a.entries[segment.begin + u < end ? segment.begin + u : end - 1];
    for (int first = segment.begin; first < end; first += batch) {
      PointTerms<T, inner> points[batch];
      UNROLLED for (int u = 0; u < batch; ++u) {
        const bool is_there = first + u < end;
        points[u] = terms_of<T, modes, vectors, inner>(a, is_there ? first + u : end - 1,
                                                       entries[u], vector, outer_lead, is_there);
        const int next = first + batch + u;
        entries[u] = a.entries[next < end ? next : end - 1];
      }
      UNROLLED for (int u = 0; u < batch; ++u) {
        while (window.position < points[u].column - segment.first) window.advance();
        window.add_point(points[u]);
      }
    }
    while (window.position < segment.span) window.advance();
  }
}

template <class T, int modes, int vectors, int share, int turns, int threads>
__global__ void __launch_bounds__(threads) interpolate_cells(InterpolationArguments<T, modes> a) {
  wait_for_earlier_kernels();
  static_assert(32 % share == 0 && share % turns == 0, "");
  constexpr int last = modes - 1, elements = 32 / share, leads = 1 << 2 * last;
  constexpr int parts = share / turns;  // of the leads
  constexpr int together = leads / parts < 4 ? leads / parts : 4;
  static_assert(parts <= leads, "");
  unsigned total = vectors;
  UNROLLED for (int k = 0; k < modes; ++k) total *= unsigned(a.sizes[k]);
  const unsigned cells_of_row = unsigned(a.sizes[last]);
  const int lane = threadIdx.x % 32, part = lane / elements;
  const unsigned step = gridDim.x * (threads / 32) * elements;
  unsigned warp = (blockIdx.x * (threads / 32) + threadIdx.x / 32) * elements;
  for (; warp < total; warp += step) {  // all lanes of a warp stay together
    const unsigned element = warp + lane % elements, cell = element / vectors;
    const int vector = element % vectors, column = int(cell % cells_of_row);
    int at[modes];
    unsigned rest = cell / cells_of_row;
    UNROLLED for (int k = last - 1; k >= 0; --k) {
      at[k] = int(rest % unsigned(a.sizes[k]));
      rest /= unsigned(a.sizes[k]);
    }
    T sum = 0;
    for (int first = part / turns; first < leads && element < total; first += parts * together) {
      SegmentRange ranges[together];
      UNROLLED for (int j = 0; j < together; ++j) {
        const int lead = first + j * parts;
        bool inside = true;
        int row = 0;
        UNROLLED for (int k = 0; k < last; ++k) {
          const int corners = int(a.sizes[k]) - kWindow + 1;
          const int corner = at[k] - (lead >> 2 * (last - 1 - k) & (kWindow - 1));
          inside = inside && corner >= 0 && corner < corners;
          row = row * corners + corner;
        }
        ranges[j] = {0, 0};
        if (inside) ranges[j] = a.covers[Index(row) * cells_of_row + column];
        ranges[j].begin += part % turns;
      }
      for (bool more = true; more;) {
        more = false;
        Index places[together];
        UNROLLED for (int j = 0; j < together; ++j) {
          places[j] = -1;
          if (ranges[j].begin < ranges[j].end) {
            const PointSegment s = a.segments[ranges[j].begin];
            const int lead = first + j * parts;
            places[j] = Index(s.base) * leads + Index(lead) * s.span + column - s.first;
          }
          ranges[j].begin += turns;
          more = more || ranges[j].begin < ranges[j].end;
        }
        T values[together];
        UNROLLED for (int j = 0; j < together; ++j)
          values[j] = places[j] >= 0 ? a.partial[places[j] * vectors + vector] : T(0);
        UNROLLED for (int j = 0; j < together; ++j) sum = add(sum, values[j]);
      }
    }
    UNROLLED for (int distance = elements; distance < 32; distance *= 2)
      sum = add(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    if (element < total && part == 0) a.grid[Index(cell) * a.cell_step + vector] = sum;
  }
}

}  // namespace batchkron
