// A device that runs one thread block after another: threads are coroutines that take turns in a
// random order, and meet where a warp or a barrier needs them. Copies from global memory are done at
// once, when they are waited for, or at random; what they read, and where they write, is checked.
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

namespace emulated {

constexpr int kWarp = 32, kBarriers = 17;  // the last one of all threads
constexpr std::size_t kStack = 128 << 10;

struct Number {
  int x, y;
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
  bool has_waited;  // for earlier kernels
  Copies open;      // begun, in no batch
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
  Number block{0, 0}, blocks{0, 1};
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

struct Launch {
  int blocks, threads, shared_bytes, when;
  unsigned seed;
  const Range* readable;
  int ranges;
  int down;  // thread blocks along the grid's second axis, 0 for one
};

inline const std::function<void()>* body;
inline void begin() {
  (*body)();
#if __CUDA_ARCH__ >= 900
  if (!device.current->has_waited) fail("a thread has not waited for earlier kernels");
#endif
  device.current->number.x = -1;  // has ended
  for (;;) leave();
}

// Runs the kernel's thread blocks one after another; returns what went wrong, or "".
inline const char* run(const Launch& launch, const std::function<void()>& kernel) {
  std::vector<char> shared(std::size_t(launch.shared_bytes) + 16);
  const std::unique_ptr<char[]> stacks(new char[std::size_t(launch.threads) * kStack]);
  body = &kernel;
  device.random.seed(launch.seed);
  device.blocks = {launch.blocks, launch.down > 0 ? launch.down : 1};
  device.threads = launch.threads;
  device.shared_bytes = launch.shared_bytes;
  device.when = When(launch.when);
  device.readable.assign(launch.readable, launch.readable + launch.ranges);
  device.shared = shared.data() + (16 - reinterpret_cast<std::uintptr_t>(shared.data()) % 16) % 16;
  device.error.clear();
  for (int block = 0; block < device.blocks.x * device.blocks.y; ++block) {
    device.block = {block % device.blocks.x, block / device.blocks.x};
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
