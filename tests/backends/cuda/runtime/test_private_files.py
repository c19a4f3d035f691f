"""Kernels and tuning results are read from files of this user alone; none makes a process hang."""

import fcntl
import json
import os
import threading

import pytest

from batchkron.backends.cuda.runtime import private_files
from batchkron.backends.cuda.runtime.kernel_cache import (
    CompiledKernel,
    cached_kernel,
    is_kept,
    is_tuned,
    private_folder,
    tuning_path,
)
from batchkron.backends.cuda.tuning import store as tuning_store
from batchkron.backends.cuda.tuning.store import Entry, keep_entry, kept_entry

OLD, NEW = CompiledKernel("_Z3old", b"planted"), CompiledKernel("_Z3new", b"compiled")
OLD_ENTRY, NEW_ENTRY = Entry(["planted"], 3.0, 2.0), Entry(["found"], 2.0, 1.0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path))
    tuning_store._entries_of.cache_clear()
    return tmp_path / "kernels"


def within(action, *arguments):
    """Do something that must not wait forever."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action(*arguments)), daemon=True)
    thread.start()
    thread.join(20.0)
    assert found, "it hangs"
    return found[0]


def to_link(path, monkeypatch):
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def to_pipe(path, monkeypatch):
    path.unlink()
    os.mkfifo(path, 0o600)


def to_device(path, monkeypatch):
    path.unlink()
    path.symlink_to("/dev/zero")


def to_group(path, monkeypatch):
    path.chmod(0o620)


def to_everybody(path, monkeypatch):
    path.chmod(0o602)


def to_another_user(path, monkeypatch):
    real = os.fstat

    def fstat(descriptor):
        status = real(descriptor)
        return os.stat_result((*status[:4], status.st_uid + 1, *status[5:]))

    monkeypatch.setattr(private_files.os, "fstat", fstat)


CHANGES = [to_link, to_pipe, to_device, to_group, to_everybody, to_another_user]


@pytest.mark.parametrize("change", CHANGES)
def test_a_kernel_that_may_be_anybodys_is_compiled_again(folder, monkeypatch, change):
    cached_kernel("key", lambda: OLD)
    with monkeypatch.context() as patch:
        change(folder / "key.kernel", patch)
        assert within(cached_kernel, "key", lambda: NEW) == NEW
    assert cached_kernel("key", lambda: OLD) == NEW
    assert is_kept("key")


@pytest.mark.parametrize("change", CHANGES)
def test_entries_that_may_be_anybodys_are_none(folder, monkeypatch, change):
    keep_entry("old", OLD_ENTRY)
    assert kept_entry("old") == OLD_ENTRY
    tuning_store._entries_of.cache_clear()
    with monkeypatch.context() as patch:
        change(tuning_path(), patch)
        assert within(kept_entry, "old") is None
        within(lambda: keep_entry("new", NEW_ENTRY) or True)
    tuning_store._entries_of.cache_clear()
    assert (kept_entry("old"), kept_entry("new")) == (None, NEW_ENTRY)


def test_what_links_lead_to_is_neither_served_nor_changed(folder):
    cached_kernel("key", lambda: OLD)
    keep_entry("key", OLD_ENTRY)
    for path in (folder / "key.kernel", tuning_path()):
        elsewhere = folder.parent / path.name
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        os.utime(elsewhere, (1, 1))
    before = {path.name: path.read_bytes() for path in folder.parent.iterdir() if path.is_file()}
    assert not is_kept("key")
    assert not is_tuned()
    cached_kernel("key", lambda: NEW)
    keep_entry("key", NEW_ENTRY)
    for name, content in before.items():
        assert (folder.parent / name).read_bytes() == content
        assert (folder.parent / name).stat().st_mtime == 1


def test_a_change_of_mode_is_seen_though_the_entries_are_known(folder):
    keep_entry("key", OLD_ENTRY)
    assert kept_entry("key") == OLD_ENTRY
    tuning_path().chmod(0o622)
    assert kept_entry("key") is None
    tuning_path().chmod(0o600)
    assert kept_entry("key") == OLD_ENTRY
    folder.chmod(0o770)
    assert kept_entry("key") is None


def test_reading_makes_no_folder(folder):
    assert kept_entry("key") is None
    assert not folder.exists()
    with pytest.raises(FileNotFoundError):
        private_folder(create=False)


def test_a_link_to_a_folder_is_not_private(folder):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="is not private to this user"):
        keep_entry("key", OLD_ENTRY)
    assert cached_kernel("key", lambda: NEW) == NEW
    assert not list(elsewhere.iterdir())


def test_a_lock_that_is_never_let_go_hangs_nobody(folder, monkeypatch):
    monkeypatch.setattr(tuning_store, "_LOCK_SECONDS", 0.05)
    keep_entry("first", OLD_ENTRY)
    with open(folder / "tuning.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        within(lambda: keep_entry("second", NEW_ENTRY) or True)
    assert (kept_entry("first"), kept_entry("second")) == (OLD_ENTRY, NEW_ENTRY)


def test_a_lock_is_waited_for(folder):
    keep_entry("first", OLD_ENTRY)
    with open(folder / "tuning.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=keep_entry, args=("second", NEW_ENTRY))
        thread.start()
        thread.join(0.1)
        assert [key for key, _ in json.loads(tuning_path().read_bytes())["entries"]] == ["first"]
    thread.join()
    assert kept_entry("second") == NEW_ENTRY


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_file_hangs_nobody(folder, kind):
    private_folder()
    if kind == "pipe":
        os.mkfifo(folder / "tuning.lock", 0o600)
    else:
        (folder / "tuning.lock").symlink_to(folder.parent / "elsewhere")
    within(lambda: keep_entry("key", NEW_ENTRY) or True)
    assert kept_entry("key") == NEW_ENTRY
    assert not (folder.parent / "elsewhere").exists()
