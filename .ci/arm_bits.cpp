// Calls what libbatchkron has, with fixed numbers, and prints a hash of each result: .ci/arm_bits
// compares what two processors print.
#include <batchkron/batchkron.h>

#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Sizes = std::vector<std::int64_t>;

template <class T>
struct Dtype;
#define DTYPE(Type, value, text)                 \
  template <>                                    \
  struct Dtype<Type> {                           \
    static constexpr bk_dtype number = value;    \
    static constexpr const char* name = text;    \
  };
DTYPE(float, BK_F32, "float32")
DTYPE(double, BK_F64, "float64")
DTYPE(std::complex<float>, BK_C64, "complex64")
DTYPE(std::complex<double>, BK_C128, "complex128")

void check(bk_status status) {
  if (status == BK_OK) return;
  std::fprintf(stderr, "%s: %s\n", bk_status_text(status), bk_last_error());
  std::exit(1);
}

// SplitMix64: the same numbers everywhere.
class Numbers {
 public:
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t end) { return std::int64_t(bits() % std::uint64_t(end)); }
  void set(float& x) { x = float(bits() >> 40) / float(1 << 23) - 1; }
  void set(double& x) { x = double(bits() >> 11) / double(std::int64_t(1) << 52) - 1; }
  template <class R>
  void set(std::complex<R>& x) {
    R parts[2];
    set(parts[0]);
    set(parts[1]);
    x = {parts[0], parts[1]};
  }
  template <class T>
  std::vector<T> array(std::int64_t count) {
    std::vector<T> values(count);
    for (T& value : values) set(value);
    return values;
  }

 private:
  std::uint64_t state_ = 1;
};

std::int64_t product(const Sizes& sizes) {
  std::int64_t result = 1;
  for (std::int64_t size : sizes) result *= size;
  return result;
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& arrays) {
  std::vector<const void*> result;
  for (const auto& array : arrays) result.push_back(array.data());
  return result;
}

// Prints the FNV-1a hash of a result's bytes.
template <class T>
void print(const std::string& name, const std::vector<T>& result) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(result.data());
  for (std::size_t i = 0; i < result.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  std::printf("%s %s: %016llx\n", name.c_str(), Dtype<T>::name, static_cast<unsigned long long>(hash));
}

// y = A x, and then y = alpha A x + beta y, by a plan's `run`.
template <class T, class Run>
void print_both(Numbers& numbers, const std::string& name, std::int64_t size, Run run) {
  std::vector<T> y(size);
  const std::vector<T> scale = numbers.array<T>(2);
  check(run(nullptr, nullptr, y.data()));
  print(name, y);
  check(run(&scale[0], &scale[1], y.data()));
  print(name + " scaled", y);
}

template <class T>
void kron(const std::string& name, const Sizes& rows, const Sizes& columns, std::int64_t outer,
          std::int64_t inner) {
  Numbers numbers;
  std::vector<std::vector<T>> factors;
  for (std::size_t k = 0; k < rows.size(); ++k) factors.push_back(numbers.array<T>(rows[k] * columns[k]));
  const std::vector<T> x = numbers.array<T>(outer * product(columns) * inner);
  bk_kron* plan = nullptr;
  check(bk_kron_create(&plan, Dtype<T>::number, int(rows.size()), rows.data(), columns.data(), outer, inner));
  for (int transposed : {0, 1})
    print_both<T>(numbers, name + (transposed ? " transposed" : ""), outer * product(rows) * inner,
                  [&](const T* alpha, const T* beta, T* y) {
                    return bk_kron_run(plan, pointers(factors).data(), transposed, x.data(), alpha, beta, y);
                  });
  bk_kron_destroy(plan);
}

template <class T>
void explicit_product() {
  Numbers numbers;
  const std::vector<T> a = numbers.array<T>(7 * 5), b = numbers.array<T>(6 * 9);
  std::vector<T> out(a.size() * b.size());
  check(bk_kron_explicit(Dtype<T>::number, 7, 5, a.data(), 6, 9, b.data(), out.data()));
  print("kron explicit", out);
}

template <class T>
void batch(int modes, std::int64_t n, std::int64_t outer, std::int64_t inner) {
  Numbers numbers;
  const std::int64_t blocks = 9, count = 150, pool = 6;
  const Sizes sizes(modes, n), counts(modes, pool);
  std::vector<std::vector<T>> pools;
  for (int k = 0; k < modes; ++k) pools.push_back(numbers.array<T>(pool * n * n));
  Sizes ids(count * modes), inputs(count), outputs(count);
  for (auto& id : ids) id = numbers.below(pool);
  for (auto& input : inputs) input = numbers.below(blocks);
  for (auto& output : outputs) output = numbers.below(blocks);
  const std::vector<T> weights = numbers.array<T>(count);
  const bk_batch_list list{modes,  0,      sizes.data(), sizes.data(),  counts.data(), blocks,
                           blocks, count,  ids.data(),   inputs.data(), outputs.data()};
  const std::int64_t size = outer * blocks * product(sizes) * inner;
  const std::vector<T> x = numbers.array<T>(size);
  const std::string name = "batch " + std::to_string(modes) + " modes of " + std::to_string(n) + ", " +
                           std::to_string(outer) + " by " + std::to_string(inner) + " vectors";
  bk_batch* plan = nullptr;
  check(bk_batch_create(&plan, Dtype<T>::number, &list, pointers(pools).data(), weights.data(), 0));
  print_both<T>(numbers, name, size, [&](const T* alpha, const T* beta, T* y) {
    return bk_batch_run(plan, outer, inner, x.data(), alpha, beta, y);
  });
  bk_batch_destroy(plan);
  if (inner > 1) return;
  std::vector<T> y(size);
  check(bk_batch_once(Dtype<T>::number, &list, pointers(pools).data(), weights.data(), outer, x.data(),
                      y.data()));
  print(name + " once", y);
}

template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  Numbers numbers;
  const std::int64_t count = 40, matrices = 7;
  const std::vector<T> a = numbers.array<T>(matrices * m * k), b = numbers.array<T>(matrices * k * n);
  const std::vector<T> scale = numbers.array<T>(2);
  Sizes ids(3 * count);
  for (auto& id : ids) id = numbers.below(matrices);
  for (int transposed : {0, 1}) {
    std::vector<T> c = numbers.array<T>(matrices * m * n);
    check(bk_gemm_batched(Dtype<T>::number, m, n, k, transposed, count, &ids[0], &ids[count],
                          &ids[2 * count], matrices, matrices, matrices, a.data(), b.data(), &scale[0],
                          &scale[1], c.data()));
    print("gemm " + std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k) +
          (transposed ? " transposed" : ""), c);
  }
}

// Up to three edges for each block, from a random block by a random matrix.
struct Edges {
  std::vector<std::int32_t> starts{0}, ids, children;
  Edges(Numbers& numbers, std::int64_t blocks, std::int64_t matrices) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t edge = numbers.below(4); edge > 0; --edge) {
        ids.push_back(int(numbers.below(matrices)));
        children.push_back(int(numbers.below(blocks)));
      }
      starts.push_back(int(ids.size()));
    }
  }
  bk_sweep_part part(std::int64_t source, std::int64_t mode, std::int64_t matrices) const {
    return {source, mode, matrices, starts.data(), ids.data(), children.data()};
  }
};

// One mode after the other: x to vector 2, and from there to y.
template <class T>
void sweeps(std::int64_t n, std::int64_t outer, std::int64_t inner) {
  Numbers numbers;
  const std::int64_t blocks = 20, matrices = 5;
  const Sizes sizes{n, n}, starts{0, 0, 0}, counts{blocks, blocks, blocks};
  const Edges first(numbers, blocks, matrices), second(numbers, blocks, matrices);
  const bk_sweep_part parts[] = {first.part(0, 0, matrices), second.part(2, 1, matrices)};
  const bk_sweep_step steps[] = {{2, 0, 1, &parts[0]}, {1, 0, 1, &parts[1]}};
  const std::vector<std::vector<T>> values{numbers.array<T>(matrices * n * n),
                                           numbers.array<T>(matrices * n * n)};
  const std::int64_t size = outer * blocks * n * n * inner;
  const std::vector<T> x = numbers.array<T>(size);
  bk_sweeps* plan = nullptr;
  check(bk_sweeps_create(&plan, Dtype<T>::number, 2, sizes.data(), 3, starts.data(), counts.data(), 2,
                         steps, pointers(values).data()));
  print_both<T>(numbers, "sweeps " + std::to_string(n) + ", " + std::to_string(inner) + " vectors", size,
                [&](const T* alpha, const T* beta, T* y) {
                  return bk_sweeps_run(plan, outer, inner, x.data(), alpha, beta, y);
                });
  bk_sweeps_destroy(plan);
}

template <class T>
void kron_sparse(const Sizes& pattern, std::int64_t outer, std::int64_t inner) {
  Numbers numbers;
  const std::vector<T> values = numbers.array<T>(product(pattern));
  const std::int64_t a = pattern[0], b = pattern[1], c = pattern[2], d = pattern[3];
  const std::vector<T> x = numbers.array<T>(outer * a * c * d * inner);
  bk_kron_sparse* plan = nullptr;
  check(bk_kron_sparse_create(&plan, Dtype<T>::number, a, b, c, d, values.data()));
  print_both<T>(numbers, "kron-sparse " + std::to_string(b) + " " + std::to_string(c) + ", " +
                std::to_string(inner) + " vectors", outer * a * b * d * inner,
                [&](const T* alpha, const T* beta, T* y) {
                  return bk_kron_sparse_run(plan, outer, inner, x.data(), alpha, beta, y);
                });
  bk_kron_sparse_destroy(plan);
}

template <class T>
void print_all() {
  kron<T>("kron rectangular", {2, 4, 3, 5}, {3, 1, 5, 2}, 1, 9);
  kron<T>("kron primes", {3, 5, 7}, {3, 5, 7}, 13, 1);
  kron<T>("kron of 4", {4, 4, 4}, {4, 4, 4}, 33, 1);
  kron<T>("kron of 2, many vectors", {2, 2, 2, 2, 2}, {2, 2, 2, 2, 2}, 1, 203);
  kron<T>("kron of 8", {8, 8}, {8, 8}, 5, 3);
  kron<T>("kron of 16", {16, 16, 16}, {16, 16, 16}, 4, 1);
  kron<T>("kron large", {64, 31}, {48, 96}, 10, 1);
  kron<T>("kron one factor", {57}, {43}, 1, 21);
  explicit_product<T>();
  for (std::int64_t n : {2, 3, 4, 5, 8}) {
    batch<T>(2, n, 1, 1);
    batch<T>(3, n, 2, 1);
    batch<T>(2, n, 1, 5);
    sweeps<T>(n, 1, 1);
    sweeps<T>(n, 2, 6);
    gemm<T>(n, n, n);
  }
  batch<T>(4, 3, 1, 1);
  batch<T>(1, 10, 1, 1);
  sweeps<T>(16, 1, 1);
  gemm<T>(5, 7, 2);
  gemm<T>(20, 13, 17);
  for (std::int64_t inner : {1, 7, 32}) {
    kron_sparse<T>({3, 4, 6, 5}, 3, inner);
    kron_sparse<T>({1, 32, 16, 1}, 11, inner);
    kron_sparse<T>({2, 5, 3, 64}, 1, inner);
  }
}

}  // namespace

int main() {
  check(bk_set_num_threads(2));
  print_all<float>();
  print_all<double>();
  print_all<std::complex<float>>();
  print_all<std::complex<double>>();
}
