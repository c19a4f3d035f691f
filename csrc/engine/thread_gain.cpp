#include "engine/thread_gain.hpp"

#include <algorithm>
#include <cmath>

namespace batchkron {
namespace {

// All chosen by hand. The times of the first calls are those of
// new threads and cold memory: of these the least counts.
constexpr int kFirstCalls = 2;
// A trial of threads ends after some calls, or at once with one that is faster than the other way or
// takes so many times as long.
constexpr int kTrialCalls = 3;
constexpr float kHopeless = 3;
// The slower way is tried after so many calls that it costs about 1/kTrials of the time, and earlier
// at first, as a comparison may have been lost by chance.
constexpr int kTrials = 64;
constexpr int kMinWait = 4, kMaxWait = 8192;
// A way that was dropped after fewer calls had won by chance, and is tried later each time.
constexpr int kProof = 64;
constexpr float kMaxRatio = 16;  // a call that was interrupted counts at most as so many
// One thread is not tried where that may take so many seconds.
constexpr float kLongTrial = 0.1f;
constexpr double kPause = 0.02;  // seconds between two calls
constexpr int kAfterPause = 3;   // most calls until a trial after a pause, at first

}  // namespace

int ThreadGain::choose(int available, double now) {
  if (available_.load() != available) {
    available_ = available;
    calls_[together] = 0;
    tried_ = 0;
  }
  if (calls_[together].load() < kFirstCalls) return available;
  if (last_.load() * float(available) > kLongTrial) return available;
  if (calls_[alone].load() < kFirstCalls) return 1;
  if (now - end_.load() > kPause) {
    if (tried_.load() > 0) end_trial();
    // Other programs may be at work than before.
    if (left_.load() > after_pause_.load()) {
      left_ = after_pause_.load();
      hastened_ = true;
    }
  }
  const bool tries = tried_.load() > 0 || left_.load() <= 0;
  left_ = left_.load() - 1;
  return gains() != tries ? available : 1;
}

void ThreadGain::record(int threads, double work, double begin, double end) {
  end_ = end;
  last_ = float(end - begin);
  const Way way = threads > 1 ? together : alone;
  const int calls = calls_[way].load();
  const float before = seconds_[way].load(), now = float((end - begin) / work);
  if (calls < kFirstCalls) {
    seconds_[way] = calls > 0 ? std::min(before, now) : now;
    calls_[way] = calls + 1;
    wait_[alone] = wait_[together] = left_ = kMinWait;
    taken_ = 0;
    after_pause_ = kAfterPause;
    return;
  }
  if (calls_[alone].load() < kFirstCalls) return;
  const bool gained = gains();
  if ((way == together) == gained) {
    seconds_[way] = before + (std::min(now, kMaxRatio * before) - before) / 8;
    taken_ = std::min(taken_.load() + 1, kProof);
    if (gains() != gained) change(way);
    return;
  }
  const int tried = tried_.load();
  least_ = tried > 0 ? std::min(least_.load(), now) : now;
  tried_ = tried + 1;
  const float other = seconds_[way == alone ? together : alone].load();
  if (way == alone || tried + 1 >= kTrialCalls || now < other || now > kHopeless * other) end_trial();
}

void ThreadGain::end_trial() {
  const Way tried = gains() ? alone : together, taken = tried == alone ? together : alone;
  const float before = seconds_[tried].load(), best = seconds_[taken].load(), now = least_.load();
  const int calls = tried_.load();
  tried_ = 0;
  if (now < best) {
    seconds_[tried] = now;
    return change(taken);
  }
  const float mean = before + (std::min(now, kMaxRatio * before) - before) / 2;
  seconds_[tried] = mean;
  const double longest =
      std::min(double(kTrials * calls) * (mean / best - 1), 2.0 * wait_[tried].load());
  wait_[tried] = left_ = int(std::clamp<double>(longest, kMinWait * calls, kMaxWait));
  if (hastened_.load()) after_pause_ = std::min(2 * after_pause_.load(), kTrials);
  hastened_ = false;
}

void ThreadGain::change(Way dropped) {
  const int later = std::min(2 * wait_[dropped].load(), kTrials * kTrialCalls);
  wait_[dropped] = left_ = taken_.load() < kProof ? later : kMinWait;
  taken_ = 0;
  after_pause_ = kAfterPause;
  hastened_ = false;
}

ThreadGain& ThreadGains::of(double work) {
  return gains_[std::size_t(std::clamp(std::ilogb(std::max(work, 1.0)), 0, kPowers - 1))];
}

}  // namespace batchkron
