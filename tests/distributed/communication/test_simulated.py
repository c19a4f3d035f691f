"""Simulated ranks, which are threads, and what all communicators do."""

import threading

import numpy as np
import pytest

import batchkron as bk
from batchkron.distributed import SimulatedCommunicator, simulate


def random_counts(rng, size):
    """How much each rank sends to each other one; some send nothing."""
    return rng.integers(0, 4, (size, size)) * rng.integers(0, 2, (size, size))


def elements_of(counts, rank):
    """What a rank sends: numbers that say from where to where, and which one it is."""
    return np.array(
        [
            100 * rank + 10 * target + k
            for target, count in enumerate(counts[rank])
            for k in range(count)
        ],
        dtype=float,
    )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_alltoallv(rng, size):
    counts = random_counts(rng, size)

    def program(comm):
        received = np.full(counts[:, comm.rank].sum(), np.nan)
        comm.alltoallv(
            elements_of(counts, comm.rank),
            counts[comm.rank].tolist(),
            received,
            counts[:, comm.rank].tolist(),
        )
        return received, comm.traffic

    for rank, (received, traffic) in enumerate(simulate(size, program)):
        expected = [
            100 * source + 10 * rank + k
            for source in range(size)
            for k in range(counts[source, rank])
        ]
        np.testing.assert_array_equal(received, expected)
        others = np.delete(counts[rank], rank)
        assert traffic.elements == others.sum()
        assert traffic.bytes == 8 * others.sum()
        assert traffic.messages == np.count_nonzero(others)


def test_several_exchanges_may_be_under_way():
    def program(comm):
        arrays = [np.full(3, comm.rank + 10.0 * k) for k in range(4)]
        received = np.full((4, 3), np.nan)
        pending = [
            comm.ialltoallv(sent, [1, 1, 1], row, [1, 1, 1])
            for sent, row in zip(arrays, received, strict=True)
        ]
        for each in pending:
            each.wait()
        return received

    for received in simulate(3, program):
        np.testing.assert_array_equal(received, 10.0 * np.arange(4)[:, None] + np.arange(3))


def test_sums_are_taken_in_the_order_of_ranks():
    """The same bits on all ranks: 1 + 2⁻⁵³ + 2⁻⁵³ depends on the order."""
    tiny = 2.0**-53
    values = [[tiny, 1.0], [tiny, tiny], [1.0, tiny]]

    def program(comm):
        sums, largest = np.array(values[comm.rank]), np.array(values[comm.rank])
        comm.allreduce(sums)
        comm.allreduce(largest, maxima=True)
        return sums, largest

    for sums, largest in simulate(3, program):
        np.testing.assert_array_equal(sums, [tiny + tiny + 1.0, 1.0 + tiny + tiny])
        np.testing.assert_array_equal(largest, [1.0, 1.0])
    assert tiny + tiny + 1.0 != 1.0 + tiny + tiny


def test_groups_of_ranks_work_on_their_own():
    def program(comm):
        group = comm.split(comm.rank % 2)
        for _ in range(comm.rank % 2):  # one group does more
            group.broadcast(None, 0)
        gathered = group.allgather(np.array([comm.rank]))
        group.alltoallv(
            np.zeros(group.size), [1] * group.size, np.empty(group.size), [1] * group.size
        )
        return group.rank, gathered.ravel().tolist(), comm.traffic.elements

    assert simulate(5, program) == [
        (0, [0, 2, 4], 2),
        (0, [1, 3], 1),
        (1, [0, 2, 4], 2),
        (1, [1, 3], 1),
        (2, [0, 2, 4], 2),
    ]


def test_neighbours_are_made_once():
    def program(comm):
        pairs = comm.neighbours(2)
        assert comm.neighbours(2) is pairs
        assert comm.neighbours(4) is comm
        return pairs.allgather(
            np.array([comm.rank])
        ).ravel().tolist(), pairs.traffic is comm.traffic

    pairs = [([0, 1], True)] * 2 + [([2, 3], True)] * 2
    assert simulate(4, program) == pairs


def test_one_failure_ends_all_ranks():
    before = threading.active_count()

    def program(comm):
        if comm.rank == 1:
            raise ArithmeticError("of rank 1")
        comm.broadcast(None, 0)

    with pytest.raises(ArithmeticError, match="of rank 1"):
        simulate(3, program)
    assert threading.active_count() == before


def test_counts_that_do_not_fit_are_an_error():
    def program(comm):
        comm.alltoallv(np.zeros(4), [2, 2], np.zeros(2), [1, 1])

    with pytest.raises(ValueError, match="expects 1 elements of a rank that sends 2"):
        simulate(2, program)


def test_there_is_at_least_one_rank():
    with pytest.raises(ValueError, match="at least 1 rank"):
        simulate(0, lambda comm: None)


def test_a_rank_alone():
    alone, received = SimulatedCommunicator(), np.zeros(2)
    alone.alltoallv(np.array([1.0, 2.0]), [2], received, [2])
    np.testing.assert_array_equal(received, [1, 2])
    assert alone.broadcast("x", 0) == "x"
    assert alone.split(7).size == 1
    assert alone.traffic.elements == 0


def test_ranks_take_the_backend_of_the_caller():
    with bk.backends.using("reference"):
        names = simulate(2, lambda comm: bk.KroneckerProduct([np.eye(2)])._backend.name)
    assert names == ["reference", "reference"]
