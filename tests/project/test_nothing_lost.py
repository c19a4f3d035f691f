"""Whatever happens to a run, its last good checkpoint is there, and the run goes on from it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import batchkron
from batchkron.problems import make, save_problem
from batchkron.solvers import EvolveStatus, ResumeWarning, evolve
from batchkron.storage import (
    ResultFile,
    load_checkpoint,
    previous_path,
    save_checkpoint,
    save_result,
)

TESTS = Path(__file__).parents[1]
RUN = {"until": 0.4, "method": "ssp-rk3", "dt": 0.01}
PRELUDE = """
import errno, os, subprocess, sys
from pathlib import Path
import numpy as np
from batchkron.problems import load_problem, make, save_problem
from batchkron.solvers import evolve
from batchkron.storage import load_checkpoint, previous_path

folder = Path(sys.argv[1])
path = folder / "run.h5"
problem = make("continuity-2d", level=3, degree=1)
run = {"until": 0.4, "method": "ssp-rk3", "dt": 0.01}
undisturbed = evolve(problem, **run)

def names():
    return sorted(os.listdir(folder))

def at_step(step, action):
    return lambda state: action() if state.step == step else None

def must_fail(number, text, action, *args, **options):
    try:
        action(*args, **options)
    except OSError as error:
        assert error.errno == number, error
        assert text in str(error), error
        assert str(folder) in str(error), error
    else:
        raise AssertionError("no error")

def must_go_on_from(step):
    assert load_checkpoint(path, previous=False).step == step
    assert load_checkpoint(previous_path(path), previous=False).step == step - 1
    end = evolve(problem, **run, resume=path, checkpoint=path)
    assert end.u.tobytes() == undisturbed.u.tobytes()
"""


@pytest.fixture(scope="module")
def problem():
    return make("continuity-2d", level=3, degree=1)


def stop_at(step):
    return lambda state: state.step == step


def run_script(script, *arguments, prefix=()):
    """Run a script after the prelude; it prints "done" where its assertions hold."""
    whole = PRELUDE + textwrap.dedent(script) + '\nprint("done")\n'
    command = [*prefix, sys.executable, "-c", whole, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("done\n"), done.stderr


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing():
    """The longer run: python tests/support/kill_runs.py --kills 1000."""
    command = [sys.executable, str(TESTS / "support" / "kill_runs.py"), "--kills", "100"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^100 kills in \d+ s, nothing lost$", done.stdout, re.MULTILINE)
    (while_writing,) = re.findall(r"(\d+) killed while writing", done.stdout)
    assert int(while_writing) >= 5


def test_a_run_killed_at_any_call_of_a_write_loses_nothing(tmp_path):
    """SIGKILL at the first, second, … of the system calls that write a third checkpoint."""
    script = """
    import dataclasses, signal, warnings
    from batchkron.storage import save_checkpoint
    evolve(problem, **run, checkpoint=path, checkpoint_every=1, callback=lambda s: s.step == 2)
    states = [load_checkpoint(path)]
    states += [dataclasses.replace(states[0], step=3, u=states[0].u + 1.0)]
    kept = {place: place.read_bytes() for place in (path, previous_path(path))}
    calls = ("open", "write", "fchmod", "fsync", "replace", "unlink", "close", "stat", "fstat")

    def save_killed(at):
        count = 0
        def counting(name):
            real = getattr(os, name)
            def call(*args, **options):
                nonlocal count
                count += 1
                if count == at:
                    if name == "write":  # inside: a part of the data has been written
                        real(args[0], args[1][: len(args[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **options)
            setattr(os, name, call)
        for name in calls:
            counting(name)
        save_checkpoint(path, states[1])

    at, seen, leftovers = 0, set(), 0
    while True:
        at += 1
        for place, content in kept.items():
            place.write_bytes(content)
        pid = os.fork()
        if pid == 0:
            save_killed(at)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, -signal.SIGKILL), status
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = load_checkpoint(path)
        assert found.step in (2, 3)
        assert found.u.tobytes() == states[found.step - 2].u.tobytes()
        seen.add((found.step, path.exists()))
        leftovers += len(names()) > 2
        save_checkpoint(path, states[1])
        assert load_checkpoint(path, previous=False).step == 3
        assert names() == ["run.h5", "run.h5.previous"]
        if status == 0:
            break
    assert at > 10, at
    assert seen == {(2, True), (2, False), (3, True)}, seen
    assert leftovers > 3
    """
    run_script(script, tmp_path)


def small_disk(folder, options):
    """The words before a command that mount a small tmpfs on a folder, for that command only."""
    unshare, mount = shutil.which("unshare"), shutil.which("mount")
    if not unshare or not mount:
        pytest.skip("mounting a small disk needs the commands unshare and mount")
    namespace = [unshare, "--mount"]
    if os.geteuid() != 0:
        namespace += ["--user", "--map-root-user"]
    mounting = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    prefix = [*namespace, "sh", "-c", mounting, str(folder)]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this system does not let its user mount a tmpfs: {tried.stderr.strip()}")
    return prefix


@pytest.mark.parametrize("options", ["size=256k", "size=4m,nr_inodes=5"])
def test_a_full_disk_keeps_the_last_checkpoints(tmp_path, options):
    """No space left, or no inodes."""
    script = """
    ballast = folder / "ballast"

    def fill():
        try:
            if os.statvfs(folder).f_files < 10:
                ballast.mkdir()
                for k in range(10):
                    (ballast / str(k)).touch()
            else:
                with open(ballast, "wb", buffering=0) as file:
                    while file.write(bytes(1024)):
                        pass
        except OSError as error:
            assert error.errno == errno.ENOSPC, error

    full = (errno.ENOSPC, "the disk is full; free some space")
    must_fail(*full, evolve, problem, **run, checkpoint=path, checkpoint_every=1,
              callback=at_step(20, fill))
    assert names() == ["ballast", "run.h5", "run.h5.previous"]
    must_fail(*full, save_problem, folder / "problem.h5", problem)
    must_fail(*full, evolve, problem, **run, checkpoint=folder / "other.h5")
    assert names() == ["ballast", "run.h5", "run.h5.previous"]
    subprocess.run(["rm", "-r", str(ballast)], check=True)
    must_go_on_from(20)
    """
    run_script(script, tmp_path, prefix=small_disk(tmp_path, options))


def test_a_full_disk_keeps_an_old_problem_file(tmp_path):
    script = """
    target = folder / "problem.h5"
    save_problem(target, problem)
    larger = make("continuity-2d", level=6, degree=2)
    must_fail(errno.ENOSPC, "the disk is full", save_problem, target, larger, overwrite=True)
    assert names() == ["problem.h5"]
    assert load_problem(target).content_hash == problem.content_hash
    """
    run_script(script, tmp_path, prefix=small_disk(tmp_path, "size=128k"))


def test_a_limit_on_file_sizes_keeps_the_last_checkpoints(tmp_path):
    """As a full disk, which only some users can mount: a write beyond 2 KiB fails."""
    script = """
    import resource

    def limit(size=2048):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    must_fail(errno.EFBIG, "ulimit -f", evolve, problem, **run, checkpoint=path,
              checkpoint_every=1, callback=at_step(20, limit))
    assert names() == ["run.h5", "run.h5.previous"]
    limit(resource.RLIM_INFINITY)
    must_go_on_from(20)

    def limit_for_a_while(state):
        limit(2048 if 10 <= state.step < 15 else resource.RLIM_INFINITY)

    end = evolve(problem, **run, checkpoint=path, checkpoint_every=1, callback=limit_for_a_while)
    assert end.u.tobytes() == undisturbed.u.tobytes()
    assert load_checkpoint(path).step == load_checkpoint(previous_path(path)).step + 1 == 40
    """
    run_script(script, tmp_path)


def test_a_disk_that_becomes_read_only_keeps_the_last_checkpoints(tmp_path):
    """Not even root writes there."""
    script = """
    def remount(mode):
        subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)

    must_fail(errno.EROFS, "the file system is read-only", evolve, problem, **run,
              checkpoint=path, checkpoint_every=1, callback=at_step(20, lambda: remount("ro")))
    assert names() == ["run.h5", "run.h5.previous"]
    steps = []
    try:
        evolve(problem, **run, resume=path, checkpoint=path, callback=steps.append)
    except ValueError as error:
        assert "cannot be written" in str(error), error
    assert steps == []
    remount("rw")
    must_go_on_from(20)
    """
    run_script(script, tmp_path, prefix=small_disk(tmp_path, "size=1m"))


def test_a_folder_that_becomes_read_only_keeps_the_last_checkpoints():
    """The run has an ordinary user's rights: root may write whatever the folder's mode."""
    script = """
    load_checkpoint  # the reader process is started with the rights that it has now
    if os.geteuid() == 0:
        # nothing may be left to import: others cannot read the folder of root's environment
        warm = folder / "warm.h5"
        save_problem(warm, problem)
        load_problem(warm)
        warm.unlink()
        evolve(problem, **run, checkpoint=warm, checkpoint_every=1)
        evolve(problem, **run, resume=load_checkpoint(warm))
        warm.unlink()
        previous_path(warm).unlink()
        os.chown(folder, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    must_fail(errno.EACCES, "no permission to write into this folder", evolve, problem, **run,
              checkpoint=path, checkpoint_every=1,
              callback=at_step(20, lambda: folder.chmod(0o555)))
    assert names() == ["run.h5", "run.h5.previous"]
    steps = []
    try:
        evolve(problem, **run, resume=path, checkpoint=path, callback=steps.append)
    except ValueError as error:
        assert "cannot be written" in str(error), error
    assert steps == []
    folder.chmod(0o755)
    must_go_on_from(20)
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        run_script(script, folder)


def test_a_blow_up_leaves_the_last_finite_checkpoint(tmp_path):
    path = tmp_path / "run.h5"
    problem = SimpleNamespace(  # its exact solution overflows: the step is stable
        initial=np.ones(3),
        operator=1e9 * np.eye(3),
        rhs=lambda t, u, out: np.multiply(u, 1e9, out=out),
    )
    options = {"until": 500.0, "method": "forward-euler", "dt": 1.0}
    result = evolve(problem, **options, checkpoint=path, checkpoint_every=1)
    assert result.status is EvolveStatus.NOT_FINITE
    assert not np.isfinite(result.u).all()
    kept = [load_checkpoint(place, previous=False) for place in (path, previous_path(path))]
    assert [state.step for state in kept] == [result.steps - 1, result.steps - 2]
    assert all(np.isfinite(state.u).all() for state in kept)
    again = evolve(problem, until=500.0, resume=path, checkpoint=path)
    assert (again.status, again.steps) == (EvolveStatus.NOT_FINITE, result.steps)
    assert load_checkpoint(path, previous=False).step == result.steps - 1


def record_of_resume(result):
    (record,) = [record for record in result.history if record["event"] == "resume"]
    return record["warnings"]


def test_other_threads_warn_and_the_warning_is_kept(problem, tmp_path, threads):
    path = tmp_path / "run.h5"
    threads(1)
    evolve(problem, **RUN, checkpoint=path, callback=stop_at(7))
    threads(2)
    with pytest.warns(ResumeWarning, match="written with threads 1, and this run has 2"):
        result = evolve(problem, **RUN, resume=path, checkpoint=path)
    assert result.status is EvolveStatus.COMPLETED
    assert ["threads 1" in text for text in record_of_resume(result)] == [True]
    (kept,) = [r for r in load_checkpoint(path).history if r["event"] == "resume"]
    assert kept["warnings"] == record_of_resume(result)


def test_another_version_warns_and_the_warning_is_kept(problem, tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    with monkeypatch.context() as patch:
        patch.setattr(batchkron, "__version__", "0.0.9")
        evolve(problem, **RUN, checkpoint=path, callback=stop_at(7))
    with pytest.warns(ResumeWarning, match=r"written with version '0\.0\.9'"):
        result = evolve(problem, **RUN, resume=path)
    assert ["version" in text for text in record_of_resume(result)] == [True]


def test_another_instruction_set_warns(problem, tmp_path):
    path = tmp_path / "run.h5"
    if batchkron.instruction_set() == "baseline":
        pytest.skip("this processor has no other instruction set than the baseline")
    script = f"""
    import batchkron
    batchkron.set_num_threads({batchkron.get_num_threads()})
    evolve(problem, **run, checkpoint=path, callback=lambda state: state.step == 7)
    """
    environment = {**os.environ, "BATCHKRON_ISA": "baseline"}
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    with pytest.warns(ResumeWarning, match="written with instruction_set 'baseline'"):
        evolve(problem, **RUN, resume=path)


class Decay:
    """u' = -u in any dtype."""

    def __init__(self, dtype):
        self.initial = np.linspace(1.0, 2.0, 5).astype(dtype)

    def rhs(self, t, u, out):
        np.negative(u, out=out)


def test_another_dtype_is_refused_and_the_checkpoint_stays(tmp_path):
    path = tmp_path / "run.h5"
    evolve(Decay(np.float32), **RUN, checkpoint=path, callback=stop_at(7))
    before = path.read_bytes()
    problem = Decay(np.float64)
    problem.content_hash = load_checkpoint(path).problem_hash
    steps = []
    with pytest.raises(ValueError, match="dtype 'float32', but this run has 'float64'"):
        evolve(problem, **RUN, resume=path, checkpoint=path, callback=steps.append)
    assert steps == []
    assert path.read_bytes() == before


def test_another_problem_is_refused_and_the_checkpoint_stays(problem, tmp_path):
    path = tmp_path / "run.h5"
    evolve(problem, **RUN, checkpoint=path, callback=stop_at(7))
    before = path.read_bytes()
    other = make("continuity-2d", level=3, degree=2)
    with pytest.raises(ValueError, match="problem_hash"):
        evolve(other, **RUN, resume=path, checkpoint=path)
    assert path.read_bytes() == before


FOREIGN = {
    "text": b"my notes of many years\n",
    "one byte": b"x",
    "zeros": bytes(5000),
    "HDF5 of another program": None,
    "a problem": None,
    "a result": None,
}


def write_foreign(path, kind, problem):
    if kind == "a problem":
        save_problem(path, problem)
    elif kind == "a result":
        save_result(path, ResultFile(np.ones(3), 0.0, "", 0, 0.1, "", "", ""))
    elif kind == "HDF5 of another program":
        with h5py.File(path, "w") as file:
            file["temperature"] = np.arange(5.0)
    else:
        path.write_bytes(FOREIGN[kind])


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("place", ["run.h5", "run.h5.previous"])
def test_a_file_of_the_users_is_not_overwritten(problem, tmp_path, kind, place):
    path = tmp_path / "run.h5"
    theirs = tmp_path / place
    write_foreign(theirs, kind, problem)
    before = theirs.read_bytes()
    steps = []
    with pytest.raises(
        ValueError,
        match=f"checkpoint is {path}, but {theirs} exists and is .*"
        "move it away or choose another name",
    ):
        evolve(problem, **RUN, checkpoint=path, callback=steps.append)
    assert steps == []
    sound = tmp_path / "sound.h5"
    evolve(problem, **RUN, checkpoint=sound, callback=stop_at(3))
    with pytest.raises(FileExistsError, match="move it away or choose another name"):
        save_checkpoint(path, load_checkpoint(sound))
    assert theirs.read_bytes() == before
