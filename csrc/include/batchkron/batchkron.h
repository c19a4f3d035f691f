/* batchkron for C99, C++ and Fortran: products with Kronecker products of small matrices, on the CPU.
 *
 * Arrays are row-major and contiguous; sizes and indices have 64 bits unless said otherwise. A plan is
 * made once for its sizes and run any number of times. Of "y = alpha A x + beta y", alpha and beta
 * point to one number of the plan's dtype: a null alpha is 1, a null beta is 0, and with a beta of 0
 * y is written without being read. y may overlap neither x nor matrices. Results have the bits of the Python
 * package, for any number of threads.
 *
 * Every function returns a status and changes nothing if that is not BK_OK, unless memory ran out
 * during a product. None prints, exits or throws. Several threads may run one plan at once; while one
 * sets the values of a plan, runs of it wait. Plans belong to the process that made them.
 *
 * The number of threads and the instruction set (environment variable BATCHKRON_ISA) are those of the
 * whole process. The guide is docs/guides/call-from-c.md. */
#ifndef BATCHKRON_BATCHKRON_H
#define BATCHKRON_BATCHKRON_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BK_ABI_VERSION 1 /* what a program was compiled with; bk_abi_version: what it runs with */

#if defined(__GNUC__)
#define BK_API __attribute__((visibility("default")))
#else
#define BK_API
#endif

typedef enum bk_status {
  BK_OK = 0,
  BK_INVALID = 1,     /* an argument is wrong; bk_last_error says which */
  BK_OVERFLOW = 2,    /* a size does not fit into 64 bits */
  BK_NO_MEMORY = 3,
  BK_UNSUPPORTED = 4, /* BATCHKRON_ISA names nothing that this processor and this build have */
  BK_INTERNAL = 5     /* a defect of batchkron */
} bk_status;

typedef enum bk_dtype { BK_F32 = 0, BK_F64 = 1, BK_C64 = 2, BK_C128 = 3 } bk_dtype;

/* ---- The library. */

BK_API int32_t bk_abi_version(void);
BK_API const char *bk_version(void);
BK_API const char *bk_status_text(bk_status status);
/* What was wrong in the last call of this thread that failed, "" before; valid until the next one. */
BK_API const char *bk_last_error(void);
/* The instruction set of the kernels, for example "avx2". */
BK_API bk_status bk_instruction_set(const char **name);
BK_API int32_t bk_num_threads(void);
/* 0: what OMP_NUM_THREADS says, or one for each processor that the process may use. */
BK_API bk_status bk_set_num_threads(int32_t count);

/* ---- A Kronecker product: y (outer, prod rows, inner) = alpha (F_1 x ... x F_n) x + beta y, with
 * x (outer, prod columns, inner). Factor k is rows[k] x columns[k]. GEKMM (the product stands left of
 * a row-major matrix) is outer = 1; GEKMM's mirror GEMKM, X times F, is inner = 1 with `transposed`
 * factors, and rows and columns exchanged. */
typedef struct bk_kron bk_kron;
BK_API bk_status bk_kron_create(bk_kron **kron, bk_dtype dtype, int32_t num_factors,
                                const int64_t *rows, const int64_t *columns, int64_t outer,
                                int64_t inner);
/* transposed: 1 if the memory of each factor holds its transpose, as column-major matrices do; else 0.
 * Factors are read in this call. */
BK_API bk_status bk_kron_run(const bk_kron *kron, const void *const *factors, int32_t transposed,
                             const void *x, const void *alpha, const void *beta, void *y);
BK_API void bk_kron_destroy(bk_kron *kron);

/* out (rows_a rows_b, columns_a columns_b) = a x b, as a dense matrix. */
BK_API bk_status bk_kron_explicit(bk_dtype dtype, int64_t rows_a, int64_t columns_a, const void *a,
                                  int64_t rows_b, int64_t columns_b, const void *b, void *out);

/* ---- A batch list: y[outputs[b]] += weights[b] (P_1[ids[b, 0]] x ... x P_n[ids[b, n - 1]])
 * x[inputs[b]] for all b. Pool k has pool_counts[k] matrices of rows[k] x columns[k], one behind the
 * other; ids is (count, num_modes). x has num_inputs blocks of prod columns elements, y num_outputs
 * of prod rows. */
typedef struct bk_batch bk_batch;
typedef struct bk_batch_list {
  int32_t num_modes;
  int32_t transposed;          /* 1 if the memory of each matrix holds its transpose */
  const int64_t *rows;         /* (num_modes,) */
  const int64_t *columns;      /* (num_modes,) */
  const int64_t *pool_counts;  /* (num_modes,) */
  int64_t num_inputs, num_outputs;
  int64_t count;               /* of products */
  const int64_t *ids;          /* (count, num_modes) */
  const int64_t *inputs;       /* (count,) */
  const int64_t *outputs;      /* (count,) */
} bk_batch_list;
/* Everything is copied. weights (count,), null: all are 1. flags: 0, or a sum of those below. */
enum {
  BK_ATOMIC = 1,         /* sums by atomic additions, else in a fixed order by the owner of an output */
  BK_KEEP_IDENTITIES = 2 /* factors that are exactly the identity are multiplied like others, so that
                            they may get other values; else they are skipped */
};
BK_API bk_status bk_batch_create(bk_batch **batch, bk_dtype dtype, const bk_batch_list *list,
                                 const void *const *pools, const void *weights, int32_t flags);
/* Other values of the same list; a matrix that is skipped must stay the identity. */
BK_API bk_status bk_batch_set_values(bk_batch *batch, const void *const *pools,
                                     const void *weights);
/* x (outer, num_inputs, prod columns, inner), y (outer, num_outputs, prod rows, inner). */
BK_API bk_status bk_batch_run(const bk_batch *batch, int64_t outer, int64_t inner, const void *x,
                              const void *alpha, const void *beta, void *y);
BK_API void bk_batch_destroy(bk_batch *batch);
/* The same for one call, y (outer, num_outputs, prod rows) += ...: nothing is kept. */
BK_API bk_status bk_batch_once(bk_dtype dtype, const bk_batch_list *list, const void *const *pools,
                               const void *weights, int64_t outer, const void *x, void *y);

/* c[c_ids[i]] = beta c[c_ids[i]] + alpha the sum of a[a_ids[i]] b[b_ids[i]] for all i: a (count_a, m,
 * k), b (count_b, k, n), or (count_b, n, k) if transpose_b, c (count_c, m, n). All of c is scaled. */
BK_API bk_status bk_gemm_batched(bk_dtype dtype, int64_t m, int64_t n, int64_t k,
                                 int32_t transpose_b, int64_t count, const int64_t *a_ids,
                                 const int64_t *b_ids, const int64_t *c_ids, int64_t count_a,
                                 int64_t count_b, int64_t count_c, const void *a, const void *b,
                                 const void *alpha, const void *beta, void *c);

/* ---- Sweeps on sparse grids: vectors of blocks, and steps that each compute one vector from others,
 * one mode at a time: target[i] (+)= the sum over the edges e of node i of A[ids[e]] applied along
 * `mode` to source[children[e]], e from starts[i] to starts[i + 1] - 1. Vector 0 is x, vector 1 is y;
 * the others lie in one array of blocks that the plan makes, where they begin at vector_starts; those
 * that are not needed at the same time may overlap. A vector is read after it has been written; y is
 * never read, and steps after the first one that writes it add to it. */
typedef struct bk_sweep_part {
  int64_t source, mode, num_matrices;
  const int32_t *starts;   /* (blocks of the target + 1,) */
  const int32_t *ids;      /* (starts[blocks],) */
  const int32_t *children; /* (starts[blocks],) */
} bk_sweep_part;
typedef struct bk_sweep_step {
  int64_t target;
  int32_t adds; /* 1: the target keeps its values and the parts are added to them */
  int32_t num_parts;
  const bk_sweep_part *parts;
} bk_sweep_step;
typedef struct bk_sweeps bk_sweeps;
/* A block has sizes[0] ... sizes[num_modes - 1] elements. matrices: for each part of all steps,
 * num_matrices matrices of sizes[mode] x sizes[mode]. Everything is copied. */
BK_API bk_status bk_sweeps_create(bk_sweeps **sweeps, bk_dtype dtype, int32_t num_modes,
                                  const int64_t *sizes, int64_t num_vectors,
                                  const int64_t *vector_starts, const int64_t *vector_counts,
                                  int64_t num_steps, const bk_sweep_step *steps,
                                  const void *const *matrices);
BK_API bk_status bk_sweeps_set_values(bk_sweeps *sweeps, const void *const *matrices);
/* x (outer, blocks of vector 0, block, inner), y (outer, blocks of vector 1, block, inner). */
BK_API bk_status bk_sweeps_run(const bk_sweeps *sweeps, int64_t outer, int64_t inner, const void *x,
                               const void *alpha, const void *beta, void *y);
BK_API void bk_sweeps_destroy(bk_sweeps *sweeps);

/* ---- A Kronecker-sparse matrix: K[(i b + k) d + j, (i c + l) d + j] = values[i, k, l, j], else 0,
 * with values (a, b, c, d), which are copied. */
typedef struct bk_kron_sparse bk_kron_sparse;
BK_API bk_status bk_kron_sparse_create(bk_kron_sparse **matrix, bk_dtype dtype, int64_t a, int64_t b,
                                       int64_t c, int64_t d, const void *values);
BK_API bk_status bk_kron_sparse_set_values(bk_kron_sparse *matrix, const void *values);
/* x (outer, a c d, inner), y (outer, a b d, inner). */
BK_API bk_status bk_kron_sparse_run(const bk_kron_sparse *matrix, int64_t outer, int64_t inner,
                                    const void *x, const void *alpha, const void *beta, void *y);
BK_API void bk_kron_sparse_destroy(bk_kron_sparse *matrix);

#ifdef __cplusplus
}
#endif
#endif
