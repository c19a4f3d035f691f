// In place of ASGarD's kronmult::cpu_dense (releases up to 0.7): a plan is made when the grid or the
// coefficients change, and run in each application of the operator.
#include <batchkron/batchkron.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

// y = alpha A x + beta y, where block (r, c) of A is the sum over the terms t of the product over the
// dimensions k of matrix (elem[c, k], elem[r, k]) of vA[t]. As ASGarD has them, matrices are n x n and
// column-major, those of one dimension one behind the other: num_1d_blocks^2 of them.
class DenseKronmult {
 public:
  DenseKronmult(int dimensions, int n, int rows, int columns, int terms, const int* elem,
                int row_offset, int column_offset, const double* const* vA, int num_1d_blocks) {
    const std::int64_t count = std::int64_t(num_1d_blocks) * num_1d_blocks, size = count * n * n;
    const std::vector<std::int64_t> sizes(dimensions, n), counts(dimensions, terms * count);
    std::vector<std::vector<double>> pools(dimensions);
    std::vector<const double*> pointers;
    for (int k = 0; k < dimensions; ++k) {
      for (int t = 0; t < terms; ++t)
        pools[k].insert(pools[k].end(), vA[t] + k * size, vA[t] + (k + 1) * size);
      pointers.push_back(pools[k].data());
    }
    std::vector<std::int64_t> ids, inputs, outputs;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c)
        for (int t = 0; t < terms; ++t) {
          inputs.push_back(c);
          outputs.push_back(r);
          for (int k = 0; k < dimensions; ++k)
            ids.push_back(t * count + elem[(c + column_offset) * dimensions + k] * num_1d_blocks +
                          elem[(r + row_offset) * dimensions + k]);
        }
    bk_batch_list list{};
    list.num_modes = dimensions;
    list.transposed = 1;
    list.rows = list.columns = sizes.data();
    list.pool_counts = counts.data();
    list.num_inputs = columns;
    list.num_outputs = rows;
    list.count = std::int64_t(inputs.size());
    list.ids = ids.data();
    list.inputs = inputs.data();
    list.outputs = outputs.data();
    plan_.emplace_back(list, pointers);
  }

  void apply(double alpha, const double* x, double beta, double* y) const {
    plan_.front().run(x, y, alpha, beta);
  }

 private:
  std::vector<bk::Batch<double>> plan_;
};

int main() {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  double worst = 0;
  for (int d = 1; d <= 3; ++d)
    for (int n = 2; n <= 4; ++n) {
      const int blocks = 4, rows = 7, columns = 7, terms = 3, size = int(std::lround(std::pow(n, d)));
      const auto random = [&](std::size_t count) {
        std::vector<double> values(count);
        for (double& value : values) value = normal(generator);
        return values;
      };
      std::vector<int> elem(rows * d);
      for (int& e : elem) e = int(generator() % blocks);
      std::vector<std::vector<double>> values;
      std::vector<const double*> vA;
      for (int t = 0; t < terms; ++t) values.push_back(random(d * blocks * blocks * n * n));
      for (const auto& each : values) vA.push_back(each.data());
      const std::vector<double> x = random(columns * size);
      std::vector<double> y = random(rows * size), expected = y;

      const double alpha = -1.5, beta = 0.5;
      for (double& value : expected) value *= beta;
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
          for (int t = 0; t < terms; ++t)
            for (int i = 0; i < size; ++i)
              for (int j = 0; j < size; ++j) {
                double product = 1;
                for (int k = d - 1, a = i, b = j; k >= 0; --k, a /= n, b /= n)
                  product *= vA[t][n * n * (k * blocks * blocks + elem[c * d + k] * blocks + elem[r * d + k]) +
                                   b % n * n + a % n];
                expected[r * size + i] += alpha * product * x[c * size + j];
              }
      DenseKronmult(d, n, rows, columns, terms, elem.data(), 0, 0, vA.data(), blocks)
          .apply(alpha, x.data(), beta, y.data());
      for (std::size_t i = 0; i < y.size(); ++i)
        worst = std::max(worst, std::abs(y[i] - expected[i]) / size);
    }
  std::printf("largest difference from a dense sum: %.1e\n", worst);
  return worst > 1e-12;
}
