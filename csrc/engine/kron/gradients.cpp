#include "engine/kron/gradients.hpp"

namespace batchkron {

template <class T>
KronGradients<T>::KronGradients(const std::vector<FactorView<T>>& factors, Index outer, Index inner)
    : kernels_(mode_kernels<T>()), factors_(factors), outer_(outer), modes_(int(factors.size())) {
  sizes_.assign(modes_ + 1, 1);
  behind_.assign(modes_ + 1, inner);
  for (int k = modes_ - 1; k >= 0; --k)
    behind_[k] = checked_product({behind_[k + 1], factors[k].K});
  Index before = 1;
  for (int k = 0; k <= modes_; ++k) {
    sizes_[k] = checked_product({before, behind_[k]});
    largest_ = std::max(largest_, sizes_[k]);
    if (k < modes_) {
      before = checked_product({before, factors[k].C});
      sums_ += factors[k].K * factors[k].C;
      multiply_adds_ += 3.0 * double(sizes_[k]) * double(factors[k].C);
    }
  }
  checked_product({outer, largest_});
  const Index lanes = kernels_.lanes;
  bool fills = true;
  for (int k = 0; k + 1 < modes_; ++k) fills = fills && behind_[k + 1] % lanes == 0;
  in_lanes_ = !fills && outer >= lanes && lanes * largest_ * Index(sizeof(T)) <= kLaneBytes;
  const Index together = in_lanes_ ? lanes : 1;
  const Index unit = together * largest_ * Index(sizeof(T));
  rows_ = together * std::max<Index>(1, kChunkBytes / unit);
  chunks_ = (outer + rows_ - 1) / rows_;
  const Index most = kSumsBytes / Index(sizeof(T)) / sums_;
  parts_ = std::clamp<Index>(most, 1, std::min(chunks_, kMaxParts));
}

template <class T>
void KronGradients<T>::run(const T* x, const T* gradient, T* of_x, T* const* of_factors) const {
  const double work = parts_ > 1 ? double(outer_) * multiply_adds_ : 0.0;
  const ThreadTeam team(work, gains());
  const int threads = team.threads();
  Index packed = 0;
  for (const FactorView<T>& f : factors_)
    packed += padded<T>(packed_size<T>(f.K, f.C)) + padded<T>(packed_size<T>(f.C, f.K));
  const Index between = padded<T>(rows_ * largest_), turned = padded<T>(turned_elements());
  const Index sums = padded<T>(sums_);
  const Index per_thread = (modes_ + 3) * between + 2 * turned;
  thread_local Workspace workspace;
  T* memory = static_cast<T*>(workspace.reserve(bytes_of<T>(packed, 1) + bytes_of<T>(sums, parts_) +
                                                bytes_of<T>(per_thread, threads)));
  Call call{x, gradient, of_x, of_factors, {}, {}, between, turned, 0, 0};
  for (const FactorView<T>& f : factors_) {
    pack({f.data, f.K, f.C, f.stride_k, f.stride_c}, memory);
    call.back.push_back(memory);
    memory += padded<T>(packed_size<T>(f.K, f.C));
    pack({f.data, f.C, f.K, f.stride_c, f.stride_k}, memory);
    call.forward.push_back(memory);
    memory += padded<T>(packed_size<T>(f.C, f.K));
  }
  while (!of_factors[call.first]) ++call.first;
  call.last = modes_ - 1;
  while (!of_factors[call.last]) --call.last;
  T* const all_sums = memory;
  T* const scratch = memory + sums * parts_;
  team.run(parts_, 1, [&](Index begin, Index end, int thread) {
    for (Index part = begin; part < end; ++part)
      run_part(call, part, all_sums + part * sums, scratch + thread * per_thread);
  });
  Index begin = 0;
  for (int k = 0; k < modes_; ++k) {
    const Index count = factors_[k].K * factors_[k].C;
    if (of_factors[k]) {
      std::copy_n(all_sums + begin, count, of_factors[k]);
      for (Index part = 1; part < parts_; ++part)
        for (Index i = 0; i < count; ++i) of_factors[k][i] += all_sums[part * sums + begin + i];
    }
    begin += count;
  }
}

template class KronGradients<float>;
template class KronGradients<double>;

}  // namespace batchkron
