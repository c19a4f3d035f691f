// What kernels ask of a device, as functions. Each instruction in assembly is one of its name, `.` and
// `:` as `_`, of its operands in their order.
#pragma once

#include "machine.hpp"

#define __device__
#define __global__
#define __align__(bytes)
#define __launch_bounds__(...)
#define __constant__ static

namespace emulated {

// d += a b, where a lane has rows lane / 4 and + 8 of columns lane % 4, + 4, ... of a, of b rows
// lane % 4, + 4, ... of column lane / 4, of d columns 2 (lane % 4) and + 1 of both rows.
template <int depth, class T>
void multiply_16_8(const char* name, const T (&a)[depth / 2], const T (&b)[depth / 4],
                   T (&d)[4]) {
  meet(name, a, b, d, [](Meeting& meeting) {
    for (int lane = 0; lane < kWarp; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        T& sum = static_cast<T*>(meeting.taken[lane])[i];
        for (int k = 0; k < depth; ++k)
          sum += static_cast<const T*>(meeting.given[row % 8 * 4 + k % 4][0])[k / 4 * 2 + row / 8] *
                 static_cast<const T*>(meeting.given[column * 4 + k % 4][1])[k / 4];
      }
  });
}

}  // namespace emulated

#define threadIdx (emulated::device.current->number)
#define blockIdx (emulated::device.block)
#define gridDim (emulated::device.blocks)
#define blockDim (emulated::Number{emulated::device.threads, 1})

inline void __syncwarp() {
  emulated::meet("syncwarp", nullptr, nullptr, nullptr, [](emulated::Meeting&) {});
}
inline void __syncthreads() {
  emulated::wait_at(emulated::device.barriers.back(), emulated::device.threads);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  T result;
  const int from[] = {lane % emulated::kWarp};
  emulated::meet("shuffle", &value, from, &result, [](emulated::Meeting& meeting) {
    for (int to = 0; to < emulated::kWarp; ++to)
      *static_cast<T*>(meeting.taken[to]) =
          *static_cast<const T*>(meeting.given[*static_cast<const int*>(meeting.given[to][1])][0]);
  });
  return result;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return __shfl_sync(mask, value, emulated::device.current->lane ^ distance);
}
inline void __threadfence() {}
inline bool __any_sync(unsigned, bool value) {
  bool result = false;
  emulated::meet("any", &value, nullptr, &result, [](emulated::Meeting& meeting) {
    bool any = false;
    for (auto& given : meeting.given) any |= *static_cast<const bool*>(given[0]);
    for (void* taken : meeting.taken) *static_cast<bool*>(taken) = any;
  });
  return result;
}
inline unsigned __cvta_generic_to_shared(const void* shared) {
  return emulated::address_of(shared);
}
inline void* __cvta_shared_to_generic(unsigned shared) { return emulated::at(shared); }
inline long long clock64() {
  static long long cycles = 0;
  return cycles += 1 << 20;
}
inline void __nanosleep(unsigned) {}
inline void __trap() { emulated::fail("a trap"); }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

template <class T>
T atomicAdd(T* target, T value) {
  const T before = *target;
  *target += value;
  return before;
}
template <class T>
T atomicMin(T* target, T value) {
  const T before = *target;
  if (value < before) *target = value;
  return before;
}
template <class... Values>
void add_together(float* to, Values... values) {
  if (reinterpret_cast<std::uintptr_t>(to) % (sizeof...(Values) * sizeof(float)))
    emulated::fail("an atomic addition is not aligned");
  ((*to++ += values), ...);
}
inline void red_global_add_v2_f32(float* to, float a, float b) { add_together(to, a, b); }
inline void red_global_add_v4_f32(float* to, float a, float b, float c, float d) {
  add_together(to, a, b, c, d);
}

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
template <class Word>
void __stcs(Word* to, const Word& word) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)) emulated::fail("a store is not aligned");
  *to = word;
}

inline void bar_sync(int barrier, int threads) {
  emulated::wait_at(emulated::device.barriers[std::size_t(barrier)], threads);
}
template <class T>
void prefetch_global_L2(const T* address) {
  emulated::prefetch(address, sizeof(T));
}
inline void cp_async_bulk_prefetch_L2_global(const void* address, unsigned bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 || bytes % 16 || bytes == 0)
    emulated::fail("a bulk prefetch is not of whole words");
  emulated::prefetch(address, bytes);
}
template <class T, class... Values>
void store_together(T* to, Values... values) {
  if (reinterpret_cast<std::uintptr_t>(to) % (sizeof...(Values) * sizeof(T)))
    emulated::fail("a store is not aligned");
  ((*to++ = values), ...);
}
inline void st_global_v4_f32(float* to, float a, float b, float c, float d) {
  store_together(to, a, b, c, d);
}
inline void st_global_v2_f32(float* to, float a, float b) { store_together(to, a, b); }
inline void st_global_v2_f64(double* to, double a, double b) { store_together(to, a, b); }
inline void st_global_v4_u32(void* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  store_together(static_cast<unsigned*>(to), a, b, c, d);
}
inline void st_global_v2_u32(void* to, unsigned a, unsigned b) {
  store_together(static_cast<unsigned*>(to), a, b);
}

template <class... Values>
void load_together(unsigned address, Values&... values) {
  if (address % (sizeof...(Values) * 4)) emulated::fail("a load is not aligned");
  const unsigned* from = reinterpret_cast<const unsigned*>(emulated::at(address));
  ((values = *from++), ...);
}
inline void ld_volatile_shared_v4_u32(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                      unsigned address) {
  load_together(address, a, b, c, d);
}
inline void ld_volatile_shared_v2_u32(unsigned& a, unsigned& b, unsigned address) {
  load_together(address, a, b);
}

inline void cp_async_cg_shared_global(unsigned to, const void* from, int count = 16) {
  emulated::copy(to, from, 16, count);
}
inline void cp_async_cg_shared_global_L2_128B(unsigned to, const void* from) {
  emulated::copy(to, from, 16, 16);
}
inline void cp_async_ca_shared_global(unsigned to, const void* from, int bytes) {
  emulated::copy(to, from, bytes, bytes);
}
inline void cp_async_ca_shared_global(unsigned to, const void* from, int bytes, int count) {
  emulated::copy(to, from, bytes, count);
}
inline void cp_async_commit_group() {
  emulated::Thread& thread = *emulated::device.current;
  thread.batches.push_back(std::move(thread.open));
  thread.open.clear();
}
inline void cp_async_wait_group(int batches) {
  auto& begun = emulated::device.current->batches;
  for (; int(begun.size()) > batches; begun.pop_front())
    for (const emulated::Copy& one : begun.front()) one.run();
}

inline void mbarrier_init_shared_b64(unsigned address, int arrivals) {
  emulated::device.phases[address] = {0, arrivals, arrivals, 0};
}
inline void fence_mbarrier_init_release_cluster() {}
inline void griddepcontrol_wait() { emulated::device.current->has_waited = true; }
inline void mbarrier_arrive_shared_b64(unsigned address) { emulated::arrive(address); }
inline void mbarrier_arrive_expect_tx_shared_cta_b64(unsigned address, unsigned bytes) {
  emulated::phases_at(address).bytes += bytes;
  emulated::arrive(address);
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(unsigned to,
                                                                           const void* from,
                                                                           unsigned bytes,
                                                                           unsigned barrier) {
  if (to % 16 || reinterpret_cast<std::uintptr_t>(from) % 16 || bytes % 16)
    emulated::fail("a bulk copy is not of whole words");
  if (to + bytes > unsigned(emulated::device.shared_bytes))
    emulated::fail("a bulk copy leaves shared memory");
  if (!emulated::is_readable(from, bytes)) emulated::fail("a bulk copy reads outside");
  const emulated::Copy one{emulated::at(to), static_cast<const char*>(from), int(bytes),
                           int(bytes)};
  emulated::add_pending(barrier, true, {one});
}
inline void cp_async_mbarrier_arrive_noinc_shared_b64(unsigned address) {
  emulated::Copies copies;
  copies.swap(emulated::device.current->open);
  emulated::add_pending(address, false, std::move(copies));
}
inline void wait_for_phase(unsigned address, int parity) {
  while ((emulated::phases_at(address).phase & 1) == parity) {
    emulated::device.ready.push_back(emulated::device.current);
    emulated::leave();
  }
}

inline void mma_sync_aligned_m8n8k4_row_col_f64_f64_f64_f64(double& d0, double& d1, double a,
                                                            double b) {
  double d[] = {d0, d1};
  emulated::meet("m8n8k4", &a, &b, d, [](emulated::Meeting& meeting) {
    for (int lane = 0; lane < emulated::kWarp; ++lane)
      for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 4; ++k)
          static_cast<double*>(meeting.taken[lane])[i] +=
              *static_cast<const double*>(meeting.given[lane / 4 * 4 + k][0]) *
              *static_cast<const double*>(meeting.given[(lane % 4 * 2 + i) * 4 + k][1]);
  });
  d0 = d[0], d1 = d[1];
}
inline void mma_sync_aligned_m16n8k8_row_col_f64_f64_f64_f64(double& d0, double& d1, double& d2,
                                                             double& d3, double a0, double a1,
                                                             double a2, double a3, double b0,
                                                             double b1) {
  const double of_a[] = {a0, a1, a2, a3}, of_b[] = {b0, b1};
  double d[] = {d0, d1, d2, d3};
  emulated::multiply_16_8<8>("m16n8k8", of_a, of_b, d);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void mma_sync_aligned_m16n8k4_row_col_f64_f64_f64_f64(double& d0, double& d1, double& d2,
                                                             double& d3, double a, double a8,
                                                             double b) {
  const double of_a[] = {a, a8}, of_b[] = {b};
  double d[] = {d0, d1, d2, d3};
  emulated::multiply_16_8<4>("m16n8k4", of_a, of_b, d);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline float rounded_tf32(unsigned bits) { return __uint_as_float(bits & ~0x1fffu); }
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2,
                                                               float& d3, unsigned a0, unsigned a1,
                                                               unsigned a2, unsigned a3,
                                                               unsigned b0, unsigned b1) {
  const float of_a[] = {rounded_tf32(a0), rounded_tf32(a1), rounded_tf32(a2), rounded_tf32(a3)};
  const float of_b[] = {rounded_tf32(b0), rounded_tf32(b1)};
  float d[] = {d0, d1, d2, d3};
  emulated::multiply_16_8<8>("m16n8k8", of_a, of_b, d);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void cvt_rna_tf32_f32(unsigned& result, float x) {
  const unsigned bits = __float_as_uint(x);
  const bool is_finite = (bits >> 23 & 0xff) != 0xff;
  result = is_finite ? (bits + 0x1000u) & ~0x1fffu : bits;
}

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  const std::uint64_t bytes = std::uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= unsigned(bytes >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline float of_half(unsigned short bits) {
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return float(value);
}
inline float of_bfloat(unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }
inline void cvt_f32_f16(float& result, unsigned short bits) { result = of_half(bits); }
inline void cvt_rn_f16_f32(unsigned short& result, float x) {
  const _Float16 value = _Float16(x);
  std::memcpy(&result, &value, 2);
}
inline void cvt_rn_bf16_f32(unsigned short& result, float x) {
  const unsigned bits = __float_as_uint(x);
  result = x == x ? static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16) : 0x7fff;
}
namespace emulated {

// d += a b of 16 x 16 and 16 x 8, in pairs of numbers of 16 bits: those of the columns 2 (lane % 4)
// and the next, and 8 behind them.
template <class Widen>
void multiply_16_8_pairs(const char* name, const unsigned (&a)[4], const unsigned (&b)[2],
                         float (&d)[4], Widen) {
  meet(name, a, b, d, [](Meeting& meeting) {
    const auto part = [](unsigned pair, int k) {
      return Widen::of(static_cast<unsigned short>(k % 2 ? pair >> 16 : pair));
    };
    for (int lane = 0; lane < kWarp; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float& sum = static_cast<float*>(meeting.taken[lane])[i];
        for (int k = 0; k < 16; ++k)
          sum += part(static_cast<const unsigned*>(
                          meeting.given[row % 8 * 4 + k % 8 / 2][0])[k / 8 * 2 + row / 8],
                      k) *
                 part(static_cast<const unsigned*>(meeting.given[column * 4 + k % 8 / 2][1])[k / 8],
                      k);
      }
  });
}
struct OfHalf {
  static float of(unsigned short bits) { return of_half(bits); }
};
struct OfBfloat {
  static float of(unsigned short bits) { return of_bfloat(bits); }
};

}  // namespace emulated
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2,
                                                              float& d3, unsigned a0, unsigned a1,
                                                              unsigned a2, unsigned a3,
                                                              unsigned b0, unsigned b1) {
  const unsigned of_a[] = {a0, a1, a2, a3}, of_b[] = {b0, b1};
  float d[] = {d0, d1, d2, d3};
  emulated::multiply_16_8_pairs("m16n8k16", of_a, of_b, d, emulated::OfHalf{});
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2,
                                                                float& d3, unsigned a0,
                                                                unsigned a1, unsigned a2,
                                                                unsigned a3, unsigned b0,
                                                                unsigned b1) {
  const unsigned of_a[] = {a0, a1, a2, a3}, of_b[] = {b0, b1};
  float d[] = {d0, d1, d2, d3};
  emulated::multiply_16_8_pairs("m16n8k16", of_a, of_b, d, emulated::OfBfloat{});
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
