! batchkron for Fortran 2008: the functions of batchkron.h, under the same names (of bk_status_text
! there is none). Compile this file with your own. Arrays are passed by c_loc, and factors in Fortran's order as transposed ones.
module batchkron
  use, intrinsic :: iso_c_binding
  implicit none
  public

  enum, bind(c)
    enumerator :: BK_OK = 0, BK_INVALID = 1, BK_OVERFLOW = 2, BK_NO_MEMORY = 3, BK_UNSUPPORTED = 4, &
                  BK_INTERNAL = 5
  end enum
  enum, bind(c)
    enumerator :: BK_F32 = 0, BK_F64 = 1, BK_C64 = 2, BK_C128 = 3
  end enum

  enum, bind(c)
    enumerator :: BK_ATOMIC = 1, BK_KEEP_IDENTITIES = 2
  end enum

  type, bind(c) :: bk_batch_list
    integer(c_int32_t) :: num_modes = 0, transposed = 1
    type(c_ptr) :: rows = c_null_ptr, columns = c_null_ptr, pool_counts = c_null_ptr
    integer(c_int64_t) :: num_inputs = 0, num_outputs = 0, count = 0
    type(c_ptr) :: ids = c_null_ptr, inputs = c_null_ptr, outputs = c_null_ptr
  end type

  type, bind(c) :: bk_sweep_part
    integer(c_int64_t) :: source = 0, mode = 0, num_matrices = 0
    type(c_ptr) :: starts = c_null_ptr, ids = c_null_ptr, children = c_null_ptr
  end type
  type, bind(c) :: bk_sweep_step
    integer(c_int64_t) :: target = 0
    integer(c_int32_t) :: adds = 0, num_parts = 0
    type(c_ptr) :: parts = c_null_ptr
  end type

  interface
    integer(c_int32_t) function bk_abi_version() bind(c)
      import
    end function
    integer(c_int32_t) function bk_num_threads() bind(c)
      import
    end function
    integer(c_int) function bk_set_num_threads(count) bind(c)
      import
      integer(c_int32_t), value :: count
    end function
    type(c_ptr) function bk_last_error_text() bind(c, name="bk_last_error")
      import
    end function
    type(c_ptr) function bk_version_text() bind(c, name="bk_version")
      import
    end function
    integer(c_int) function bk_instruction_set(name) bind(c)
      import
      type(c_ptr), intent(out) :: name
    end function

    integer(c_int) function bk_kron_create(kron, dtype, num_factors, rows, columns, outer, inner) bind(c)
      import
      type(c_ptr), intent(out) :: kron
      integer(c_int), value :: dtype
      integer(c_int32_t), value :: num_factors
      integer(c_int64_t), intent(in) :: rows(*), columns(*)
      integer(c_int64_t), value :: outer, inner
    end function
    integer(c_int) function bk_kron_run(kron, factors, transposed, x, alpha, beta, y) bind(c)
      import
      type(c_ptr), value :: kron
      type(c_ptr), intent(in) :: factors(*)
      integer(c_int32_t), value :: transposed
      type(c_ptr), value :: x, alpha, beta, y
    end function
    subroutine bk_kron_destroy(kron) bind(c)
      import
      type(c_ptr), value :: kron
    end subroutine
    integer(c_int) function bk_kron_explicit(dtype, rows_a, columns_a, a, rows_b, columns_b, b, out) &
        bind(c)
      import
      integer(c_int), value :: dtype
      integer(c_int64_t), value :: rows_a, columns_a, rows_b, columns_b
      type(c_ptr), value :: a, b, out
    end function

    integer(c_int) function bk_batch_create(batch, dtype, list, pools, weights, flags) bind(c)
      import
      type(c_ptr), intent(out) :: batch
      integer(c_int), value :: dtype
      type(bk_batch_list), intent(in) :: list
      type(c_ptr), intent(in) :: pools(*)
      type(c_ptr), value :: weights
      integer(c_int32_t), value :: flags
    end function
    integer(c_int) function bk_batch_set_values(batch, pools, weights) bind(c)
      import
      type(c_ptr), value :: batch
      type(c_ptr), intent(in) :: pools(*)
      type(c_ptr), value :: weights
    end function
    integer(c_int) function bk_batch_run(batch, outer, inner, x, alpha, beta, y) bind(c)
      import
      type(c_ptr), value :: batch
      integer(c_int64_t), value :: outer, inner
      type(c_ptr), value :: x, alpha, beta, y
    end function
    subroutine bk_batch_destroy(batch) bind(c)
      import
      type(c_ptr), value :: batch
    end subroutine
    integer(c_int) function bk_batch_once(dtype, list, pools, weights, outer, x, y) bind(c)
      import
      integer(c_int), value :: dtype
      type(bk_batch_list), intent(in) :: list
      type(c_ptr), intent(in) :: pools(*)
      type(c_ptr), value :: weights
      integer(c_int64_t), value :: outer
      type(c_ptr), value :: x, y
    end function
    integer(c_int) function bk_gemm_batched(dtype, m, n, k, transpose_b, count, a_ids, b_ids, c_ids, &
        count_a, count_b, count_c, a, b, alpha, beta, c) bind(c)
      import
      integer(c_int), value :: dtype
      integer(c_int64_t), value :: m, n, k
      integer(c_int32_t), value :: transpose_b
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: a_ids(*), b_ids(*), c_ids(*)
      integer(c_int64_t), value :: count_a, count_b, count_c
      type(c_ptr), value :: a, b, alpha, beta, c
    end function

    integer(c_int) function bk_sweeps_create(sweeps, dtype, num_modes, sizes, num_vectors, &
        vector_starts, vector_counts, num_steps, steps, matrices) bind(c)
      import
      type(c_ptr), intent(out) :: sweeps
      integer(c_int), value :: dtype
      integer(c_int32_t), value :: num_modes
      integer(c_int64_t), intent(in) :: sizes(*)
      integer(c_int64_t), value :: num_vectors
      integer(c_int64_t), intent(in) :: vector_starts(*), vector_counts(*)
      integer(c_int64_t), value :: num_steps
      type(bk_sweep_step), intent(in) :: steps(*)
      type(c_ptr), intent(in) :: matrices(*)
    end function
    integer(c_int) function bk_sweeps_set_values(sweeps, matrices) bind(c)
      import
      type(c_ptr), value :: sweeps
      type(c_ptr), intent(in) :: matrices(*)
    end function
    integer(c_int) function bk_sweeps_run(sweeps, outer, inner, x, alpha, beta, y) bind(c)
      import
      type(c_ptr), value :: sweeps
      integer(c_int64_t), value :: outer, inner
      type(c_ptr), value :: x, alpha, beta, y
    end function
    subroutine bk_sweeps_destroy(sweeps) bind(c)
      import
      type(c_ptr), value :: sweeps
    end subroutine

    integer(c_int) function bk_kron_sparse_create(matrix, dtype, a, b, c, d, values) bind(c)
      import
      type(c_ptr), intent(out) :: matrix
      integer(c_int), value :: dtype
      integer(c_int64_t), value :: a, b, c, d
      type(c_ptr), value :: values
    end function
    integer(c_int) function bk_kron_sparse_set_values(matrix, values) bind(c)
      import
      type(c_ptr), value :: matrix, values
    end function
    integer(c_int) function bk_kron_sparse_run(matrix, outer, inner, x, alpha, beta, y) bind(c)
      import
      type(c_ptr), value :: matrix
      integer(c_int64_t), value :: outer, inner
      type(c_ptr), value :: x, alpha, beta, y
    end function
    subroutine bk_kron_sparse_destroy(matrix) bind(c)
      import
      type(c_ptr), value :: matrix
    end subroutine
  end interface

contains

  ! What was wrong in the last call of this thread that failed.
  function bk_last_error() result(text)
    character(len=:), allocatable :: text
    text = text_at(bk_last_error_text())
  end function

  function bk_version() result(text)
    character(len=:), allocatable :: text
    text = text_at(bk_version_text())
  end function

  function text_at(place) result(text)
    type(c_ptr), intent(in) :: place
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: length
    call c_f_pointer(place, letters, [huge(0)])
    length = 0
    do while (letters(length + 1) /= c_null_char)
      length = length + 1
    end do
    allocate(character(len=length) :: text)
    text = transfer(letters(1:length), text)
  end function

end module batchkron
