// The part of GCC's OpenMP runtime that batchkron calls, written with C++ threads, so that
// ThreadSanitizer sees its synchronisation: libgomp itself is not instrumented and reports as races
// what its barriers order. Preloaded by .ci/thread_sanitizer.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Region {
  explicit Region(int threads) : count(threads) {}

  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    const long turn = turns;
    if (++waiting == count) {
      waiting = 0;
      ++turns;
      everybody.notify_all();
    } else {
      everybody.wait(lock, [&] { return turns != turn; });
    }
  }

  const int count;
  std::mutex mutex;
  std::condition_variable everybody;
  int waiting = 0;
  long turns = 0;
  std::map<long, long> next;  // of each loop of the region, where its next chunk begins
};

struct Loop {
  long number = 0, end = 0, chunk = 0;
};

thread_local Region* region = nullptr;
thread_local int thread_index = 0;
thread_local Loop loop;

void run(Region* owner, int index, Loop first, void (*function)(void*), void* data) {
  region = owner;
  thread_index = index;
  loop = first;
  function(data);
  region = nullptr;
  thread_index = 0;
}

void run_team(Region& team, Loop first, void (*function)(void*), void* data) {
  std::vector<std::thread> others;
  for (int i = 1; i < team.count; ++i)
    others.emplace_back(run, &team, i, first, function, data);
  run(&team, 0, first, function, data);
  for (std::thread& thread : others) thread.join();
}

bool take(long* begin, long* end) {
  const std::lock_guard<std::mutex> lock(region->mutex);
  long& next = region->next[loop.number];
  if (next >= loop.end) return false;
  *begin = next;
  *end = next = std::min(next + loop.chunk, loop.end);
  return true;
}

}  // namespace

extern "C" {

int omp_get_max_threads() { return 2; }
int omp_get_num_threads() { return region ? region->count : 1; }
int omp_get_thread_num() { return thread_index; }

void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned) {
  Region team(threads ? int(threads) : omp_get_max_threads());
  run_team(team, Loop{}, function, data);
}

// All loops of batchkron step by one.
void GOMP_parallel_loop_nonmonotonic_dynamic(void (*function)(void*), void* data,
                                             unsigned threads, long first, long last, long,
                                             long chunk, unsigned) {
  Region team(threads ? int(threads) : omp_get_max_threads());
  team.next[0] = first;
  run_team(team, Loop{0, last, chunk}, function, data);
}

void GOMP_barrier() { region->wait(); }
void GOMP_loop_end() { region->wait(); }
void GOMP_loop_end_nowait() {}

bool GOMP_loop_nonmonotonic_dynamic_start(long first, long last, long, long chunk, long* begin,
                                          long* end) {
  loop = {loop.number + 1, last, chunk};
  {
    const std::lock_guard<std::mutex> lock(region->mutex);
    region->next.try_emplace(loop.number, first);
  }
  return take(begin, end);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long* begin, long* end) { return take(begin, end); }
}
