// The passes of Krylov methods for one instruction set.
#include "krylov/bicgstab.hpp"
#include "krylov/cg.hpp"
#include "krylov/gmres.hpp"
#include "krylov/minres.hpp"
#include "krylov/residual.hpp"
#include "simd/krylov/basis.hpp"
#include "simd/krylov/passes.hpp"
#include "simd/krylov/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

static_assert(__builtin_offsetof(KrylovArguments<float>, n) == 0, "as in KrylovHead");
static_assert(__builtin_offsetof(KrylovArguments<float>, systems) == sizeof(Index), "");
static_assert(__builtin_offsetof(KrylovArguments<float>, progress) == 2 * sizeof(Index), "");

#define BATCHKRON_PASS(Pass) PassOnLanes<Pass<T>, T>::entry(#Pass)

template <class T>
static const KrylovPass passes_of[] = {
    BATCHKRON_PASS(StartExtent),
    BATCHKRON_PASS(StartNorms),
    BATCHKRON_PASS(OperatorExtent),
    BATCHKRON_PASS(TrueResidual),
    BATCHKRON_PASS(InnerProduct),
    BATCHKRON_PASS(ScaleResidual),
    BATCHKRON_PASS(CgProduct),
    BATCHKRON_PASS(CgDirection),
    BATCHKRON_PASS(CgCurvature),
    BATCHKRON_PASS(CgUpdate),
    BATCHKRON_PASS(BicgstabBegin),
    BATCHKRON_PASS(BicgstabProject),
    BATCHKRON_PASS(BicgstabFirstUpdate),
    BATCHKRON_PASS(BicgstabSmoothing),
    BATCHKRON_PASS(BicgstabSecondUpdate),
    BATCHKRON_PASS(BicgstabDirection),
    BATCHKRON_PASS(MinresBegin),
    BATCHKRON_PASS(MinresFirstNorm),
    BATCHKRON_PASS(MinresDiagonal),
    BATCHKRON_PASS(MinresLanczos),
    BATCHKRON_PASS(MinresNextNorm),
    BATCHKRON_PASS(MinresUpdate),
    BATCHKRON_PASS(GmresCorrect),
    BATCHKRON_PASS(GmresResidual),
    BATCHKRON_PASS(GmresAccept),
    BasisPasses<T>::project(),
    BasisPasses<T>::extend(),
    BasisPasses<T>::combine(),
};

template <class T>
static constexpr KrylovPasses all_of() {
  return {passes_of<T>, int(sizeof passes_of<T> / sizeof(KrylovPass))};
}

extern const KrylovTable krylov_table = {
    {all_of<float>(), all_of<double>(), all_of<Complex<float>>(), all_of<Complex<double>>()}};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
