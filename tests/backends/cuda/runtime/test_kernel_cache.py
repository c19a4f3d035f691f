"""The cache of compiled kernels on disk; no device is needed."""

import os
import stat
import subprocess
import sys

import pytest

from batchkron.backends.cuda.runtime import kernel_cache
from batchkron.backends.cuda.runtime.kernel_cache import (
    CompiledKernel,
    cached_kernel,
    is_kept,
    recorded_kernels,
)
from batchkron.backends.cuda.runtime.program import Program, compile_options, program_key

KERNEL = CompiledKernel("_Z4name", b"machine code\0with zeros\0")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


def refuse():
    raise AssertionError("compiled again")


def test_a_kernel_is_compiled_once(folder):
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert cached_kernel("key", refuse) == KERNEL
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["key.kernel"]


def test_a_record_tells_compiled_kernels_from_found_ones(folder):
    cached_kernel("old", lambda: KERNEL)
    with recorded_kernels() as outer:
        cached_kernel("old", refuse)
        with recorded_kernels() as inner:
            for _ in range(2):
                cached_kernel("new", lambda: KERNEL)
    cached_kernel("later", lambda: KERNEL)
    assert outer == {"old": False, "new": True}
    assert inner == {"new": True}
    assert is_kept("new")
    assert not is_kept("never")


def test_every_ingredient_changes_the_key():
    program, sources = Program("a.cuh", "kernel<1>"), {"a.cuh": "text", "b.cuh": ""}
    options = compile_options("90")
    keys = {
        program_key(program, sources, options, "nvrtc 13.0"),
        program_key(Program("b.cuh", "kernel<1>"), sources, options, "nvrtc 13.0"),
        program_key(Program("a.cuh", "kernel<2>"), sources, options, "nvrtc 13.0"),
        program_key(program, {**sources, "b.cuh": " "}, options, "nvrtc 13.0"),
        program_key(program, {**sources, "c.cuh": ""}, options, "nvrtc 13.0"),
        program_key(program, {"a.cuh": "text", "c.cuh": ""}, options, "nvrtc 13.0"),
        program_key(program, sources, compile_options("80"), "nvrtc 13.0"),
        program_key(program, sources, (*options, "-DX"), "nvrtc 13.0"),
        program_key(program, sources, options, "nvrtc 13.1"),
    }
    assert len(keys) == 9
    again = program_key(program, dict(reversed(sources.items())), options, "nvrtc 13.0")
    assert again in keys


def test_a_changed_header_never_serves_a_stale_kernel():
    program, options = Program("a.cuh", "kernel<1>"), compile_options("90")
    for text in ("first", "second", "first"):
        key = program_key(program, {"a.cuh": text}, options, "nvrtc 13.0")
        found = cached_kernel(key, lambda text=text: CompiledKernel("name", text.encode()))
        assert found.code == text.encode()


def flip(content, position):
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize("position", [0, 10, 19, 40, 51, 60, -1])
def test_a_damaged_entry_is_compiled_again(folder, position):
    cached_kernel("key", lambda: KERNEL)
    path = folder / "key.kernel"
    path.write_bytes(flip(path.read_bytes(), position % path.stat().st_size))
    other = CompiledKernel("_Z5other", b"fresh")
    assert cached_kernel("key", lambda: other) == other
    assert cached_kernel("key", refuse) == other


@pytest.mark.parametrize("length", [0, 5, 19, 51, 60])
def test_a_truncated_entry_is_compiled_again(folder, length):
    cached_kernel("key", lambda: KERNEL)
    path = folder / "key.kernel"
    path.write_bytes(path.read_bytes()[:length])
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert cached_kernel("key", refuse) == KERNEL


def test_an_entry_under_another_name_is_not_served(folder):
    cached_kernel("key", lambda: KERNEL)
    (folder / "key.kernel").rename(folder / "stolen.kernel")
    other = CompiledKernel("_Z5other", b"fresh")
    assert cached_kernel("stolen", lambda: other) == other


def test_the_cache_is_bounded_and_keeps_what_was_used_last(folder, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_MAX_CACHE_BYTES", 5000)
    large = CompiledKernel("large", bytes(1500))
    for k in range(3):
        cached_kernel(f"key{k}", lambda: large)
        os.utime(folder / f"key{k}.kernel", (k + 1, k + 1))
    cached_kernel("key0", refuse)
    cached_kernel("key3", lambda: large)
    assert {path.stem for path in folder.iterdir()} == {"key0", "key2", "key3"}


def test_abandoned_parts_are_removed(folder):
    cached_kernel("key", lambda: KERNEL)
    old, new = folder / "old.part", folder / "new.part"
    old.write_bytes(b"")
    new.write_bytes(b"")
    os.utime(old, (1, 1))
    cached_kernel("other", lambda: KERNEL)
    assert not old.exists()
    assert new.exists()


def test_a_folder_that_others_may_write_to_is_not_used(folder):
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert not list(folder.iterdir())


@pytest.mark.parametrize("mode", [0o720, 0o702], ids=["the group", "everybody"])
def test_a_folder_that_only_some_others_may_write_to_is_not_used(folder, mode):
    cached_kernel("key", lambda: CompiledKernel("theirs", b"planted"))
    folder.chmod(mode)
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert cached_kernel("new", lambda: KERNEL) == KERNEL
    assert [path.name for path in folder.iterdir()] == ["key.kernel"]


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    cached_kernel("key", lambda: CompiledKernel("theirs", b"planted"))
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert cached_kernel("new", lambda: KERNEL) == KERNEL
    assert [path.name for path in folder.iterdir()] == ["key.kernel"]


def test_a_cache_that_cannot_be_written_only_costs_compilations(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(blocker))
    assert cached_kernel("key", lambda: KERNEL) == KERNEL


def test_no_space_leaves_no_part_behind(folder, monkeypatch):
    def fail(source, target):
        raise OSError(28, "no space")

    monkeypatch.setattr(kernel_cache.os, "replace", fail)
    assert cached_kernel("key", lambda: KERNEL) == KERNEL
    assert not list(folder.iterdir())


def test_the_default_folder_is_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("BATCHKRON_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel_cache.cache_folder() == tmp_path / "batchkron" / "kernels"


# one of several processes that fill, read and shrink one small cache
WORKER = """
from batchkron.backends.cuda.runtime import kernel_cache
from batchkron.backends.cuda.runtime.kernel_cache import (
    CompiledKernel,
    cached_kernel,
    is_kept,
    recorded_kernels,
)

kernel_cache._MAX_CACHE_BYTES = 4000
for k in range(100):
    text = f"{k % 7}".encode() * 600
    found = cached_kernel(f"key{k % 7}", lambda: CompiledKernel("name", text))
    assert found.code == text
"""


def test_processes_share_the_cache(folder):
    workers = [subprocess.Popen([sys.executable, "-c", WORKER]) for _ in range(3)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    assert not [path for path in folder.iterdir() if path.suffix == ".part"]


def test_the_log_tells_what_is_compiled_and_stored(folder, caplog, monkeypatch):
    caplog.set_level("DEBUG", "batchkron.cache")
    cached_kernel("key", lambda: KERNEL)
    cached_kernel("key", refuse)
    folder.chmod(0o777)  # others could write there, so that nothing is read or stored
    cached_kernel("other", lambda: KERNEL)
    folder.chmod(0o700)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(kernel_cache, "write_private", full)
    cached_kernel("third", lambda: KERNEL)
    texts = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert texts[0][1].startswith("kernel key (_Z4name) is compiled in ")
    assert texts[1] == ("DEBUG", f"kernel key (_Z4name) is read from {folder}")
    assert texts[2][1].startswith("kernel other is compiled, and not stored: ")
    third = f"kernel third is not stored in {folder}: no space left on device"
    assert texts[4] == ("WARNING", third)
