#include "engine/kron/schedule.hpp"

#include <algorithm>

#include "engine/dispatch.hpp"

namespace batchkron {
namespace {

// Sizes of tiles, all chosen by hand.
// Bytes of a tile buffer. A tile has two, which share the L1 cache.
constexpr Index kTileBytes = 16 << 10;
// The same in the `lanes` layout. Groups should be long there: to transpose a tile in and out costs
// about as much as two passes with factors of 4 (docs/developer/cpu-kernels.md).
constexpr Index kLaneBytes = 48 << 10;
// Bytes of a strip. With narrower ones, another group (a pass over the L2 cache) is cheaper.
constexpr Index kStripBytes = 256;
// Size of a factor from which the arithmetic of a pass hides its traffic to the L2 cache.
constexpr Index kLargeFactor = 16;
// A row of more bytes does not stay in the L2 cache. Then passes over memory are the expensive
// ones, so groups are longer and tiles fill a part of the L2 cache.
constexpr Index kFarBytes = 1 << 20;
constexpr Index kFarTileBytes = 256 << 10;
constexpr Index kFarStripBytes = 512;
// A layout that fills a smaller share of the vector lanes along a row is avoided.
constexpr double kMinLaneUse = 0.9;
// What the `lanes` layout needs, or transposing takes longer than it saves (670 products of sizes 3
// to 31, Zen 4, AVX2 and AVX-512; with fewer, up to five times as long): tiles; the share of lanes
// that they fill; modes, and modes of those small sizes whose other kernels know the size, unless
// vectors have twice the lanes (float).
constexpr Index kMinLaneTiles = 4;
constexpr double kMinTileUse = 0.8;
constexpr std::size_t kMinLaneModes = 2, kMinSmallLaneModes = 3;
// Sizes from which a product of one mode is worth transposing: without columns that of complex
// numbers of 64 bits, whose kernel for the last mode is slower by more than a transposition; with
// columns any that fill at most kMaxColumnsFilled of the lanes (AVX-512, sizes 3 to 64: up to
// 1.9 and up to 10 times as fast).
constexpr Index kMinComplexAlone = 8, kMinColumnsAlone = 16;
constexpr double kMaxColumnsFilled = 0.7;

using StepRange = std::vector<const Step*>;

struct Machine {
  Index outer, inner, lanes, item;
  bool complex;
  bool far;  // whether a row exceeds kFarBytes

  Index tile_bytes() const { return far ? kFarTileBytes : kTileBytes; }
  Index strip_bytes() const { return far ? kFarStripBytes : kStripBytes; }

  Index rounded_up(Index count) const { return (count + lanes - 1) / lanes * lanes; }
  // The share of lanes that do work when `count` elements are taken `lanes` at a time.
  double filled(Index count) const { return double(count) / double(rounded_up(count)); }
};

bool merges(const MergedFactor& a, const MergedFactor& b) {
  if (a.skipped || b.skipped) return false;
  const auto is = [](const MergedFactor& f, Index size) { return f.C == size && f.K == size; };
  return is(a, 1) || is(b, 1) || (is(a, 2) && is(b, 2));
}

// The product of the sizes of skipped modes between a step and the one that was taken before it.
Index gap(const Step& step, const Step& earlier) { return step.R / (earlier.K * earlier.R); }

// The group of these steps, which are modes in descending order, without a layout yet.
Group group_of(const StepRange& steps) {
  Group group{};
  group.L = steps.back()->L;
  group.R = steps.front()->R;
  group.input = steps.front()->C;
  group.output = 1;
  for (std::size_t s = 1; s < steps.size(); ++s)
    group.input *= steps[s]->C * gap(*steps[s], *steps[s - 1]);
  group.largest = group.input;
  Index before = group.input;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Step& step = *steps[s];
    const Index between = s > 0 ? gap(step, *steps[s - 1]) : 1;
    before /= step.C * between;
    group.output *= between;
    group.passes.push_back({step.mode, before, step.C, step.K, group.output});
    group.output *= step.K;
    group.largest = std::max(group.largest, before * group.output);
  }
  return group;
}

// How many passes from `first` on, up to `limit`, have square factors of one size, on neighbouring
// modes.
int equal_passes(const std::vector<Pass>& passes, std::size_t first, int limit) {
  const Index size = passes[first].C;
  int count = 0;
  for (std::size_t p = first; p < passes.size() && count < limit; ++p, ++count)
    if (passes[p].C != size || passes[p].K != size ||
        passes[p].factor != passes[first].factor - count)
      break;
  return count;
}

// Whether what is contiguous behind the pass's mode is whole vectors, in every tile of the group.
bool fills_vectors(const Group& group, const Pass& pass, Index lanes) {
  if (group.layout == Group::Layout::lanes) return true;
  if (group.layout == Group::Layout::contiguous) return pass.inside * group.R % lanes == 0;
  return group.R % lanes == 0 && group.strip % lanes == 0;
}

// How many of the product's last modes one kernel can multiply. These are the first passes.
int last_modes_at_once(const std::vector<Pass>& passes, const KernelSizes& kernels) {
  const Index size = passes.front().C;
  return size > kMaxFixed ? 1
                              : std::max(1, equal_passes(passes, 0, kernels.last_modes[size]));
}

// Joins the passes of modes that one kernel can multiply together.
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

// Whether the `lanes` layout is wanted: for the last mode, if vectors along its outputs, or along
// the columns of x, would be filled badly.
bool wants_lanes(const Step& step, bool is_last_mode, const Machine& machine) {
  if (machine.lanes == 1 || !is_last_mode) return false;
  const Index width = machine.inner == 1 ? step.K : machine.inner;
  return width < 8 * machine.lanes && machine.filled(width) < kMinLaneUse;
}

// Whether the `lanes` layout is wanted although there is one mode only.
bool wants_lanes_alone(const Step& step, bool is_last_mode, const Machine& machine) {
  if (machine.lanes == 1 || !is_last_mode) return false;
  const Index size = std::min(step.C, step.K);
  if (machine.inner == 1)
    return machine.complex && machine.item == 8 && size >= kMinComplexAlone;
  return machine.filled(machine.inner) <= kMaxColumnsFilled && size >= kMinColumnsAlone;
}

bool fits_lanes(const Group& group, const Machine& machine) {
  // As floating-point numbers, because sizes that no array can have would overflow here, before
  // they are refused elsewhere.
  return double(group.largest) * double(group.R) * double(machine.lanes * machine.item) <= kLaneBytes;
}

// How many of the first steps make the longest group whose tiles fit, and are many and full enough;
// 0 if these are fewer than `fewest`.
std::size_t steps_in_lanes(const StepRange& steps, std::size_t fewest, const Machine& machine) {
  std::size_t best = 0;
  for (std::size_t count = 1; count <= steps.size(); ++count) {
    const Group group = group_of({steps.begin(), steps.begin() + count});
    const Index blocks = machine.outer * group.L;
    if (!fits_lanes(group, machine) || machine.filled(blocks) < kMinTileUse ||
        machine.rounded_up(blocks) < kMinLaneTiles * machine.lanes)
      break;
    best = count;
  }
  return best >= fewest ? best : 0;
}

// The fewest modes in the `lanes` layout; 0 if it is not wanted.
std::size_t fewest_in_lanes(const StepRange& steps, bool is_last_mode, const Machine& machine) {
  const Step& first = *steps.front();
  if (steps.size() == 1 && wants_lanes_alone(first, is_last_mode, machine)) return 1;
  if (!wants_lanes(first, is_last_mode, machine)) return 0;
  const bool is_small = first.C <= kMaxFixed && machine.item > Index(sizeof(float));
  return is_small ? kMinSmallLaneModes : kMinLaneModes;
}

// How many of the first steps (at least one) go through a tile together in the other layouts: a
// large factor ends the group, and so does a tile that no longer fits.
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

// Chooses between the layouts `contiguous` and `strips`, with tiles of the size of the cache.
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

// The group that takes as many as it can of these steps, which are modes in descending order.
Group next_group(const StepRange& steps, bool has_last_mode, const Machine& machine,
                 const KernelSizes& kernels) {
  const bool alone = has_last_mode && machine.inner == 1;  // no columns behind the last mode
  const bool in_registers = alone && last_modes_at_once(group_of(steps).passes, kernels) > 1;
  const std::size_t fewest = fewest_in_lanes(steps, has_last_mode, machine);
  if (!in_registers && fewest > 0 && !without("lanes")) {
    if (const std::size_t count = steps_in_lanes(steps, fewest, machine)) {
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
                                        const std::vector<Index>& outputs,
                                        const std::vector<bool>& skipped) {
  std::vector<MergedFactor> merged;
  for (int k = int(inputs.size()) - 1; k >= 0; --k) {
    const MergedFactor factor{k, k, inputs[k], outputs[k], !skipped.empty() && skipped[k]};
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
                          Index outer, Index inner, const KernelSizes& kernels,
                          const std::vector<bool>& skipped) {
  Schedule schedule;
  schedule.factors = merge_factors(inputs, outputs, skipped);
  std::vector<Index> merged_inputs, merged_outputs;
  std::vector<bool> active;
  for (const MergedFactor& factor : schedule.factors) {
    merged_inputs.push_back(factor.C);
    merged_outputs.push_back(factor.K);
    active.push_back(!factor.skipped);
  }
  const int last_mode = int(schedule.factors.size()) - 1;
  const Steps steps =
      plan_steps(merged_inputs, merged_outputs, active, inner, Ties::last_mode_first);
  schedule.multiply_adds = steps.multiply_adds;
  for (const Step& step : steps.list)
    for (int k = schedule.factors[step.mode].last; k >= schedule.factors[step.mode].first; --k)
      schedule.order.push_back(k);
  // An empty x or y needs no groups.
  if (inner == 0 || checked_product(inputs) == 0 || checked_product(outputs) == 0) return schedule;

  const Index largest =
      std::max(steps.largest_intermediate, checked_product(merged_inputs, inner));
  const Machine machine{outer, inner, kernels.lanes, kernels.item, kernels.complex,
                        double(largest) * double(kernels.item) > kFarBytes};

  const auto next_below = [&](int mode) {
    do --mode;
    while (mode >= 0 && !active[mode]);
    return mode;
  };
  // A group takes modes that follow each other downwards in the order of least work.
  for (std::size_t s = 0; s < steps.list.size();) {
    StepRange range{&steps.list[s]};
    while (s + range.size() < steps.list.size() &&
           steps.list[s + range.size()].mode == next_below(range.back()->mode))
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
