#include "engine/thread_gain.hpp"

#include <algorithm>
#include <cmath>

namespace batchkron {
namespace {

// All chosen by hand. The times of the first calls are those of new threads and cold memory: of
// these the least counts.
constexpr int kFirstCalls = 2;
// Fewer threads are tried first as long as they do not take so many times as long as the best.
constexpr float kWorse = 1.5f;
// A trial ends after some calls, or at once with one that is faster than the way that is taken or
// takes so many times as long: of more threads, which may be asleep, and of fewer, which are awake,
// but find in their caches what others need.
constexpr int kTrialCalls = 3;
constexpr float kHopeless = 3, kHopelessOfFewer = 1.5f;
// The slower ways are tried after so many calls that it costs about 1/kTrials of the time, and
// earlier at first, as a comparison may have been lost by chance. More threads may lose by chance
// far more often than fewer, which wait for nobody: their trials come early for longer.
constexpr int kTrials = 64;
constexpr int kMinWait = 4, kMaxWait = 8192;
constexpr int kFirstWait = 256;  // most calls until the first trial of fewer threads
constexpr int kSlowGrowth = 2, kFastGrowth = 8;
// A way that was dropped after fewer calls had won by chance, and is tried later each time.
constexpr int kProof = 64;
constexpr float kMaxRatio = 16;  // a call that was interrupted counts at most as so many
// Fewer threads are not tried where that may take so many seconds.
constexpr float kLongTrial = 0.1f;
constexpr double kPause = 0.02;  // seconds between two calls
constexpr int kAfterPause = 3;   // most calls until a trial after a pause, at first

}  // namespace

int ThreadGain::threads_of(int way) const {
  const int available = available_.load();
  if (way >= last_.load()) return 1;
  return (available + (1 << way) - 1) >> way;
}

int ThreadGain::way_of(int threads) const {
  int way = 0;
  while (way < last_.load() && threads_of(way) != threads) ++way;
  return threads_of(way) == threads ? way : -1;
}

int ThreadGain::fastest() const {
  int best = 0;
  for (int way = 1; way <= last_.load(); ++way)
    if (ways_[std::size_t(way)].seconds.load() < ways_[std::size_t(best)].seconds.load()) best = way;
  return best;
}

int ThreadGain::calls_until_trial(int way) const {
  return int(ways_[std::size_t(way)].due.load() - number_.load());
}

bool ThreadGain::takes_long(int way) const {
  const float ratio = float(threads_of(taken_.load())) / float(threads_of(way));
  return length_.load() * ratio > kLongTrial;
}

void ThreadGain::restart(int available) {
  available_ = available;
  int last = 0;
  while (last + 1 < kWays && (available - 1) >> last > 0) ++last;
  last_ = last;
  first_ = first_calls_ = taken_ = taken_calls_ = tried_ = 0;
  after_pause_ = kAfterPause;
  hastened_ = false;
}

int ThreadGain::choose(int available, double now) {
  if (available_.load() != available) restart(available);
  if (first_.load() <= last_.load()) return threads_of(first_.load());
  const int taken = taken_.load();
  number_ = number_.load() + 1;
  if (now - end_.load() > kPause) {
    if (tried_.load() > 0) end_trial();
    // Other programs may be at work than before.
    for (int way = 0; way < taken; ++way) {
      if (calls_until_trial(way) <= after_pause_.load()) continue;
      ways_[std::size_t(way)].due = number_.load() + unsigned(after_pause_.load());
      hastened_ = true;
    }
  }
  if (tried_.load() > 0) return threads_of(trial_.load());
  int tried = taken;
  for (int way = 0; way <= last_.load(); ++way) {
    const bool is_due = way != taken && calls_until_trial(way) <= 0;
    if (!is_due || (way > taken && takes_long(way))) continue;
    const float seconds = ways_[std::size_t(way)].seconds.load();
    if (tried == taken || seconds < ways_[std::size_t(tried)].seconds.load()) tried = way;
  }
  return threads_of(tried);
}

void ThreadGain::record(int threads, double work, double begin, double end) {
  end_ = end;
  const int way = way_of(threads), taken = taken_.load();
  if (way < 0) return;
  const float now = float((end - begin) / work);
  if (first_.load() <= last_.load()) {
    length_ = float(end - begin);
    return record_first(way, now);
  }
  Shared<float>& seconds = ways_[std::size_t(way)].seconds;
  const float before = seconds.load();
  if (way == taken) {
    length_ = float(end - begin);
    seconds = before + (std::min(now, kMaxRatio * before) - before) / 8;
    taken_calls_ = std::min(taken_calls_.load() + 1, kProof);
    if (const int best = fastest(); best != taken) take(best);
    return;
  }
  const int tried = trial_.load() == way ? tried_.load() : 0;
  trial_ = way;
  least_ = tried > 0 ? std::min(least_.load(), now) : now;
  tried_ = tried + 1;
  const float other = ways_[std::size_t(taken)].seconds.load();
  const float hopeless = way > taken ? kHopelessOfFewer : kHopeless;
  if (tried + 1 >= kTrialCalls || now < other || now > hopeless * other) end_trial();
}

void ThreadGain::record_first(int way, float seconds) {
  if (way != first_.load()) return;
  Way& own = ways_[std::size_t(way)];
  const int calls = first_calls_.load();
  own.seconds = calls > 0 ? std::min(own.seconds.load(), seconds) : seconds;
  first_calls_ = calls + 1;
  if (calls + 1 < kFirstCalls) return;
  const float best = ways_[std::size_t(taken_.load())].seconds.load();
  if (own.seconds.load() < best) taken_ = way;
  const bool is_worse = own.seconds.load() > kWorse * best;
  const float next = length_.load() * float(threads_of(way)) / float(threads_of(way + 1));
  if (way == last_.load() || is_worse || next > kLongTrial) return end_first_calls(way);
  first_calls_ = 0;
  first_ = way + 1;
}

// Ways that were not tried are taken to be as slow as they can be.
void ThreadGain::end_first_calls(int tried) {
  const int last = last_.load(), taken = taken_.load();
  first_ = last + 1;
  for (int way = 0; way <= last; ++way) {
    Way& own = ways_[std::size_t(way)];
    if (way > tried)
      own.seconds = ways_[std::size_t(way - 1)].seconds.load() * float(threads_of(way - 1)) /
                    float(threads_of(way));
    const double ratio = own.seconds.load() / ways_[std::size_t(taken)].seconds.load();
    set_wait(way, way < taken ? kMinWait
                              : std::clamp<double>(kTrials * last * (ratio - 1), kMinWait, kFirstWait));
  }
}

void ThreadGain::set_wait(int way, double calls) {
  ways_[std::size_t(way)].wait = int(calls);
  ways_[std::size_t(way)].due = number_.load() + unsigned(calls) + 1;
}

void ThreadGain::end_trial() {
  const int way = trial_.load(), taken = taken_.load(), calls = tried_.load();
  Way& own = ways_[std::size_t(way)];
  const float before = own.seconds.load(), now = least_.load();
  const float best = ways_[std::size_t(taken)].seconds.load();
  tried_ = 0;
  if (now < best) {
    own.seconds = now;
    return take(way);
  }
  const float mean = before + (std::min(now, kMaxRatio * before) - before) / 2;
  own.seconds = mean;
  const int growth = way < taken ? kSlowGrowth : kFastGrowth;
  const double longest = std::min(double(kTrials * last_.load() * calls) * (mean / best - 1),
                                  double(growth) * own.wait.load());
  set_wait(way, std::clamp<double>(longest, kMinWait * calls, kMaxWait));
  if (hastened_.load() && way < taken) {
    after_pause_ = std::min(2 * after_pause_.load(), kTrials);
    hastened_ = false;
  }
}

void ThreadGain::take(int way) {
  const int dropped = taken_.load();
  const int later = std::min(2 * ways_[std::size_t(dropped)].wait.load(), kTrials * kTrialCalls);
  set_wait(dropped, taken_calls_.load() < kProof ? later : kMinWait);
  taken_ = way;
  taken_calls_ = 0;
  after_pause_ = kAfterPause;
  hastened_ = false;
}

ThreadGain& ThreadGains::of(double work) {
  const int power = std::ilogb(std::max(work, 1.0)) - kFirstPower;
  return gains_[std::size_t(std::clamp(power, 0, kPowers - 1))];
}

}  // namespace batchkron
