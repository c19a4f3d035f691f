// What kernels of batch lists in registers share: pools, records of the list, arguments.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// Pool of one step: matrix `id` of system s begins at data + s * system + id * (its whole sectors),
// [c][k], and is 16-byte aligned.
template <class T>
struct Pool {
  const T* data;
  Index system;
};

// Bytes from one matrix of a pool to the next: each touches as few sectors as possible.
template <class T>
constexpr int matrix_pitch(int elements) {
  const int bytes = (elements * int(sizeof(T)) + 15) / 16 * 16;
  return bytes <= 16 ? 16 : (bytes + 31) / 32 * 32;
}

// x is (outer, num_inputs, input size) and y likewise; entry e of outer is of system e mod systems.
// The products of output o are starts[o] to starts[o + 1], in order. `list` holds for each product a
// record of whole words: its input and the ids of its steps' matrices. With slots > 0 it holds so many
// records for each output, those beyond its products of input -1. y is overwritten unless
// `accumulate`.
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

// A product's record of the list. Ids are of 16 bits or 32; an identity's are all ones.
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

// `count` consecutive elements, which begin at a multiple of their bytes from a 16-byte word.
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
#pragma unroll
  for (int i = 0; i < bytes / width; ++i) loaded.chunks[i] = chunks[i];
  memcpy(values, loaded.chunks, bytes);
}

// A product's record in registers; the input is -1 where there is no product.
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

// The factors of one product in memory.
template <class T, class Layout, class Record, bool identities>
struct PoolFactors {
  const Pool<T>* pools;
  Index system;
  Record record;

  template <int s>
  __device__ bool skips() const {
    return identities && record.template id<s>() < 0;
  }
  // The matrix, or any of the pool for an identity.
  template <int s>
  __device__ const T* at() const {
    const int id = skips<s>() ? 0 : record.template id<s>();
    const unsigned char* const pool =
        reinterpret_cast<const unsigned char*>(pools[s].data + system * pools[s].system);
    return reinterpret_cast<const T*>(pool + Index(id) * Layout::template pitch<T>(s));
  }
};

}  // namespace batchkron
