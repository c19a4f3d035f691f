"""A file is written whole or not at all, whatever happens."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from batchkron.storage import ResultFile, load_result, save_result
from batchkron.storage.atomic_write import write_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.h5"


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_not_overwritten_unasked(path):
    write_file(path, b"old")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    write_file(path, b"new", overwrite=True)
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file.h5"]


def test_a_file_that_appears_meanwhile_is_safe(path, monkeypatch):
    real = os.fsync

    def fsync(descriptor):
        path.write_bytes(b"somebody else's")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_file(path, b"new")
    assert path.read_bytes() == b"somebody else's"
    assert names(path.parent) == ["file.h5"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("publish", [None, os.replace])
def test_the_folder_is_synced_once_the_file_has_its_name(path, monkeypatch, overwrite, publish):
    """A name that only memory holds is gone after a power cut, and the old content with it."""
    if overwrite:
        path.write_bytes(b"old")
    synced, real = [], os.fsync

    def fsync(descriptor):
        status = os.fstat(descriptor)
        content = path.read_bytes() if path.exists() else None
        synced.append((status.st_ino, stat.S_ISDIR(status.st_mode), content))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(path, b"new", overwrite=overwrite, publish=publish)
    before = b"old" if overwrite else None
    file, folder = path.stat().st_ino, path.parent.stat().st_ino
    assert synced == [(file, False, before), (folder, True, b"new")]


def test_without_hard_links_it_works_as_well(path, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(FileExistsError):
        write_file(path, b"newer")
    assert names(path.parent) == ["file.h5"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_mode_follows_the_umask_and_is_private_meanwhile(path, umask, monkeypatch, mask, mode):
    umask(mask)
    seen = []
    real = os.write

    def write(descriptor, data):
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    write_file(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert seen == [0o600]


def test_a_replaced_file_keeps_its_mode(path):
    write_file(path, b"old")
    path.chmod(0o604)
    write_file(path, b"new", overwrite=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_symbolic_link_is_written_through(path):
    path.write_bytes(b"old")
    link = path.with_name("link")
    link.symlink_to(path)
    write_file(link, b"new", overwrite=True)
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failing_disk_leaves_the_old_file(path, monkeypatch, number, call):
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="cannot write the file: the ") as caught:
        write_file(path, bytes(100), overwrite=True)
    monkeypatch.undo()
    assert caught.value.errno == number
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file.h5"]


def test_short_writes_are_continued(path, monkeypatch, rng):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    data = rng.bytes(100)
    write_file(path, data)
    assert path.read_bytes() == data


def test_the_size_limit_of_the_system_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.h5"
    script = (
        "import resource, sys\n"
        "from batchkron.storage.atomic_write import write_file\n"
        f"write_file({str(path)!r}, b'old')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "try:\n"
        f"    write_file({str(path)!r}, bytes(1 << 20), overwrite=True)\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "ulimit" in run.stdout
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.h5"]


@pytest.fixture
def unwritable_folder():
    """A folder where this process may not write, even if it began as root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder)
        (path / "file.h5").write_bytes(b"old")
        path.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)
            path.chmod(0o755)


def test_a_read_only_folder_leaves_the_old_file(unwritable_folder):
    path = unwritable_folder / "file.h5"
    with pytest.raises(PermissionError, match="no permission to write into this folder"):
        write_file(path, b"new", overwrite=True)
    assert path.read_bytes() == b"old"
    assert names(unwritable_folder) == ["file.h5"]


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("missing/file.h5", FileNotFoundError, "folder does not exist"),
        ("other/file.h5", NotADirectoryError, "not a folder"),
        ("x" * 300, OSError, "name is too long"),
        ("folder", IsADirectoryError, "is a folder"),
        ("pipe", OSError, "not a regular"),
    ],
)
def test_impossible_names_are_explained(tmp_path, name, error, text):
    (tmp_path / "other").write_bytes(b"a file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    with pytest.raises(error, match=text):
        write_file(tmp_path / name, b"new", overwrite=True)
    assert names(tmp_path) == before


def test_what_killed_writers_left_is_removed(path):
    abandoned = path.with_name(".file.h5.0123456789abcdef.partial")
    abandoned.write_bytes(b"half")
    others = [path.with_name(name) for name in (".other.h5.01.partial", ".file.h5", "file.h5.a")]
    for other in others:
        other.write_bytes(b"")
    write_file(path, b"new")
    assert not abandoned.exists()
    assert all(other.exists() for other in others)


@pytest.mark.parametrize("length", [200, 201, 255])
def test_names_may_be_as_long_as_the_file_system_takes(path, length):
    target = path.with_name("x" * length)
    for content in (b"first", b"second"):
        write_file(target, content, overwrite=True)
        assert target.read_bytes() == content
    assert names(path.parent) == [target.name]


def test_many_writers_of_one_name_leave_one_whole_file(path):
    contents = [bytes([k]) * 50_000 for k in range(8)]
    threads = [
        threading.Thread(target=write_file, args=(path, content), kwargs={"overwrite": True})
        for content in contents
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(path.parent) == ["file.h5"]


def test_a_partial_file_that_another_writer_is_about_to_remove_is_given_up(path, monkeypatch):
    """The other one can lock it before the writer that created it does."""
    taken = []
    real_fchmod, real_write = os.fchmod, os.write

    def fchmod(descriptor, mode):
        real_fchmod(descriptor, mode)
        if not taken:
            (partial,) = path.parent.glob(".file.h5.*.partial")
            taken.append((partial, os.open(partial, os.O_WRONLY)))
            fcntl.flock(taken[0][1], fcntl.LOCK_EX)

    def write(descriptor, data):
        taken[0][0].unlink(missing_ok=True)
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "fchmod", fchmod)
    monkeypatch.setattr(os, "write", write)
    write_file(path, b"new")
    os.close(taken[0][1])
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file.h5"]


def test_of_exclusive_writers_one_wins(path):
    outcomes = []

    def write(content):
        try:
            write_file(path, content)
            outcomes.append(content)
        except FileExistsError:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(bytes([k]),)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [content for content in outcomes if content is not None]
    assert len(outcomes) == 16
    assert winners == [path.read_bytes()]


def test_killing_the_writer_leaves_a_whole_file(tmp_path, rng):
    """SIGKILL at random moments while saving in a loop: the file always holds one whole state."""
    path = tmp_path / "result.h5"
    size = 300_000
    script = (
        "import numpy as np, sys\n"
        "from batchkron.storage import ResultFile, save_result\n"
        "k = 0\n"
        "while True:\n"
        f"    u = np.full({size}, float(k))\n"
        "    result = ResultFile(u, 0.0, 'completed', k, 0.1, 'm', '', '')\n"
        f"    save_result({str(path)!r}, result, overwrite=True)\n"
        "    k += 1\n"
        "    print(k, flush=True)\n"
    )
    for _ in range(10):
        writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(rng.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        result = load_result(path)
        np.testing.assert_array_equal(result.u, np.full(size, float(result.steps)))
    assert len(names(tmp_path)) <= 2
    save_result(path, ResultFile(np.zeros(1), 0.0, "", 0, 0.1, "", "", ""), overwrite=True)
    assert names(tmp_path) == ["result.h5"]
