#include "engine/krylov/run.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/dispatch.hpp"
#include "engine/threads.hpp"

namespace batchkron {
namespace {

constexpr Index kPart = 1 << 14;       // elements that one thread takes of a system
constexpr double kWorkPerElement = 16;  // an element's memory access in multiply-adds

double* room_for(std::vector<double>& sums, Index count) {
  if (Index(sums.size()) < count) sums.resize(std::size_t(count));
  return sums.data();
}

}  // namespace

KrylovSequence::KrylovSequence(const std::vector<std::string>& names, int dtype,
                               Reduction reduction)
    : reduction_(std::move(reduction)) {
  if (dtype < 0 || dtype > 3) throw std::invalid_argument("there is no such dtype");
  const KrylovPasses& known = krylov_passes().of_dtype[dtype];
  for (const std::string& name : names) {
    const KrylovPass* end = known.passes + known.count;
    const KrylovPass* found =
        std::find_if(known.passes, end, [&](const KrylovPass& p) { return name == p.name; });
    if (found == end) throw std::invalid_argument("there is no pass " + name);
    passes_.push_back(*found);
  }
}

Index KrylovSequence::run(const void* arguments) const {
  KrylovHead head;
  std::memcpy(&head, arguments, sizeof head);
  const ThreadTeam team(kWorkPerElement * double(head.n) * double(head.systems), gains_);
  if (head.n > kPart || reduction_) {
    run_in_parts(arguments, team);
  } else {
    team.run(head.systems, [&](Index begin, Index end, int) {
      static thread_local std::vector<double> sums;
      for (Index system = begin; system < end; ++system) run_system(arguments, system, sums);
    });
  }
  Index running = 0;
  for (Index system = 0; system < head.systems; ++system) running += head.progress[system] == 0;
  return running;
}

void KrylovSequence::run_system(const void* arguments, Index system,
                                std::vector<double>& sums) const {
  KrylovHead head;
  std::memcpy(&head, arguments, sizeof head);
  for (const KrylovPass& pass : passes_) {
    if (!pass.is_for(head.progress[system])) continue;
    double* total = room_for(sums, std::max<Index>(pass.sums(arguments), 1));
    std::fill_n(total, std::max<Index>(pass.sums(arguments), 1), 0.0);
    pass.part(arguments, system, 0, head.n, total);
    pass.after(arguments, system, total);
  }
}

void KrylovSequence::run_in_parts(const void* arguments, const ThreadTeam& team) const {
  KrylovHead head;
  std::memcpy(&head, arguments, sizeof head);
  const Index parts = std::max<Index>((head.n + kPart - 1) / kPart, 1);
  std::vector<double> sums;
  for (const KrylovPass& pass : passes_) {
    const Index count = pass.sums(arguments), stride = std::max<Index>(count, 1);
    double* total = room_for(sums, stride * parts * head.systems);
    team.run(parts * head.systems, 1, [&](Index begin, Index end, int) {
      for (Index task = begin; task < end; ++task) {
        const Index system = task / parts, first = task % parts * kPart;
        if (!pass.is_for(head.progress[system])) continue;
        const Index last = std::min(first + kPart, head.n);
        pass.part(arguments, system, first, last, total + task * stride);
      }
    });
    for (Index system = 0; system < head.systems; ++system) {
      if (!pass.is_for(head.progress[system])) continue;
      double* first = total + system * parts * stride;
      for (Index part = 1; part < parts; ++part)
        for (Index k = 0; k < count; ++k) {
          const double more = first[part * stride + k];
          first[k] = pass.maxima ? (more > first[k] ? more : first[k]) : first[k] + more;
        }
    }
    if (reduction_ && count > 0) reduce(total, head.systems, parts * stride, count, pass.maxima);
    for (Index system = 0; system < head.systems; ++system)
      if (pass.is_for(head.progress[system]))
        pass.after(arguments, system, total + system * parts * stride);
  }
}

// `count` sums of each system, `distance` apart, over all processes. Those of systems that the pass
// is not for are reduced, too, and not used: all processes call with equally many.
void KrylovSequence::reduce(double* totals, Index systems, Index distance, Index count,
                            bool maxima) const {
  std::vector<double> together(std::size_t(systems * count));
  for (Index system = 0; system < systems; ++system)
    std::copy_n(totals + system * distance, count, together.data() + system * count);
  reduction_(together.data(), systems * count, maxima);
  for (Index system = 0; system < systems; ++system)
    std::copy_n(together.data() + system * count, count, totals + system * distance);
}

}  // namespace batchkron
