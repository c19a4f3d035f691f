"""Runs on many ranks: ``mpiexec -n 4 batchkron run …``. Rank 0 reads, prints and writes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import numpy as np

from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, describe
from batchkron.cli.output.printing import print_line, print_nothing
from batchkron.cli.output.text import one_line
from batchkron.cli.running.signals import StopOnSignal
from batchkron.distributed import MpiCommunicator, choose_device, world

__all__ = ["RunRanks", "ranks_of_run"]

# Set for each process by launchers: Open MPI, MPICH and those of its kind, PMIx.
_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")

Value = TypeVar("Value")


class RunRanks:
    """The ranks of a run; one, without MPI, if the command was started by itself.

    ``several``: whether there are more ranks than one.
    ``first``: whether this is rank 0.
    """

    def __init__(self, communicator: MpiCommunicator | None) -> None:
        several = communicator is not None and communicator.size > 1
        self.communicator = communicator if several else None
        self.several = several
        self.size = 1 if self.communicator is None else self.communicator.size
        self.first = self.communicator is None or self.communicator.rank == 0

    def choose_device(self, device: str) -> None:
        """Give each rank of a machine a device of its own, if they are to work on devices."""
        if self.several and device == "cuda":
            choose_device(self.communicator)

    def on_first(self, work: Callable[[], Value]) -> Value:
        """Return what rank 0 computes, on all ranks; all raise what it raises."""
        if self.communicator is None:
            return work()
        found: tuple[Any, Exception | None] = None, None
        if self.first:
            try:
                found = work(), None
            except Exception as error:
                found = None, error
        value, problem = self.communicator.broadcast(found, 0)
        if problem is not None:
            raise problem
        return value  # type: ignore[no-any-return]

    def on_each(self, work: Callable[[], Value]) -> Value:
        """Return what each rank computes without the others.

        Raises `Exception`: that of the first rank whose work fails, on all ranks.
        """
        if self.communicator is None:
            return work()
        mine: Exception | None = None
        value: Any = None
        try:
            value = work()
        except Exception as error:
            mine = error
        failed = self.communicator.allgather(np.array([mine is not None]))
        if failed.any():
            raise self.communicator.broadcast(mine, int(np.argmax(failed)))
        return value  # type: ignore[no-any-return]

    def share_signal(self, stop: StopOnSignal) -> None:
        """Let all ranks know of a signal that one of them has received."""
        if self.communicator is not None:
            number = np.array([float(stop.received or 0)])
            self.communicator.allreduce(number, maxima=True)
            stop.received = signal.Signals(int(number[0])) if number[0] else None

    def same(self, value: Value) -> Value:
        """Return rank 0's value on all ranks."""
        return value if self.communicator is None else self.communicator.broadcast(value, 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Print on rank 0 only, which also says why all ranks have failed."""
        try:
            with print_nothing(unless=self.first):
                yield
        except Exception as error:
            described = describe(error)
            if self.first or described is None:
                raise
            click.get_current_context().exit(int(described[1]))

    @contextmanager
    def not_alone(self) -> Iterator[None]:
        """End all ranks if this one raises an exception inside of a ``with`` block.

        Others may wait for it in an exchange, for ever. Where options are refused, all refuse them.
        """
        try:
            yield
        except CommandError:
            raise
        except Exception as error:
            if self.communicator is None:
                raise
            self._abort(error)
            raise

    def _abort(self, error: Exception) -> None:
        described = describe(error)
        if described is None:
            traceback.print_exc()
            code = ExitCode.USAGE
        else:
            text, code = described
            with print_nothing(unless=True):
                print_line(f"batchkron: {one_line(text)}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        assert self.communicator is not None
        self.communicator.comm.Abort(int(code))


def ranks_of_run() -> RunRanks:
    """Return the ranks that a launcher of MPI has started; one without a launcher.

    Raises `BackendUnavailableError` if there is a launcher, but no mpi4py: each process would do
    the whole run.
    """
    launched = any(name in os.environ for name in _LAUNCHED)
    return RunRanks(world() if launched else None)
