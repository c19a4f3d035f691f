"""What backends have to write, as protocol.py and docs/developer/architecture.md say."""

import pytest

from batchkron.backends.cpu.backend import CpuBackend
from batchkron.backends.host import HostBackend
from batchkron.backends.protocol import Backend, KrylovBackend
from batchkron.backends.reference import ReferenceBackend


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_backend_is_nineteen_functions_and_a_host_writes_twelve():
    assert len(Backend.__abstractmethods__) == 17
    assert len(public(Backend) - set(Backend.__annotations__)) == 19
    assert HostBackend.__abstractmethods__ == {
        "kron_plan",
        "kron_product",
        "batch_plan",
        "segmented_plan",
        "sweep_plan",
        "interpolation_plan",
        "kron_sparse_product",
        "multiply_kron_sparse",
        "batched_gemm",
        "write_kron",
        "sum_vectors",
        "inner_product",
    }
    assert len(public(KrylovBackend) - public(Backend)) == 7


@pytest.mark.parametrize("kind", [CpuBackend, ReferenceBackend])
def test_backends_offer_nothing_that_others_do_not_know(kind):
    known = public(HostBackend) | public(KrylovBackend) | set(Backend.__annotations__)
    assert public(kind) <= known
