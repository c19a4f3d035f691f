"""Results and checkpoints: what comes back, and which file is there at any moment."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from crafted_files import edit
from fuzzing import samples

from batchkron import ProblemFileError
from batchkron.problems import make
from batchkron.solvers import Adapt, evolve
from batchkron.storage import (
    Document,
    checkpoint_obstacle,
    content_limits,
    load_checkpoint,
    load_result,
    previous_path,
    rotation,
    save_checkpoint,
    save_result,
    write_document,
)
from batchkron.storage import writer as container


@pytest.fixture
def checkpoint(rng):
    return samples.checkpoint(rng, 1000)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.h5"


@pytest.fixture
def result(rng):
    return samples.result(rng, 500)


def same(first, second):
    for entry in dataclasses.fields(first):
        a, b = getattr(first, entry.name), getattr(second, entry.name)
        if entry.name == "u":
            assert a.tobytes() == b.tobytes()
        else:
            assert a == b
            assert type(a) is type(b)
    return True


class Decay:
    """u' = -u, a problem of the user's own."""

    def __init__(self, dtype):
        self.initial = np.ones(2, dtype)

    def rhs(self, t, u, out):
        out[...] = -u


def test_the_end_of_a_run(path):
    """`save_result` takes what `evolve` returns, and writes what the command line writes."""
    problem = make("advection-1d", 3, 1)
    result = evolve(problem, until=0.01, dt=1e-3, method="rk4")
    save_result(path, result)
    loaded = load_result(path)
    np.testing.assert_array_equal(loaded.u, result.u)
    assert loaded.problem_hash == problem.content_hash
    assert loaded.relative_error == problem.relative_error(result.u, result.t)
    assert (loaded.t, loaded.status, loaded.steps, loaded.method, loaded.problem_name) == (
        0.01, "completed", 10, "rk4", "advection-1d",
    )  # fmt: skip
    assert loaded.history == result.history
    assert loaded.grid is None
    with pytest.raises(FileExistsError):
        save_result(path, result)


def test_the_end_of_a_run_whose_grid_followed(path):
    problem = make("continuity-2d", 2, 2)
    rule = Adapt(1e-3, every=2, max_level=4)
    result = evolve(problem, until=0.006, dt=1e-3, adapt=rule)
    assert result.problem.unknowns != problem.unknowns
    save_result(path, result)
    loaded = load_result(path)
    assert loaded.problem_hash == problem.content_hash
    np.testing.assert_array_equal(loaded.grid.cells, result.problem.grid.cells)
    assert loaded.l2_error == result.problem.l2_error(result.u, result.t)


def test_runs_of_other_problems(path):
    for dtype in ("float32", "float64"):
        result = evolve(Decay(dtype), until=0.1, dt=0.01, method="rk4")
        save_result(path, result, overwrite=True)
        loaded = load_result(path)
        np.testing.assert_array_equal(loaded.u, result.u)
        assert (loaded.problem_name, loaded.l2_error) == ("Decay", None)
        assert len(loaded.problem_hash) == 64
    result = evolve(Decay("complex128"), until=0.1, dt=0.01, method="rk4")
    with pytest.raises(TypeError, match="the state is complex128; result files hold real states"):
        save_result(path, result, overwrite=True)
    lost = dataclasses.replace(result, u=np.array([np.nan, 1.0]))
    with pytest.raises(ValueError, match="finite"):
        save_result(path, lost, overwrite=True)
    for other in (None, result.u, "result.h5", result.problem):
        with pytest.raises(TypeError, match=f"result is a {type(other).__name__}; expected the Re"):
            save_result(path, other, overwrite=True)


@pytest.mark.parametrize("trusted", [False, True])
def test_a_result_comes_back_bitwise(result, tmp_path, trusted):
    path = tmp_path / "result.h5"
    save_result(path, result)
    assert same(load_result(path, trusted=trusted), result)
    with pytest.raises(FileExistsError):
        save_result(path, result)
    save_result(path, dataclasses.replace(result, l2_error=None), overwrite=True)
    assert load_result(path).l2_error is None


@pytest.mark.parametrize("trusted", [False, True])
def test_a_checkpoint_comes_back_bitwise(checkpoint, tmp_path, trusted):
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)
    back = load_checkpoint(path, trusted=trusted)
    assert same(back, checkpoint)
    assert back.t == 0.1 + 7 * 0.3


def test_numpy_scalars_are_stored_as_numbers(checkpoint, tmp_path):
    path = tmp_path / "checkpoint.h5"
    given = dataclasses.replace(
        checkpoint, step=np.int64(7), t0=np.float64(0.1), until=5, threads=np.int32(4)
    )
    save_checkpoint(path, given)
    assert same(load_checkpoint(path), checkpoint)


def test_the_last_two_checkpoints_are_kept(checkpoint, tmp_path):
    path = tmp_path / "checkpoint.h5"
    for step in range(4):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    assert load_checkpoint(path).step == 3
    assert load_checkpoint(previous_path(path)).step == 2
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.h5", "checkpoint.h5.previous"]


def test_a_broken_checkpoint_gives_way_to_the_previous_one(checkpoint, tmp_path):
    path = tmp_path / "checkpoint.h5"
    for step in range(2):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.warns(UserWarning, match="taking the one before it.*checkpoint.h5.previous"):
        assert load_checkpoint(path).step == 0
    with pytest.raises(ProblemFileError, match="truncated"):
        load_checkpoint(path, previous=False)
    path.unlink()
    with pytest.warns(UserWarning, match="taking the one before it"):
        assert load_checkpoint(path).step == 0
    previous_path(path).write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        load_checkpoint(path)


def test_a_broken_checkpoint_never_replaces_the_previous_one(checkpoint, tmp_path):
    path = tmp_path / "checkpoint.h5"
    for step in range(2):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    edit(path, lambda file: file["u"].__setitem__(3, 1.0))
    save_checkpoint(path, dataclasses.replace(checkpoint, step=2))
    assert load_checkpoint(path).step == 2
    assert load_checkpoint(previous_path(path)).step == 0


def test_a_checkpoint_is_sound_between_the_two_renames(checkpoint, tmp_path, monkeypatch):
    """A process may be killed after either rename: a sound checkpoint must be there."""
    path = tmp_path / "checkpoint.h5"
    for step in range(2):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    steps = []
    real = os.replace

    def replace(source, target):
        real(source, target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps.append(load_checkpoint(path).step)

    monkeypatch.setattr(os, "replace", replace)
    save_checkpoint(path, dataclasses.replace(checkpoint, step=2))
    assert steps == [1, 2]


def test_a_failing_disk_keeps_both_checkpoints(checkpoint, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.h5"
    for step in range(2):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=2))
    monkeypatch.undo()
    assert load_checkpoint(path).step == 1
    assert load_checkpoint(previous_path(path)).step == 0
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.h5", "checkpoint.h5.previous"]


def test_a_checkpoint_is_written_where_no_process_can_be_started(checkpoint, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)

    def check_file(*_):
        raise ChildProcessError("no memory")

    monkeypatch.setattr(rotation, "check_file", check_file)
    monkeypatch.setattr(rotation, "_sound", {})  # as after a restart
    save_checkpoint(path, dataclasses.replace(checkpoint, step=8))
    monkeypatch.undo()
    assert load_checkpoint(path).step == 8
    assert load_checkpoint(previous_path(path)).step == 7


@pytest.fixture
def read_again(monkeypatch):
    """Checkpoints that a rotation reads whole, as this process does not know them to be sound."""
    found = []
    real = rotation.check_file
    monkeypatch.setattr(
        rotation, "check_file", lambda path, kind: found.append(path.name) or real(path, kind)
    )
    return found


def test_what_this_process_wrote_or_read_is_not_read_again(checkpoint, path, read_again):
    for step in range(3):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    assert load_checkpoint(previous_path(path)).step == 1
    os.replace(previous_path(path), path)
    load_checkpoint(path)
    save_checkpoint(path, dataclasses.replace(checkpoint, step=5))
    assert load_checkpoint(previous_path(path)).step == 1
    assert read_again == []


def test_a_file_that_was_changed_is_read_again(checkpoint, path, read_again, monkeypatch):
    save_checkpoint(path, checkpoint)
    edit(path, lambda file: file["u"].__setitem__(3, 1.0))  # same length, within one clock tick
    save_checkpoint(path, checkpoint)
    assert read_again == ["run.h5"]
    monkeypatch.setattr(rotation, "_sound", {})
    save_checkpoint(path, checkpoint)
    assert read_again == ["run.h5"] * 2


def test_a_file_put_there_by_another_process_is_read(checkpoint, path, read_again, monkeypatch):
    other = path.with_name("other.h5")
    save_checkpoint(other, dataclasses.replace(checkpoint, step=4))
    real = os.replace

    def replace(source, target):
        real(source, target)
        if target == path:
            real(other, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        save_checkpoint(path, checkpoint)
    save_checkpoint(path, checkpoint)
    assert read_again == ["run.h5"]
    assert load_checkpoint(previous_path(path)).step == 4


@pytest.fixture
def low_limits(monkeypatch):
    """A file may inflate to 4000 bytes only, instead of 4 GiB."""
    monkeypatch.setattr(content_limits, "_MAX_INFLATED_BYTES", 4000)
    monkeypatch.setattr(content_limits, "_SMALL_CONTENT_BYTES", 1000)


@pytest.mark.usefixtures("low_limits")
def test_a_state_beyond_the_limit_comes_back_and_is_rotated(checkpoint, result, path, monkeypatch):
    """The limit is on inflation, and this state's file is as long as its content."""
    for step in range(3):
        save_checkpoint(path, dataclasses.replace(checkpoint, step=step))
    assert load_checkpoint(path).step == 2
    assert load_checkpoint(previous_path(path)).step == 1
    monkeypatch.setattr(rotation, "_sound", {})
    save_checkpoint(path, dataclasses.replace(checkpoint, step=3))
    assert load_checkpoint(previous_path(path)).step == 2
    save_result(path.with_name("result.h5"), dataclasses.replace(result, u=checkpoint.u))
    assert load_result(path.with_name("result.h5")).u.tobytes() == checkpoint.u.tobytes()


@pytest.mark.usefixtures("low_limits")
def test_a_state_beyond_the_memory_is_refused(checkpoint, path, monkeypatch):
    save_checkpoint(path, checkpoint)
    monkeypatch.setattr(content_limits, "memory_bytes", lambda: 10_000)
    with pytest.raises(ProblemFileError, match="beyond the limit of 5000 bytes; pass trusted=True"):
        load_checkpoint(path)
    assert same(load_checkpoint(path, trusted=True), checkpoint)


@pytest.mark.usefixtures("low_limits")
def test_a_file_that_grows_in_memory_is_refused(checkpoint, path):
    save_checkpoint(path, dataclasses.replace(checkpoint, u=np.zeros(1)))

    def inflate(file):
        del file["u"]
        options = {"chunks": (1000,), "compression": 9, "fletcher32": True}
        file.create_dataset("u", data=np.zeros(100_000), **options)

    edit(path, inflate)
    with pytest.raises(ProblemFileError, match="'u' of 800000 bytes takes the content beyond"):
        load_checkpoint(path)


def test_holes_make_no_file_long(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)
        file.write(b"content")
    status = path.stat()
    assert content_limits.solid_bytes(status) == 64 * 512 * status.st_blocks < 1 << 30
    assert content_limits.content_limit(content_limits.solid_bytes(status)) <= 4 << 30
    assert content_limits.content_limit(1 << 40, content_limits.solid_bytes(status)) == 4 << 30


def test_a_file_may_inflate_however_it_is_stored(checkpoint, path, monkeypatch):
    """Some file systems keep short files in their tables, and count no blocks for them."""
    monkeypatch.setattr(content_limits, "_SMALL_CONTENT_BYTES", 1000)
    monkeypatch.setattr(content_limits, "_BLOCK_BYTES", 0)
    save_checkpoint(path, checkpoint)
    assert content_limits.solid_bytes(path.stat()) == 0
    assert same(load_checkpoint(path), checkpoint)


def test_what_no_reader_would_take_is_not_written(path, monkeypatch):
    document = Document(
        {"format": "batchkron-result", "format_version": 1}, {"u": np.zeros(9000, np.int64)}
    )
    write_document(path, document)
    monkeypatch.setattr(content_limits, "_MAX_INFLATED_BYTES", 4000)
    monkeypatch.setattr(content_limits, "_SMALL_CONTENT_BYTES", 1000)
    assert len(container.file_image(document)) < 70_000
    with pytest.raises(ValueError, match=r"72000 bytes, in a file of .* not be read back"):
        write_document(path.with_name("other.h5"), document)
    monkeypatch.setattr(content_limits, "MAX_CONTENT_BYTES", 100)
    document = Document({}, {"u": np.ones(1000)})
    with pytest.raises(ValueError, match="could not be read back"):
        write_document(path.with_name("other.h5"), document)
    assert os.listdir(path.parent) == ["run.h5"]


def test_the_memory_of_this_machine_is_known(monkeypatch):
    memory = content_limits.memory_bytes()
    assert 1 << 26 < memory < 1 << 46
    assert content_limits.readable_bytes() == memory // 2
    monkeypatch.setattr(content_limits, "_group_limits", lambda: iter([1 << 20]))
    assert content_limits.memory_bytes() == 1 << 20
    assert content_limits.unreadable_state(1 << 16) is None
    assert "expected at most" in content_limits.unreadable_state((1 << 16) + 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_is_never_written(checkpoint, result, tmp_path, bad):
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)
    u = checkpoint.u.copy()
    u[417] = bad
    with pytest.raises(ValueError, match=r"dataset 'u' holds -?(nan|inf) at \[417\]"):
        save_checkpoint(path, dataclasses.replace(checkpoint, u=u))
    assert same(load_checkpoint(path), checkpoint)
    assert os.listdir(tmp_path) == ["checkpoint.h5"]
    with pytest.raises(ValueError, match="dataset 'u' holds"):
        save_result(tmp_path / "result.h5", dataclasses.replace(result, u=u))
    with pytest.raises(ValueError, match="attribute 'l2_error' is"):
        save_result(tmp_path / "result.h5", dataclasses.replace(result, l2_error=bad))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"u": np.zeros(3, np.float32)}, TypeError, "u has dtype float32"),
        ({"u": np.zeros((3, 1))}, ValueError, r"u has shape \(3, 1\)"),
        ({"step": 1.5}, TypeError, "step is float; expected int"),
        ({"step": True}, TypeError, "step is bool"),
        ({"method": None}, TypeError, "method is NoneType; expected str"),
        ({"history": [float("nan")]}, ValueError, "JSON holds nan"),
        ({"history": [object()]}, TypeError, "JSON cannot hold object"),
    ],
)
def test_fields_of_other_types_are_refused(checkpoint, tmp_path, change, error, text):
    with pytest.raises(error, match=text):
        save_checkpoint(tmp_path / "a.h5", dataclasses.replace(checkpoint, **change))
    assert os.listdir(tmp_path) == []


@pytest.fixture
def sound(checkpoint, tmp_path):
    """The bytes of a checkpoint's file."""
    save_checkpoint(tmp_path / "sound.h5", checkpoint)
    return (tmp_path / "sound.h5").read_bytes()


CUT = slice(None, -50)
NOTHING = slice(0, 0)


@pytest.mark.parametrize(
    ("last", "before"),
    [
        (None, None),
        (NOTHING, None),
        (NOTHING, NOTHING),
        (slice(None), None),
        (None, slice(None)),
        (slice(None), slice(None)),
        (CUT, slice(None)),
        (slice(None), CUT),
    ],
)
def test_checkpoints_and_what_is_left_of_them_are_replaced(checkpoint, sound, path, last, before):
    for place, piece in ((path, last), (previous_path(path), before)):
        if piece is not None:
            place.write_bytes(sound[piece])
    assert checkpoint_obstacle(path) is None
    save_checkpoint(path, checkpoint)
    assert same(load_checkpoint(path, previous=False), checkpoint)


@pytest.mark.parametrize("place", ["run.h5", "run.h5.previous"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"notes", "is no HDF5 file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "is an HDF5 file, but no sound checkpoint"),
        (CUT, "is an HDF5 file, but no sound checkpoint"),
    ],
)
def test_files_that_may_be_anybodys_are_an_obstacle(checkpoint, sound, path, place, content, text):
    theirs = path.with_name(place)
    theirs.write_bytes(sound[content] if isinstance(content, slice) else content)
    before = theirs.read_bytes()
    assert re.search(f"{theirs} exists and {text}.*move it away", checkpoint_obstacle(path))
    with pytest.raises(FileExistsError, match=text):
        save_checkpoint(path, checkpoint)
    assert theirs.read_bytes() == before


def test_notes_beside_a_checkpoint_are_an_obstacle(checkpoint, sound, path):
    path.write_bytes(sound)
    previous_path(path).write_bytes(b"notes")
    with pytest.raises(FileExistsError, match=r"run\.h5\.previous exists and is no HDF5 file"):
        save_checkpoint(path, checkpoint)
    assert path.read_bytes() == sound


def test_what_is_no_file_is_an_obstacle(path):
    os.mkfifo(path)
    assert "is not a regular file" in checkpoint_obstacle(path)


def test_loaders_name_each_other(checkpoint, result, tmp_path):
    save_checkpoint(tmp_path / "c.h5", checkpoint)
    save_result(tmp_path / "r.h5", result)
    with pytest.raises(ProblemFileError, match=r"load this file with .*load_checkpoint"):
        load_result(tmp_path / "c.h5")
    with pytest.raises(ProblemFileError, match=r"load this file with .*load_result"):
        load_checkpoint(tmp_path / "r.h5")
    with pytest.raises(FileExistsError, match=r"batchkron-result.*choose another name"):
        save_checkpoint(tmp_path / "r.h5", checkpoint)
    assert same(load_result(tmp_path / "r.h5"), result)


def test_values_that_no_run_has_are_refused(checkpoint, result, tmp_path):
    save_checkpoint(tmp_path / "c.h5", dataclasses.replace(checkpoint, step=-1))
    with pytest.raises(ProblemFileError, match="attribute 'step' is -1"):
        load_checkpoint(tmp_path / "c.h5")
    for dt in (0.0, -0.1):
        save_checkpoint(tmp_path / "d.h5", dataclasses.replace(checkpoint, dt=dt))
        with pytest.raises(ProblemFileError, match=f"attribute 'dt' is {dt}; expected a time step"):
            load_checkpoint(tmp_path / "d.h5", previous=False)
    save_result(tmp_path / "r.h5", dataclasses.replace(result, steps=-3))
    with pytest.raises(ProblemFileError, match="attribute 'steps' is -3"):
        load_result(tmp_path / "r.h5")


def test_killing_the_writer_leaves_a_checkpoint(tmp_path, rng):
    """SIGKILL at random moments while checkpointing in a loop."""
    path = tmp_path / "checkpoint.h5"
    script = (
        "import numpy as np\n"
        "from batchkron.storage import Checkpoint, save_checkpoint\n"
        "step = 0\n"
        "while True:\n"
        "    u = np.full(30_000, float(step))\n"
        "    state = Checkpoint(u, 0.0, 0.1, step, 1e9, 'm', '', '', 1, '', 'float64')\n"
        f"    save_checkpoint({str(path)!r}, state)\n"
        "    step += 1\n"
        "    print(step, flush=True)\n"
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        done = int(writer.stdout.readline())
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(rng.uniform(0.0, 0.2))
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        done = int(rest[-1]) if rest else done
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # killed between the two renames
            state = load_checkpoint(path)
        assert state.step >= done - 1
        np.testing.assert_array_equal(state.u, np.full(30_000, float(state.step)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dt", 0.0),
        ("dt", -0.3),
        ("dt", 5e-324),
        ("until", 0.0),
        ("until", 1.0),
        ("step", 10**15),
        ("dtype", "f" * 300),
        ("dtype", "complex128"),
    ],
)
def test_numbers_that_no_run_has_are_refused(path, checkpoint, field, value):
    save_checkpoint(path, dataclasses.replace(checkpoint, **{field: value}))
    named = "step" if value == 1.0 else field
    with pytest.raises(ProblemFileError, match=f"attribute '{named}' is"):
        load_checkpoint(path)
