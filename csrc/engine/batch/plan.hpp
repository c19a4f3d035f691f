// y[outputs[b]] += alpha * weights[b] * (A_1b (x) ... (x) A_db) x[inputs[b]] for all b of a batch
// list, for one system or for many that share the list but not the matrices.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/batch/list.hpp"
#include "engine/batch/pools.hpp"
#include "engine/dispatch.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"
#include "simd/batch/table.hpp"
#include "simd/common/packed_factor.hpp"

namespace batchkron {

// How products with one output are added: by the one thread that owns the output block, in a fixed
// order, or by any thread with atomic operations, in any order.
enum class Accumulation { owner, atomic };

// A plan with its own copy of the pools. Several threads may run it at once, but not while its
// values are being set.
template <class T>
class BatchPlan {
 public:
  BatchPlan(BatchShape shape, SortedList list, Index systems, Accumulation accumulation)
      : BatchPlan(std::move(shape), std::move(list), systems, accumulation, false, nullptr) {}
  BatchPlan(const BatchPlan&) = delete;
  BatchPlan& operator=(const BatchPlan&) = delete;

  // A plan that runs once. It reads the user's pools where it `borrows` them, which must be the same
  // for all systems, and else copies them. What its threads gain is learned for others like it.
  static BatchPlan once(BatchShape shape, SortedList list, bool borrows, ThreadGains& gains) {
    return BatchPlan(std::move(shape), std::move(list), 1, Accumulation::owner, borrows, &gains);
  }

  // Gives the list away; the plan is not used any more.
  SortedList take_list() { return std::move(list_); }

  // Sets the matrices of one mode; sizes must not change between calls.
  void set_pool(std::size_t mode, const PoolView<T>& view);

  // weights is (sets, products) in the user's order of products; sets is 1 or the number of
  // systems.
  void set_weights(const T* weights, Index sets);

  // The same with all weights 1.
  void set_unit_weights() {
    weights_.assign(list_.inputs.empty() ? 0 : 1, T(1));
    weight_step_ = weight_system_ = 0;
  }

  const SortedList& list() const { return list_; }
  const BatchShape& shape() const { return shape_; }
  Index systems() const { return systems_; }
  Index input_elements() const { return checked_product({shape_.num_inputs, input_size_}); }
  Index output_elements() const { return checked_product({shape_.num_outputs, output_size_}); }

  // x is (outer, num_inputs, product of inputs, inner), y is (outer, num_outputs, product of
  // outputs, inner), both contiguous. Entry e of outer belongs to system e mod systems. accumulate
  // = false overwrites y and never reads it. y does not alias x.
  void run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const;

 private:
  BatchPlan(BatchShape shape, SortedList list, Index systems, Accumulation accumulation,
            bool borrows, ThreadGains* gains);

  // Elements of a thread's scratch memory for the kernels with a product in each lane: the sums,
  // each of two tiles, and a matrix. All 0 if they do not run.
  struct Scratch {
    Index sums = 0, tile = 0, matrix = 0;
    Index total() const { return sums + 2 * tile + matrix; }
  };

  struct Call {
    const T* x;
    T* y;
    Index outer, inner;
    T alpha;
    bool accumulate;
    T* scratch;    // of the first thread
    Index buffer;  // elements of each of two buffers for a product's intermediate results
    Scratch lanes;
    Index per_thread;
    T* sums() const { return scratch + 2 * buffer; }
    T* packed() const { return sums() + lanes.total(); }  // without atomic operations
  };

  // The call with the scratch memory of a thread.
  static Call call_of(Call call, int thread) {
    call.scratch += call.per_thread * thread;
    return call;
  }

  // Whether all products of a set have the same weight. Then it is stored once, which spares
  // reading a list of weights.
  static bool all_same(const T* weights, Index sets, std::size_t count) {
    for (Index set = 0; set < sets; ++set, weights += count)
      for (std::size_t i = 1; i < count; ++i)
        if (!(weights[i] == weights[0])) return false;
    return true;
  }

  // The batch kernels, or null: where there are none for T, where products are added atomically, or
  // where a tile with a block in each lane would not stay in the L2 cache.
  const BatchKernels<T>* kernels_for() const {
    const BatchKernels<T>* kernels = batch_kernels<T>();
    if (!kernels || accumulation_ == Accumulation::atomic) return nullptr;
    const Index largest = std::max({input_size_, output_size_, list_.largest_intermediate});
    return largest * kernels->lanes * Index(sizeof(T)) <= kMaxTileBytes ? kernels : nullptr;
  }

  // The kernel that keeps a block in registers, or null if there is none for these sizes.
  BlockKernel<T> find_block_kernel() {
    const Index n = shape_.inputs[0], modes = Index(shape_.inputs.size());
    if (modes == 1) return batch_->add_vectors;
    const std::vector<Index> square(shape_.inputs.size(), n);
    if (shape_.inputs != square || shape_.outputs != square) return nullptr;
    BlockKernel<T> kernel = nullptr;
    if (n == 2 && modes <= kMaxTensor) kernel = batch_->add_twos[modes - kMinTensor];
    if (n == 4 && modes == 2) kernel = batch_->add_fours;
    is_tensor_ = kernel != nullptr;
    const bool is_pair = modes == 2 && n >= kMinPair && n <= kMaxPair;
    // Rows that fill less than half of a vector are faster with a product in each lane.
    if (!kernel && is_pair && 2 * packed_stride<T>(n) >= batch_->lanes)
      kernel = batch_->add_pairs[n - kMinPair];
    return kernel;
  }

  // (groups, modes): 1 if the factors of this mode are not the identity, else 0.
  std::vector<char> find_active() const {
    const std::size_t modes = shape_.inputs.size();
    std::vector<char> active(list_.steps.size() * modes, 0);
    for (std::size_t group = 0; group < list_.steps.size(); ++group)
      for (const Step& step : list_.steps[group].list) active[group * modes + step.mode] = 1;
    return active;
  }

  Index largest_matrix() const {
    Index largest = 0;
    for (std::size_t k = 0; k < shape_.inputs.size(); ++k)
      largest = std::max(largest, checked_product({shape_.inputs[k], shape_.outputs[k]}));
    return largest;
  }

  Index largest_packed_matrix() const {
    Index largest = 0;
    for (std::size_t k = 0; k < shape_.inputs.size(); ++k)
      largest = std::max(largest, packed_size<T>(shape_.outputs[k], shape_.inputs[k]));
    return largest;
  }

  Scratch lane_scratch() const {
    if (!batch_) return {};
    const Index lanes = batch_->lanes;
    const Index tile = std::max(input_size_, list_.largest_intermediate);
    return {padded<T>((output_size_ + 3) * lanes), padded<T>(tile * lanes),
            padded<T>(largest_matrix() * lanes)};
  }

  // Whether the kernel with a block in registers takes this run. Tensor kernels can skip modes
  // whose factor is the identity, the others cannot.
  bool in_registers(const Run& run) const {
    return block_kernel_ &&
           (is_tensor_ || list_.steps[run.group].list.size() == shape_.inputs.size());
  }

  // How many products of a run are computed one in each lane. A few that are left over and would
  // fill less than a quarter of the lanes are faster one by one.
  Index products_in_lanes(const Run& run) const {
    const Index count = run.end - run.begin;
    if (list_.steps[run.group].list.empty() || in_registers(run)) return 0;
    const Index rest = count % batch_->lanes;
    return rest < std::max<Index>(2, batch_->lanes / 4) ? count - rest : count;
  }

  // target = alpha * weight_i * (product i of the sorted list) x, or +=, for entry e of outer, by
  // the single-mode multiply.
  void evaluate(const Call& call, Index e, Index i, T* target, bool accumulate) const {
    const Steps& steps = list_.steps[list_.group(i)];
    const T* source = call.x + (e * shape_.num_inputs + list_.inputs[i]) * input_size_ * call.inner;
    const Index system = e % systems_;
    const T weight = call.alpha * weights_[system * weight_system_ + i * weight_step_];
    const int last = int(steps.list.size()) - 1;
    if (last < 0) return scale(source, weight, target, accumulate, call.inner);
    const std::int32_t* ids = list_.ids.data() + std::size_t(i) * shape_.inputs.size();
    T* buffers = call.scratch;
    for (int s = 0; s <= last; ++s) {
      const Step& step = steps.list[s];
      const T* f = factor(call, system, step, ids[step.mode]);
      T* result = s == last ? target : buffers + (s % 2) * call.buffer;
      const Index R = step.R * call.inner;
      mode_kernels<T>().multiply(
          contiguous_pass(result, source, f, step.C, step.K, step.L, R, s == last ? weight : T(1),
                          s == last && accumulate),
          1, step.C);
      source = result;
    }
  }

  // A packed matrix; a borrowed one is packed now.
  const T* factor(const Call& call, Index system, const Step& step, Index id) const {
    if (!borrows_) return pools_.matrix(system, step.mode, id);
    const T* matrix = pools_.batch(system)[step.mode] + id * step.K * step.C;
    pack(FactorView<T>{matrix, step.K, step.C, step.C, 1}, call.packed());
    return call.packed();
  }

  // target = weight * source, or +=, where all factors are the identity: a multiply by the 1 x 1
  // factor 1.
  void scale(const T* source, T weight, T* target, bool accumulate, Index inner) const {
    static const T one[kPaddingBytes / sizeof(T)] = {T(1)};
    mode_kernels<T>().multiply(contiguous_pass<T>(target, source, one, 1, 1, 1,
                                                  input_size_ * inner, weight, accumulate),
                               1, 1);
  }

  // One thread owns an output block and adds its products in the plan's order: the bits are the
  // same for any number of threads.
  void run_owner(const Call& shared, const ThreadTeam& team) const {
    team.run(shared.outer * shape_.num_outputs, [&](Index begin, Index end, int thread) {
      const Call call = call_of(shared, thread);
      for (Index block = begin; block < end; ++block) {
        const Index e = block / shape_.num_outputs, output = block % shape_.num_outputs;
        T* target = call.y + block * output_size_ * call.inner;
        if (batch_ && call.inner == 1)
          add_with_kernels(call, e, output, target);
        else
          add_one_by_one(call, e, list_.starts[output], list_.starts[output + 1], target,
                         call.accumulate);
      }
    });
  }

  // target = alpha * the sum of products [begin, end), or +=.
  void add_one_by_one(const Call& call, Index e, Index begin, Index end, T* target,
                      bool accumulate) const {
    if (begin == end && !accumulate) std::fill_n(target, output_size_ * call.inner, T{});
    for (Index i = begin; i < end; ++i)
      evaluate(call, e, i, target, accumulate || i > begin);
  }

  // The same for all products of one output with the batch kernels: first those computed one in
  // each lane, then the others of each run.
  void add_with_kernels(const Call& call, Index e, Index output, T* target) const {
    const Index first = list_.run_starts[output], last = list_.run_starts[output + 1];
    Index taken = 0;
    for (Index r = first; r < last; ++r) taken += products_in_lanes(list_.runs[r]);
    if (taken > 0) {
      std::fill_n(call.sums(), call.lanes.sums, T{});
      for (Index r = first; r < last; ++r) add_run(call, e, list_.runs[r]);
      batch_->add_lanes({target, call.sums(), output_size_, call.alpha, call.accumulate});
    } else if (first == last && !call.accumulate) {
      std::fill_n(target, output_size_, T{});
    }
    for (Index r = first; r < last; ++r) {
      const Run& run = list_.runs[r];
      const bool accumulate = call.accumulate || taken > 0 || r > first;
      if (in_registers(run))
        add_in_registers(call, e, run, target, accumulate);
      else
        add_one_by_one(call, e, run.begin + products_in_lanes(run), run.end, target, accumulate);
    }
  }

  const T* weights_of(Index system, const Run& run) const {
    return weights_.data() + system * weight_system_ + run.begin * weight_step_;
  }

  void add_in_registers(const Call& call, Index e, const Run& run, T* target,
                        bool accumulate) const {
    const Index system = e % systems_, modes = Index(shape_.inputs.size());
    const T* const* pools = is_tensor_ ? pools_.batch(system) : pools_.packed(system);
    block_kernel_({target, call.x + e * shape_.num_inputs * input_size_,
                   list_.inputs.data() + run.begin, list_.ids.data() + run.begin * modes,
                   weights_of(system, run), weight_step_, run.end - run.begin,
                   pools, active_.data() + run.group * modes, shape_.inputs[0], shape_.outputs[0],
                   call.alpha, accumulate});
  }

  void add_run(const Call& call, Index e, const Run& run) const {
    const Index count = products_in_lanes(run), modes = Index(shape_.inputs.size());
    if (count == 0) return;
    const Index system = e % systems_;
    const Steps& steps = list_.steps[run.group];
    T* tiles = call.sums() + call.lanes.sums;
    batch_->add_products({call.sums(), call.x + e * shape_.num_inputs * input_size_, input_size_,
                          list_.inputs.data() + run.begin, list_.ids.data() + run.begin * modes,
                          modes, weights_of(system, run), weight_step_, count,
                          steps.list.data(), int(steps.list.size()),
                          pools_.batch(system), borrows_, zeros_.data(), tiles, call.lanes.tile,
                          tiles + 2 * call.lanes.tile});
  }

  // Each product is a task of its own, whose result is added with atomic operations in any order.
  void run_atomic(const Call& shared, const ThreadTeam& team) const {
    const Index block_size = output_size_ * shared.inner;
    if (!shared.accumulate)
      std::fill_n(shared.y, shared.outer * shape_.num_outputs * block_size, T{});
    const Index count = Index(list_.inputs.size());
    team.run(shared.outer * count, [&](Index begin, Index end, int thread) {
      const Call call = call_of(shared, thread);
      for (Index task = begin; task < end; ++task) {
        const Index e = task / count, i = task % count;
        evaluate(call, e, i, call.sums(), false);
        atomic_add(call.y + (e * shape_.num_outputs + output_of(i)) * block_size, call.sums(),
                   block_size);
      }
    });
  }

  Index output_of(Index i) const {
    return std::upper_bound(list_.starts.begin(), list_.starts.end(), i) - list_.starts.begin() - 1;
  }

  template <class Real>
  static void atomic_add(Real* target, const Real* values, Index count) {
    for (Index j = 0; j < count; ++j) {
      Real before, after;
      __atomic_load(target + j, &before, __ATOMIC_RELAXED);
      do {
        after = before + values[j];
      } while (!__atomic_compare_exchange(target + j, &before, &after, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    }
  }
  template <class Real>
  static void atomic_add(Complex<Real>* target, const Complex<Real>* values, Index count) {
    atomic_add(reinterpret_cast<Real*>(target), reinterpret_cast<const Real*>(values), 2 * count);
  }

  // Bytes of a tile with a block in each lane that stays in the L2 cache. Chosen by hand.
  static constexpr Index kMaxTileBytes = 256 << 10;

  BatchShape shape_;
  Index systems_, input_size_, output_size_;
  Accumulation accumulation_;
  SortedList list_;
  bool borrows_;  // whether pools are the user's
  BatchPools<T> pools_;
  const BatchKernels<T>* batch_;  // null if the batch kernels do not run
  bool is_tensor_ = false;        // whether block_kernel_ is a tensor kernel
  BlockKernel<T> block_kernel_;   // null if there is none
  std::vector<char> active_;      // (groups, modes)
  std::vector<T> zeros_;          // what lanes without a product read
  std::vector<T> weights_;
  Index weight_step_ = 1;    // weights between two products; 0 if they share one
  Index weight_system_ = 0;  // weights between two systems; 0 if they share them
  ThreadGains own_gains_;
  ThreadGains* gains_;
};

// Compiled once, in plan.cpp.
extern template class BatchPlan<float>;
extern template class BatchPlan<double>;
extern template class BatchPlan<Complex<float>>;
extern template class BatchPlan<Complex<double>>;

}  // namespace batchkron
