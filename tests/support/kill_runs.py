"""Kill runs at random moments: python tests/support/kill_runs.py --kills 1000

A run of small steps that writes a checkpoint after each is killed, half the times with SIGKILL and
half with SIGTERM, and resumed, over and over. After each kill the last checkpoint must be whole,
of a step not before that of the last time, and bit for bit the state that an undisturbed run has
there; so must be the end. Power failures are not simulated: what is checked is the order of calls.
"""

import argparse
import collections
import hashlib
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import batchkron
from batchkron.problems import make
from batchkron.solvers import ResumeWarning, evolve
from batchkron.storage import load_checkpoint, previous_path

SIGNALS = (signal.SIGKILL, signal.SIGTERM)
STEPS_PER_KILL = 60  # more than fit between two kills


class Run:
    """A run that survives its kills.

    It goes on in forked processes, because starting Python anew takes longer than what is tested;
    this process itself never computes.
    """

    def __init__(self, folder, method, steps):
        self._method, self._steps = method, steps
        self.path = folder / "run.h5"
        self._trajectory, self._end = folder / "trajectory", folder / "end.npy"
        self._problem = make("continuity-2d", level=2, degree=1)
        self._last_step = -1
        self.counts = collections.Counter()

    def compute_undisturbed(self):
        """Note what the state is after every step."""
        digests = []

        def note(state):
            digests.append(digest(state.u))

        def whole_run():
            result = self._evolve(callback=note)
            self._trajectory.write_text("\n".join([digest(self._problem.initial), *digests]))
            np.save(self._end, result.u)

        finish(fork(whole_run))
        self.digests = self._trajectory.read_text().split("\n")

    def start(self):
        """Start or resume the run, with a checkpoint after every step."""
        return fork(self._go_on)

    def kill(self, pid, number):
        """Kill the run and look at what it has left."""
        os.kill(pid, number)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == -number, f"the run ended with {status} before it was killed"
        is_missing = not self.path.exists()
        self.counts["killed while writing"] += bool(list(self.path.parent.glob(".run.h5.*")))
        self.counts["killed between the two renames"] += is_missing and self._last_step >= 0
        self.counts["killed before the first step"] += self._check() == self._last_step
        self._last_step = self._check()

    def finish(self):
        """Go on to the end, compare it with the undisturbed one, and see that no mess is left."""

        def to_the_end():
            result = self._evolve(checkpoint=self.path, resume=self._kept())
            assert result.u.tobytes() == np.load(self._end).tobytes(), "the end differs"

        finish(fork(to_the_end))
        assert self._check() == self._steps
        found = sorted(path.name for path in self.path.parent.iterdir())
        assert found == ["end.npy", "run.h5", "run.h5.previous", "trajectory"], found

    def _go_on(self):
        self._evolve(checkpoint=self.path, checkpoint_every=1, resume=self._kept())

    def _kept(self):
        kept = self.path.exists() or previous_path(self.path).exists()
        return self.path if kept else None

    def _evolve(self, **options):
        batchkron.set_num_threads(2)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResumeWarning)
            warnings.filterwarnings("ignore", ".*taking the one before it")
            return evolve(
                self._problem, until=0.5, dt=0.5 / self._steps, method=self._method, **options
            )

    def _check(self):
        """Return the step of the last checkpoint, which must be of the undisturbed run."""
        kept = self._kept()
        if kept is None:
            assert self._last_step < 0, "there was a checkpoint, and there is none any more"
            return -1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*taking the one before it")
            found = load_checkpoint(kept)
        assert digest(found.u) == self.digests[found.step], f"another state at step {found.step}"
        assert found.step >= self._last_step, f"step {self._last_step} was there, now {found.step}"
        return found.step


def digest(u):
    return hashlib.sha256(np.ascontiguousarray(u)).hexdigest()


def fork(work):
    """Do something in a process of its own; its status is 1 where that fails."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def finish(pid):
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"the process ended with {status}"


def wait_for_checkpoint(run):
    """Wait until the run has written; return how long that took."""
    began = time.monotonic()
    before = stamp(run.path)
    while stamp(run.path) in (before, None):
        assert time.monotonic() < began + 60.0, "no checkpoint after a minute"
        time.sleep(0.001)
    return time.monotonic() - began


def stamp(path):
    """Which file is there, None where there is none."""
    try:
        return path.stat().st_ino, path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def kill_many(method, kills, rng):
    """Kill a run so many times; return what was hit."""
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        run = Run(Path(folder), method, STEPS_PER_KILL * kills)
        run.compute_undisturbed()
        pid = run.start()
        starting = wait_for_checkpoint(run)
        run.kill(pid, signal.SIGKILL)
        for k in range(1, kills):
            pid = run.start()
            if rng.random() < 0.25:
                time.sleep(rng.uniform(0.0, starting))
            else:
                wait_for_checkpoint(run)
                time.sleep(rng.uniform(0.0, 0.05))
            run.kill(pid, SIGNALS[k % 2])
        run.finish()
    return run.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    began = time.monotonic()
    counts = collections.Counter()
    for method in ("ssp-rk3", "crank-nicolson"):
        counts += kill_many(method, options.kills // 2, rng)
    print(f"{options.kills // 2 * 2} kills in {time.monotonic() - began:.0f} s, nothing lost")
    for what, count in counts.items():
        print(f"{count:5} {what}")


if __name__ == "__main__":
    main()
