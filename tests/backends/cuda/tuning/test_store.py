"""The file of what tuning has found: whole, shared by processes, and ignored where it is wrong."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from batchkron.backends.cuda.runtime import kernel_cache
from batchkron.backends.cuda.runtime.kernel_cache import is_tuned, tuning_path
from batchkron.backends.cuda.tuning import store as tuning_store
from batchkron.backends.cuda.tuning.store import Entry, keep_entry, kept_entry

ENTRY = Entry([["fibres", 0, 2, 4, 1, 2, 4, 1]], 22.5, 20.0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_nothing_is_there_at_first():
    assert kept_entry("key") is None
    assert not is_tuned()


def test_a_user_without_a_home_has_nothing(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    keep_entry("key", ENTRY)
    assert is_tuned()
    monkeypatch.setattr(kernel_cache, "cache_folder", homeless)
    assert not is_tuned()
    assert kept_entry("key") is None
    with pytest.raises(RuntimeError, match="home"):
        keep_entry("key", ENTRY)


def test_entries_are_found_again():
    keep_entry("key", ENTRY)
    keep_entry("other", Entry([1, 2], 3, 2))
    assert kept_entry("key") == ENTRY
    assert kept_entry("other") == Entry([1, 2], 3.0, 2.0)
    assert kept_entry("third") is None
    keep_entry("key", Entry([5], 2.0, 1.0))
    assert kept_entry("key") == Entry([5], 2.0, 1.0)
    assert kept_entry("other") is not None
    assert stat.S_IMODE(tuning_path().parent.stat().st_mode) == 0o700


def test_entries_for_other_templates_are_none(monkeypatch):
    keep_entry("key", ENTRY)
    monkeypatch.setattr(tuning_store, "templates_hash", lambda: "other")
    assert kept_entry("key") is None
    keep_entry("key", ENTRY)
    assert kept_entry("key") == ENTRY


def document():
    return json.loads(tuning_path().read_text())


BROKEN = [
    b"",
    b"no json",
    b"\xff\xfe",
    b"[]",
    b"null",
    b'{"format": "other"}',
    b'{"format": "batchkron-tuning", "format_version": 2, "entries": []}',
    b'{"format": "batchkron-tuning", "format_version": 1, "entries": 5}',
    b'{"format": "batchkron-tuning", "format_version": 1, "entries": [["key"], 5, ["key", 5]]}',
    b'{"format": "batchkron-tuning", "format_version": 1, "entries": [["key", {}]]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: repr(content[:40]))
def test_a_broken_file_is_as_good_as_none(content):
    keep_entry("other", ENTRY)
    tuning_path().write_bytes(content)
    assert kept_entry("key") is None
    keep_entry("key", ENTRY)
    assert kept_entry("key") == ENTRY


@pytest.mark.parametrize(
    "changed",
    [
        {"microseconds": "fast"},
        {"microseconds": 0},
        {"microseconds": -1.0},
        {"microseconds": float("nan")},
        {"microseconds": float("inf")},
        {"rule_microseconds": None},
        {"templates": 5},
    ],
    ids=repr,
)
def test_a_broken_entry_is_none_and_the_others_stay(changed):
    keep_entry("key", ENTRY)
    keep_entry("other", ENTRY)
    content = document()
    content["entries"][0][1].update(changed)
    tuning_path().write_text(json.dumps(content))
    assert kept_entry("key") is None
    assert kept_entry("other") == ENTRY
    keep_entry("third", ENTRY)
    assert kept_entry("other") == ENTRY


def test_a_huge_file_is_not_read(monkeypatch):
    keep_entry("key", ENTRY)
    monkeypatch.setattr(tuning_store, "_MAX_FILE_BYTES", 10)
    os.utime(tuning_path(), (1, 1))
    assert kept_entry("key") is None


def test_the_oldest_entries_go_first(monkeypatch):
    monkeypatch.setattr(tuning_store, "_MAX_ENTRIES", 3)
    for key in "abcad":
        keep_entry(key, ENTRY)
    assert [key for key, _ in document()["entries"]] == ["c", "a", "d"]


def test_a_folder_of_others_is_refused(folder):
    (folder / "kernels").mkdir()
    (folder / "kernels").chmod(0o777)
    with pytest.raises(PermissionError, match="is not private to this user"):
        keep_entry("key", ENTRY)
    assert not tuning_path().exists()


def test_writers_do_not_lose_each_others_entries():
    def keep(name):
        for number in range(10):
            keep_entry(f"{name} {number}", Entry([number], 2.0, 1.0))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(keep, "abc"))
    missing = [
        f"{name} {number}"
        for name in "abc"
        for number in range(10)
        if kept_entry(f"{name} {number}") is None
    ]
    assert not missing
