// What the kernels of batch lists with single vectors share (batched_units, batched_unit_slices,
// batched_slices, batched_registers): pools of matrices, records of the list, arguments, contract.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// The pool of matrices of one step (mode): matrix `id` of system s is [c][k] (input index first)
// and begins s * system elements and id * matrix_pitch bytes behind data; each is aligned to 16
// bytes.
template <class T>
struct Pool {
  const T* data;
  Index system;
};

// Bytes from one matrix of a pool to the next, so that each touches as few sectors (32 bytes of
// memory) as possible.
template <class T>
constexpr int matrix_pitch(int elements) {
  const int bytes = (elements * int(sizeof(T)) + 15) / 16 * 16;
  return bytes <= 16 ? 16 : (bytes + 31) / 32 * 32;
}

// For all outputs o and entries e of outer,
//   y[e, o] = alpha sum_b weights[b] (A_1b (x) ... (x) A_db) x[e, input_b],
//             where b = starts[o] ... starts[o + 1] - 1,
// or += with `accumulate`; otherwise y is never read, and outputs without products become zero. x
// is (outer, num_inputs, input size), y is (outer, num_outputs, output size), contiguous, without
// overlap. x is aligned to 16 bytes, y to an element. Entry e of outer has the matrices and weights
// of system e mod systems. `list` has a record for each product: its input and the ids of its
// matrices. With slots > 0 it has that many records for each output, and those beyond the output's
// products have input -1.
template <class T, int steps>
struct RegisterBatchArguments {
  const T* x;
  T* y;
  const int* list;
  const Index* starts;
  const T* weights;         // (systems or 1, products)
  const int* unit_weights;  // on the device: whether all weights are 1
  Pool<T> pools[steps];
  Index outer, systems, num_inputs, num_outputs, slots, weight_system, accumulate;
  T alpha;
};

// A product's record: the input, then an id for each step, of 16 bits or of 32. An id of -1 is the
// identity.
template <int steps, bool short_ids>
struct ListRecord {
  static constexpr int bytes = 4 + steps * (short_ids ? 2 : 4);
  static constexpr int words = bytes <= 8 ? 2 : (bytes + 15) / 16 * 4;

  __device__ static int input(const int* record) { return record[0]; }
  __device__ static int id(const int* record, int s) {
    if constexpr (short_ids) {
      const int value = reinterpret_cast<const unsigned short*>(record + 1)[s];
      return value == 0xffff ? -1 : value;
    } else {
      return record[1 + s];
    }
  }
};

// Loads `count` neighbouring elements by words of 16, 8 or 4 bytes, the largest that divides their
// bytes. source is aligned to such a word.
template <int count, class T>
__device__ void load_elements(const T* source, T* values) {
  constexpr int bytes = count * int(sizeof(T));
  constexpr int width = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4;
  struct alignas(width) Chunk {
    unsigned words[width / 4];
  };
  struct alignas(16) {
    Chunk chunks[bytes / width];
  } loaded;
  const Chunk* const chunks = reinterpret_cast<const Chunk*>(source);
  UNROLLED for (int i = 0; i < bytes / width; ++i) loaded.chunks[i] = chunks[i];
  memcpy(values, loaded.chunks, bytes);
}

// A product's record in registers; its input is -1 if there is no product.
template <int steps, bool short_ids>
struct HeldRecord {
  static constexpr int size = ListRecord<steps, short_ids>::words;
  int words[size];

  __device__ static HeldRecord none() {
    HeldRecord record{};
    record.words[0] = -1;
    return record;
  }
  __device__ static HeldRecord load(const int* source) {
    HeldRecord record;
    load_elements<size>(source, record.words);
    return record;
  }
  __device__ int input() const { return words[0]; }
  template <int s>
  __device__ int id() const {
    if constexpr (short_ids) {
      const int value = words[1 + s / 2] >> (16 * (s % 2)) & 0xffff;
      return value == 0xffff ? -1 : value;
    } else {
      return words[1 + s];
    }
  }
};

// The factors of one product, in global memory.
template <class T, class Layout, class Record, bool identities>
struct PoolFactors {
  static constexpr bool by_row = false;
  const Pool<T>* pools;
  Index system;
  Record record;

  template <int s>
  __device__ bool skips() const { return identities && record.template id<s>() < 0; }
  // The matrix of step s; for an identity the pool's first one, so that the address is valid.
  template <int s>
  __device__ const T* at() const {
    const int id = skips<s>() ? 0 : record.template id<s>();
    const unsigned char* const pool =
        reinterpret_cast<const unsigned char*>(pools[s].data + system * pools[s].system);
    return reinterpret_cast<const T*>(pool + Index(id) * Layout::template pitch<T>(s));
  }
};

}  // namespace batchkron
