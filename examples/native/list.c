/* A batch list in C: y[outputs[b]] += (A[ids[b, 0]] x A[ids[b, 1]]) x[inputs[b]], beside plain loops. */
#include <batchkron/batchkron.h>
#include <math.h>
#include <stdio.h>

enum { N = 3, BLOCK = N * N, MATRICES = 2, PRODUCTS = 4, BLOCKS = 3 };

int main(void) {
  const double pool[MATRICES][N][N] = {{{1, 2, 0}, {0, 1, -1}, {3, 0, 1}},
                                       {{0, 1, 1}, {2, 0, 1}, {-1, 1, 0}}};
  const int64_t sizes[] = {N, N}, counts[] = {MATRICES, MATRICES};
  const int64_t ids[PRODUCTS][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  const int64_t inputs[PRODUCTS] = {0, 1, 2, 2}, outputs[PRODUCTS] = {0, 0, 1, 2};
  const bk_batch_list list = {.num_modes = 2, .rows = sizes, .columns = sizes, .pool_counts = counts,
                              .num_inputs = BLOCKS, .num_outputs = BLOCKS, .count = PRODUCTS,
                              .ids = ids[0], .inputs = inputs, .outputs = outputs};
  const void *pools[] = {pool, pool};

  double x[BLOCKS * BLOCK], y[BLOCKS * BLOCK], expected[BLOCKS * BLOCK] = {0};
  for (int i = 0; i < BLOCKS * BLOCK; ++i) x[i] = sin(i);
  for (int b = 0; b < PRODUCTS; ++b)
    for (int i = 0; i < BLOCK; ++i)
      for (int j = 0; j < BLOCK; ++j)
        expected[outputs[b] * BLOCK + i] += pool[ids[b][0]][i / N][j / N] * pool[ids[b][1]][i % N][j % N] *
                                   x[inputs[b] * BLOCK + j];

  bk_batch *plan = NULL;
  if (bk_batch_create(&plan, BK_F64, &list, pools, NULL, 0) != BK_OK ||
      bk_batch_run(plan, 1, 1, x, NULL, NULL, y) != BK_OK) {
    fprintf(stderr, "%s\n", bk_last_error());
    return 1;
  }
  bk_batch_destroy(plan);

  double error = 0;
  for (int i = 0; i < BLOCKS * BLOCK; ++i) error = fmax(error, fabs(y[i] - expected[i]));
  printf("largest difference from plain loops: %.1e\n", error);
  return error > 1e-14;
}
