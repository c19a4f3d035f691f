#include "engine/kron/schedule.hpp"

#include <algorithm>

namespace batchkron {
namespace {

constexpr Index kTileBytes = 16 << 10;  // a tile has two buffers, which share the L1 cache
constexpr Index kLaneBytes = 48 << 10;  // longer groups spare unaligned passes behind them
constexpr Index kStripBytes = 256;      // narrower strips cost more than one more pass over L2
constexpr Index kLargeFactor = 16;      // from here on, arithmetic hides a pass over the L2 cache
// A row beyond the L2 cache goes through groups whose tiles fill a part of it instead.
constexpr Index kFarBytes = 1 << 20;
constexpr Index kFarTileBytes = 256 << 10;
constexpr Index kFarStripBytes = 512;
constexpr double kMinLaneUse = 0.9;     // share of vector lanes below which a layout is avoided

using StepRange = std::vector<const Step*>;

struct Machine {
  Index outer, inner, lanes, item;
  bool far;  // whether one row exceeds the L2 cache

  Index tile_bytes() const { return far ? kFarTileBytes : kTileBytes; }
  Index strip_bytes() const { return far ? kFarStripBytes : kStripBytes; }

  Index rounded_up(Index count) const { return (count + lanes - 1) / lanes * lanes; }
  // The share of lanes that do work when `count` elements are taken `lanes` at a time.
  double filled(Index count) const { return double(count) / double(rounded_up(count)); }
};

bool merges(const MergedFactor& a, const MergedFactor& b) {
  const auto is = [](const MergedFactor& f, Index size) { return f.C == size && f.K == size; };
  return is(a, 1) || is(b, 1) || (is(a, 2) && is(b, 2));
}

// A group of consecutive steps, from its last mode to its first, still without a layout.
Group group_of(const StepRange& steps) {
  Group group{};
  group.L = steps.back()->L;
  group.R = steps.front()->R;
  group.input = group.output = 1;
  for (const Step* step : steps) group.input *= step->C;
  group.largest = group.input;
  Index before = group.input;
  for (const Step* step : steps) {
    before /= step->C;
    group.passes.push_back({step->mode, before, step->C, step->K, group.output});
    group.output *= step->K;
    group.largest = std::max(group.largest, before * group.output);
  }
  return group;
}

// How many passes from `first` on have square factors of one size that kernels know, up to `limit`.
int equal_passes(const std::vector<Pass>& passes, std::size_t first, int limit) {
  const Index size = passes[first].C;
  int count = 0;
  for (std::size_t p = first; p < passes.size() && count < limit; ++p, ++count)
    if (passes[p].C != size || passes[p].K != size) break;
  return count;
}

// Whether a pass has whole vectors behind its mode, in every tile of the group.
bool fills_vectors(const Group& group, const Pass& pass, Index lanes) {
  if (group.layout == Group::Layout::lanes) return true;
  if (group.layout == Group::Layout::contiguous) return pass.inside * group.R % lanes == 0;
  return group.R % lanes == 0 && group.strip % lanes == 0;
}

// How many of the last modes, those of the first passes, one kernel can take.
int last_modes_at_once(const std::vector<Pass>& passes, const KernelSizes& kernels) {
  const Index size = passes.front().C;
  return size > kMaxFixed ? 1
                              : std::max(1, equal_passes(passes, 0, kernels.last_modes[size]));
}

// Modes that one kernel can take become one pass.
void join_passes(Group& group, bool has_last_mode, const KernelSizes& kernels) {
  std::vector<Pass> joined;
  for (std::size_t p = 0; p < group.passes.size();) {
    Pass pass = group.passes[p];
    pass.size = pass.C;
    if (has_last_mode && p == 0) pass.modes = last_modes_at_once(group.passes, kernels);
    if (pass.modes == 1 && pass.C <= kMaxFixed && kernels.mode_pair[pass.C] &&
        fills_vectors(group, pass, kernels.lanes))
      pass.modes = std::max(1, equal_passes(group.passes, p, 2));
    for (int i = 1; i < pass.modes; ++i) {
      pass.C *= pass.size;
      pass.K *= pass.size;
    }
    p += pass.modes;
    pass.before = group.passes[p - 1].before;
    joined.push_back(pass);
  }
  group.passes = joined;
}

// Whether vectors along the last mode's outputs, or along the columns of x, would be badly filled.
bool wants_lanes(const Step& step, bool is_last_mode, const Machine& machine) {
  if (machine.lanes == 1 || !is_last_mode) return false;
  const Index width = machine.inner == 1 ? step.K : machine.inner;
  return width < 8 * machine.lanes && machine.filled(width) < kMinLaneUse;
}

bool fits_lanes(const Group& group, const Machine& machine) {
  // sizes that no array has would wrap as integers before they are refused
  return double(group.largest) * double(group.R) * double(machine.lanes * machine.item) <= kLaneBytes;
}

// The longest group from `steps` (at least one) that leaves enough rows to fill the lanes.
std::size_t steps_in_lanes(const StepRange& steps, const Machine& machine) {
  std::size_t best = 0;
  double best_filled = 0;
  for (std::size_t count = 1; count <= steps.size(); ++count) {
    const Group group = group_of({steps.begin(), steps.begin() + count});
    if (!fits_lanes(group, machine)) break;
    const double filled = machine.filled(machine.outer * group.L);
    if (filled < std::min(kMinLaneUse, best_filled)) break;
    best = count;
    best_filled = filled;
  }
  return best_filled >= 0.5 ? best : 0;
}

std::size_t steps_in_tile(const StepRange& steps, const Machine& machine) {
  std::size_t count = 1;
  for (; count < steps.size(); ++count) {
    const Group group = group_of({steps.begin(), steps.begin() + count + 1});
    const Index width = std::min(group.R, machine.strip_bytes() / machine.item);
    const Step& next = *steps[count];
    if (std::min(next.C, next.K) >= kLargeFactor && (!machine.far || count == 2)) break;
    if (double(group.largest) * double(width * machine.item) > machine.tile_bytes()) break;
  }
  return count;
}

void place_in_memory(Group& group, const Machine& machine) {
  const Index bytes = group.passes.size() == 1 ? kTileBytes : machine.tile_bytes();
  const Index width = std::max<Index>(1, bytes / machine.item / group.largest);
  if (width >= group.R) {
    group.layout = Group::Layout::contiguous;
    group.strip = group.R;
    group.rows = width / group.R;
    return;
  }
  group.layout = Group::Layout::strips;
  group.rows = 1;
  const Index strips = (group.R + width - 1) / width;
  group.strip = std::min(group.R, machine.rounded_up((group.R + strips - 1) / strips));
  const Pass& first = group.passes.front();
  group.copies_input = std::min(first.C, first.K) >= kLargeFactor;
}

// The modes of steps that follow each other downwards, as far as one group can take them.
Group next_group(const StepRange& steps, bool has_last_mode, const Machine& machine,
                 const KernelSizes& kernels) {
  const bool alone = has_last_mode && machine.inner == 1;  // no columns behind the last mode
  const bool in_registers = alone && last_modes_at_once(group_of(steps).passes, kernels) > 1;
  if (!in_registers && wants_lanes(*steps.front(), has_last_mode, machine)) {
    if (const std::size_t count = steps_in_lanes(steps, machine)) {
      Group group = group_of({steps.begin(), steps.begin() + count});
      group.layout = Group::Layout::lanes;
      join_passes(group, false, kernels);
      return group;
    }
  }
  Group group = group_of({steps.begin(), steps.begin() + steps_in_tile(steps, machine)});
  place_in_memory(group, machine);
  join_passes(group, alone, kernels);
  return group;
}

}  // namespace

std::vector<MergedFactor> merge_factors(const std::vector<Index>& inputs,
                                        const std::vector<Index>& outputs) {
  std::vector<MergedFactor> merged;
  for (int k = int(inputs.size()) - 1; k >= 0; --k) {
    const MergedFactor factor{k, k, inputs[k], outputs[k]};
    if (!merged.empty() && merges(factor, merged.back())) {
      merged.back().first = k;
      merged.back().C *= factor.C;
      merged.back().K *= factor.K;
    } else {
      merged.push_back(factor);
    }
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

Index Group::tile_elements(Index lanes) const {
  if (layout == Layout::lanes) return largest * R * lanes;
  const bool direct = passes.size() == 1 && !copies_input;
  return direct ? 0 : largest * strip * rows;
}

Index Group::tiles(Index blocks, Index lanes) const {
  if (layout == Layout::lanes) return (blocks * L + lanes - 1) / lanes;
  if (layout == Layout::contiguous) return (blocks * L + rows - 1) / rows;
  return blocks * L * ((R + strip - 1) / strip);
}

Schedule schedule_product(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                          Index outer, Index inner, const KernelSizes& kernels) {
  Schedule schedule;
  schedule.factors = merge_factors(inputs, outputs);
  std::vector<Index> merged_inputs, merged_outputs;
  for (const MergedFactor& factor : schedule.factors) {
    merged_inputs.push_back(factor.C);
    merged_outputs.push_back(factor.K);
  }
  const int last_mode = int(schedule.factors.size()) - 1;
  const Steps steps = plan_steps(merged_inputs, merged_outputs,
                                 std::vector<bool>(schedule.factors.size(), true), inner,
                                 Ties::last_mode_first);
  schedule.multiply_adds = steps.multiply_adds;
  for (const Step& step : steps.list)
    for (int k = schedule.factors[step.mode].last; k >= schedule.factors[step.mode].first; --k)
      schedule.order.push_back(k);
  // Nothing to lay out, also where some steps would have work before an empty one.
  if (inner == 0 || checked_product(inputs) == 0 || checked_product(outputs) == 0) return schedule;

  const Index largest =
      std::max(steps.largest_intermediate, checked_product(merged_inputs, inner));
  const Machine machine{outer, inner, kernels.lanes, kernels.item,
                        double(largest) * double(kernels.item) > kFarBytes};

  for (std::size_t s = 0; s < steps.list.size();) {
    StepRange range{&steps.list[s]};
    while (s + range.size() < steps.list.size() &&
           steps.list[s + range.size()].mode == range.back()->mode - 1)
      range.push_back(&steps.list[s + range.size()]);
    const bool has_last_mode = range.front()->mode == last_mode;
    schedule.groups.push_back(next_group(range, has_last_mode, machine, kernels));
    const Group& group = schedule.groups.back();
    for (const Pass& pass : group.passes) s += pass.modes;
    if (s < steps.list.size())
      schedule.largest_between =
          std::max(schedule.largest_between, group.L * group.output * group.R);
  }
  return schedule;
}

}  // namespace batchkron
