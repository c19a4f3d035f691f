"""A pool of processes that compile kernels while the calling process measures them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType

from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.search import RejectedError

_MODULE = "batchkron.backends.cuda.tuning.compiler_process"
_MAX_PROCESSES = 16  # largest number of compiler processes; chosen by hand
# Time limit for one kernel, in seconds; usual ones compile in a second or two. Chosen by hand.
_MAX_COMPILE_SECONDS = 30.0


class Compilers:
    """Compiles kernels in separate processes, which end with the ``with`` block."""

    def __init__(self, options: Sequence[str], processes: int | None = None) -> None:
        self.processes = default_processes() if processes is None else processes
        self._options = tuple(options)
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(self.processes, "batchkron-compile")
        self._closing = False

    def __enter__(self) -> Compilers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()
        self._threads.shutdown(wait=True)
        for process in self._started:
            _end(process)

    def submit(self, program: Program) -> Future[CompiledKernel]:
        """Begin to compile a kernel; the future raises RejectedError if that fails."""
        return self._threads.submit(self._compile, program)

    def _compile(self, program: Program) -> CompiledKernel:
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(_MAX_COMPILE_SECONDS, process.kill)
        timer.start()
        try:
            pickle.dump((program, self._options), process.stdin)
            process.stdin.flush()
            answer: CompiledKernel | str = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            _end(process)
            raise RejectedError(
                f"the compiler ended, or took longer than {_MAX_COMPILE_SECONDS:g} s"
            ) from error
        finally:
            timer.cancel()
        self._idle.put(process)
        if isinstance(answer, str):
            raise RejectedError(answer)
        return answer

    def _process(self) -> subprocess.Popen[bytes]:
        """Return an idle process, or start one."""
        with suppress(Empty):
            return self._idle.get_nowait()
        if self._closing:
            raise RejectedError("the search is over")
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
        try:
            # A new program, because a CUDA context does not survive a fork; and a process group of
            # its own, because Ctrl-C should reach only the process that searches.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                process_group=0,
            )
        except OSError as error:
            raise RejectedError(f"no process that compiles can be started: {error}") from error
        self._started.append(process)
        return process


def default_processes() -> int:
    """Return the number of processors that this process may use, at most `_MAX_PROCESSES`."""
    count = os.cpu_count() or 1
    with suppress(AttributeError):
        count = len(os.sched_getaffinity(0))
    return min(_MAX_PROCESSES, count)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and close its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
