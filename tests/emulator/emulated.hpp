// What kernels ask of a device, on the CPU: threads are coroutines that take turns in a random order,
// and meet where a warp or a barrier needs them. Copies from global memory are done at once, when they
// are waited for, or at random; what they read, and where they write, is checked. Each instruction in
// assembly is a function of its name, `.` and `:` as `_`, of its operands in their order.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#define __device__
#define __global__
#define __align__(bytes)
#define __launch_bounds__(...)
#define __constant__ static

namespace emulated {

constexpr int kWarp = 32, kBarriers = 17;  // the last one of all threads
constexpr std::size_t kStack = 128 << 10;

struct Number {
  int x;
};
struct Range {
  const char *begin, *end;
};
struct Copy {
  char* to;
  const char* from;
  int bytes, count;  // written, of which the first `count` are read and the others are zero

  void run() const {
    std::memset(to, 0, std::size_t(bytes));
    if (count > 0) std::memcpy(to, from, std::size_t(count));
  }
};
using Copies = std::vector<Copy>;

struct Thread {
  ucontext_t context;
  Number number;
  int lane, warp;
  Copies open;  // begun, in no batch
  std::deque<Copies> batches;
};
struct Meeting {
  const char* name = nullptr;
  int arrived = 0;
  const void* given[kWarp][2];
  void* taken[kWarp];
  std::vector<Thread*> waiting;
};

// Of a barrier in shared memory.
struct Phases {
  int phase, missing, arrivals;  // missing: arrivals in this phase
  long bytes;                    // that bulk copies have to bring in it
};
// Copies that end at a barrier.
struct Pending {
  Copies copies;
  unsigned barrier;
  bool bulk;
};

enum class When { kLate, kAtOnce, kAtRandom };

// One launch at a time.
struct Device {
  Thread* current = nullptr;
  Number block{0}, blocks{0};
  char* shared = nullptr;
  int shared_bytes = 0, threads = 0;
  When when = When::kLate;
  std::mt19937 random;
  std::vector<Range> readable;
  std::vector<Thread*> ready;
  std::vector<Meeting> warps, barriers;
  std::map<unsigned, Phases> phases;  // by the barrier's address
  std::deque<Pending> pending;
  std::string error;
  ucontext_t scheduler;
};
inline Device device;

inline void leave() { swapcontext(&device.current->context, &device.scheduler); }
[[noreturn]] inline void fail(const char* what) {
  device.error = what;
  for (;;) leave();
}
inline void wake(std::vector<Thread*>& threads) {
  device.ready.insert(device.ready.end(), threads.begin(), threads.end());
  threads.clear();
}

inline void wait_at(Meeting& meeting, int expected) {
  if (++meeting.arrived == expected) {
    meeting.arrived = 0;
    wake(meeting.waiting);
  } else {
    meeting.waiting.push_back(device.current);
    leave();
  }
}
// Gives and takes what all lanes of a warp exchange; the last one of them calls `exchange`.
template <class Exchange>
void meet(const char* name, const void* a, const void* b, void* taken, Exchange exchange) {
  const Thread& thread = *device.current;
  Meeting& meeting = device.warps[std::size_t(thread.warp)];
  if (meeting.arrived > 0 && std::strcmp(meeting.name, name) != 0)
    fail("lanes of a warp are at different instructions");
  meeting.name = name;
  meeting.given[thread.lane][0] = a;
  meeting.given[thread.lane][1] = b;
  meeting.taken[thread.lane] = taken;
  if (meeting.arrived + 1 == kWarp) exchange(meeting);
  wait_at(meeting, kWarp);
}

inline unsigned address_of(const void* shared) {
  return unsigned(static_cast<const char*>(shared) - device.shared);
}
inline char* at(unsigned shared) { return device.shared + shared; }

inline bool is_readable(const void* global, long bytes) {
  const char* const begin = static_cast<const char*>(global);
  for (const Range& range : device.readable)
    if (range.begin <= begin && begin + bytes <= range.end) return true;
  return false;
}
inline void copy(unsigned to, const void* from, int bytes, int count) {
  if (to % unsigned(bytes) != 0) fail("a copy to shared memory is not aligned");
  if (reinterpret_cast<std::uintptr_t>(from) % std::uintptr_t(bytes) != 0)
    fail("a copy from global memory is not aligned");
  if (to + unsigned(bytes) > unsigned(device.shared_bytes)) fail("a copy leaves shared memory");
  if (count > 0 && !is_readable(from, count)) fail("a copy reads outside of the arrays");
  const Copy one{at(to), static_cast<const char*>(from), bytes, count};
  const bool at_once =
      device.when == When::kAtOnce || (device.when == When::kAtRandom && device.random() % 2);
  if (at_once)
    one.run();
  else
    device.current->open.push_back(one);
}
inline void prefetch(const void* global, long bytes) {
  if (!is_readable(global, bytes)) fail("a prefetch is outside of the arrays");
}

// A barrier in shared memory.
inline Phases& phases_at(unsigned address) {
  const auto found = device.phases.find(address);
  if (found == device.phases.end()) fail("there is no barrier");
  return found->second;
}
inline void go_on(Phases& phases) {
  if (phases.missing > 0 || phases.bytes != 0) return;
  phases.missing = phases.arrivals;
  ++phases.phase;
}
inline void arrive(unsigned address) {
  Phases& phases = phases_at(address);
  if (phases.missing == 0) fail("more arrive at a barrier than it expects");
  --phases.missing;
  go_on(phases);
}
inline void end_pending(std::size_t number) {
  const Pending pending = device.pending[number];
  device.pending.erase(device.pending.begin() + long(number));
  for (const Copy& one : pending.copies) one.run();
  if (!pending.bulk) return arrive(pending.barrier);
  Phases& phases = phases_at(pending.barrier);
  phases.bytes -= pending.copies[0].bytes;
  go_on(phases);
}
inline void add_pending(unsigned barrier, bool bulk, Copies copies) {
  device.pending.push_back({std::move(copies), barrier, bulk});
  if (device.when == When::kAtOnce) end_pending(device.pending.size() - 1);
}

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

inline void __syncwarp() {
  emulated::meet("syncwarp", nullptr, nullptr, nullptr, [](emulated::Meeting&) {});
}
inline void __syncthreads() {
  emulated::wait_at(emulated::device.barriers.back(), emulated::device.threads);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  T result;
  const int from[] = {lane};
  emulated::meet("shuffle", &value, from, &result, [](emulated::Meeting& meeting) {
    for (int to = 0; to < emulated::kWarp; ++to)
      *static_cast<T*>(meeting.taken[to]) =
          *static_cast<const T*>(meeting.given[*static_cast<const int*>(meeting.given[to][1])][0]);
  });
  return result;
}
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

inline void cp_async_cg_shared_global(unsigned to, const void* from, int count = 16) {
  emulated::copy(to, from, 16, count);
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

namespace emulated {

struct Launch {
  int blocks, threads, shared_bytes, when;
  unsigned seed;
  const Range* readable;
  int ranges;
};

inline const std::function<void()>* body;
inline void begin() {
  (*body)();
  device.current->number.x = -1;  // has ended
  for (;;) leave();
}

// Runs the kernel's thread blocks one after another; returns what went wrong, or "".
inline const char* run(const Launch& launch, const std::function<void()>& kernel) {
  std::vector<char> shared(std::size_t(launch.shared_bytes) + 16);
  const std::unique_ptr<char[]> stacks(new char[std::size_t(launch.threads) * kStack]);
  body = &kernel;
  device.random.seed(launch.seed);
  device.blocks.x = launch.blocks;
  device.threads = launch.threads;
  device.shared_bytes = launch.shared_bytes;
  device.when = When(launch.when);
  device.readable.assign(launch.readable, launch.readable + launch.ranges);
  device.shared = shared.data() + (16 - reinterpret_cast<std::uintptr_t>(shared.data()) % 16) % 16;
  device.error.clear();
  for (device.block.x = 0; device.block.x < launch.blocks; ++device.block.x) {
    std::memset(device.shared, 0xff, std::size_t(launch.shared_bytes));  // NaN
    device.warps.assign(std::size_t(launch.threads / kWarp), Meeting());
    device.barriers.assign(kBarriers, Meeting());
    device.pending.clear();
    device.phases.clear();
    std::vector<Thread> threads(std::size_t(launch.threads));
    for (int number = 0; number < launch.threads; ++number) {
      Thread& thread = threads[std::size_t(number)];
      thread.number.x = number;
      thread.lane = number % kWarp;
      thread.warp = number / kWarp;
      getcontext(&thread.context);
      thread.context.uc_stack = {stacks.get() + std::size_t(number) * kStack, 0, kStack};
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, begin, 0);
      device.ready.push_back(&thread);
    }
    for (int left = launch.threads; left > 0;) {
      if (!device.pending.empty() && (device.ready.empty() || device.random() % 40 == 0))
        end_pending(device.random() % device.pending.size());
      if (device.ready.empty()) return "all threads wait";
      const std::size_t next = device.random() % device.ready.size();
      device.current = device.ready[next];
      device.ready[next] = device.ready.back();
      device.ready.pop_back();
      swapcontext(&device.scheduler, &device.current->context);
      if (!device.error.empty()) {
        device.ready.clear();
        return device.error.c_str();
      }
      if (device.current->number.x < 0) --left;
    }
    for (const Meeting& meeting : device.warps)
      if (meeting.arrived > 0) return "a warp ends while some of its lanes wait";
  }
  return "";
}

}  // namespace emulated
