// Neighbouring elements that are read and written in one access.
#pragma once

namespace batchkron {

template <class T, int count>
struct alignas(count == 1 ? alignof(T) : count * sizeof(T)) Elements {
  T values[count];
};

// Writes them to global memory with one instruction; in assembly, because compilers split the store
// where they do not see that the parts of the address add up to a whole word.
// Numbers stay in registers of their own type; all others are moved as words of 4 bytes.
__device__ inline void put(float* to, const Elements<float, 4>& word) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(word.values[0]),
               "f"(word.values[1]), "f"(word.values[2]), "f"(word.values[3])
               : "memory");
}
__device__ inline void put(float* to, const Elements<float, 2>& pair) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(pair.values[0]),
               "f"(pair.values[1])
               : "memory");
}
__device__ inline void put(double* to, const Elements<double, 2>& word) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(to), "d"(word.values[0]),
               "d"(word.values[1])
               : "memory");
}
template <class T, int count>
__device__ void put(T* to, const Elements<T, count>& elements) {
  constexpr int bytes = count * int(sizeof(T));
  if constexpr (bytes >= 8) {
    unsigned parts[bytes / 4];
    memcpy(parts, elements.values, bytes);
    if constexpr (bytes == 16)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(parts[0]),
                   "r"(parts[1]), "r"(parts[2]), "r"(parts[3])
                   : "memory");
    else
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(parts[0]), "r"(parts[1])
                   : "memory");
  } else {
    *reinterpret_cast<Elements<T, count>*>(to) = elements;
  }
}

}  // namespace batchkron
