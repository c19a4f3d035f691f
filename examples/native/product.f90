! (A x B) x in Fortran. Arrays lie in Fortran's order, so that factors are given as transposed, and
! x(l, k), with the index of B first, is the vector.
program product_of_two
  use batchkron
  implicit none
  real(c_double), target :: A(2, 3), B(3, 2), x(2, 3), y(3, 2)
  type(c_ptr) :: plan, factors(2)

  A = reshape([1d0, 4d0, 2d0, 5d0, 3d0, 6d0], [2, 3])
  B = reshape([1d0, 2d0, 0d0, -1d0, 0.5d0, 3d0], [3, 2])
  x = reshape([1d0, 2d0, 3d0, 4d0, 5d0, 6d0], [2, 3])
  factors = [c_loc(A), c_loc(B)]
  call expect(bk_kron_create(plan, BK_F64, 2, [2_c_int64_t, 3_c_int64_t], &
                             [3_c_int64_t, 2_c_int64_t], 1_c_int64_t, 1_c_int64_t))
  call expect(bk_kron_run(plan, factors, 1, c_loc(x), c_null_ptr, c_null_ptr, c_loc(y)))
  call bk_kron_destroy(plan)
  print *, 'largest difference from matmul:', maxval(abs(y - matmul(B, matmul(x, transpose(A)))))
  if (maxval(abs(y - matmul(B, matmul(x, transpose(A))))) > 1d-13) error stop 'the result is wrong'

contains

  subroutine expect(status)
    integer(c_int), intent(in) :: status
    if (status == BK_OK) return
    print *, bk_last_error()
    error stop 'a call of batchkron failed'
  end subroutine
end program
