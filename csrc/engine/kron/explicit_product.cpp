#include "engine/kron/explicit_product.hpp"

namespace batchkron {

template <class T>
void ExplicitKron<T>::write(T* out) const {
  if (rows_ * columns_ == 0) return;
  static ThreadGains gains;
  const ThreadTeam team(double(rows_) * double(columns_), gains);
  const int threads = team.threads();
  const bool streams = rows_ * columns_ * Index(sizeof(T)) > kLastLevelBytes;
  const Index repeated = narrow() ? columns_ : 0;
  const Index pattern = narrow() ? columns_b_ * kernels_.lanes : 0;
  const Index per_thread = repeated + pattern + (streams ? std::max(kPiece, columns_b_) : 0);
  thread_local Workspace workspace;
  T* scratch = static_cast<T*>(
      workspace.reserve(std::size_t(per_thread) * sizeof(T) * std::size_t(threads)));
  team.run(rows_, [&](Index begin, Index end, int thread) {
    T* memory = scratch + per_thread * thread;
    T* piece = memory + repeated + pattern;
    write_rows(out, begin, end, {memory, memory + repeated, piece, streams});
  });
}

template class ExplicitKron<float>;
template class ExplicitKron<double>;
template class ExplicitKron<Complex<float>>;
template class ExplicitKron<Complex<double>>;

}  // namespace batchkron
