"""The reader process: kept, limited, replaced when it dies, and never left behind."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import psutil
import pytest

from batchkron import ProblemFileError
from batchkron.storage import Document, read_file, reader, write_document

SOUND = Document(
    {"format": "batchkron-result", "format_version": 1}, {"u": np.arange(1.0, 100_000.0)}
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.h5"
    write_document(path, SOUND)
    return path


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Replaces what the reader process does with a file by other code."""

    def replace(code):
        script = tmp_path / "program.py"
        script.write_text(
            "import os, signal, numpy as np\n"
            "import batchkron.storage.reader_process as process\n"
            "def read_guarded(path, limits, expected, sized, reaches):\n"
            "    sized(8)\n"
            "    reaches(\"dataset 'u'\")\n"
            f"{textwrap.indent(code, '    ')}\n"
            "process.read_guarded = read_guarded\n"
            "process.main()\n"
        )
        reader._READER.stop()
        monkeypatch.setattr(reader, "_PROGRAM", script)

    yield replace
    reader._READER.stop()


def reader_pid():
    return reader._READER._process.pid


def is_sound(document):
    return document.content_hash == SOUND.content_hash


def test_the_process_is_kept_between_files(path):
    read_file(path, None)
    first = reader_pid()
    broken = path.with_name("broken.h5")
    broken.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ProblemFileError):
        read_file(broken, None)
    assert is_sound(read_file(path, None))
    assert reader_pid() == first


def test_the_process_is_replaced_after_many_bad_files(path, monkeypatch):
    monkeypatch.setattr(reader, "_REFUSALS_PER_PROCESS", 3)
    reader._READER.stop()
    read_file(path, None)
    first = reader_pid()
    broken = path.with_name("broken.h5")
    broken.write_bytes(path.read_bytes()[:-100])
    for _ in range(3):
        with pytest.raises(ProblemFileError):
            read_file(broken, None)
    assert is_sound(read_file(path, None))
    assert reader_pid() != first


def test_it_starts_without_the_kernels_and_scipy(path):
    read_file(path, None)
    maps = psutil.Process(reader_pid()).memory_maps()
    assert not [m.path for m in maps if re.search(r"_core\.|/scipy/", m.path)]


def test_a_process_that_died_meanwhile_is_replaced(path):
    read_file(path, None)
    os.kill(reader_pid(), signal.SIGKILL)
    assert is_sound(read_file(path, None))


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGKILL"])
def test_a_crash_is_a_refusal_that_names_the_dataset(path, program, monkeypatch, name):
    program(f"os.kill(os.getpid(), signal.{name})")
    with pytest.raises(ProblemFileError, match=rf"{path}: dataset 'u' is damaged.*{name}"):
        read_file(path, None)
    monkeypatch.undo()
    assert is_sound(read_file(path, None))


def test_a_crash_that_an_earlier_bad_file_prepared_is_not_this_files_fault(path, program):
    program(
        "if 'bad' in path:\n"
        "    global met\n"
        "    met = True\n"
        "    raise process.ProblemFileError('refused')\n"
        "if 'met' in globals():\n"
        "    os.abort()\n"
        "return process.Document({'format': 'x'}, {'u': np.ones(2)})"
    )
    bad = path.with_name("bad.h5")
    bad.write_bytes(path.read_bytes())
    with pytest.raises(ProblemFileError, match="refused"):
        read_file(bad, None)
    assert read_file(path, None).attributes == {"format": "x"}


def test_a_second_try_has_only_the_time_that_is_left(path, program, monkeypatch):
    monkeypatch.setattr(reader, "_PROCESSOR_SECONDS", 2.0)
    program(
        "import time\n"
        "if 'bad' not in path:\n"
        "    process.has_met_a_file = True\n"
        "    return process.Document({'format': 'x'}, {})\n"
        "if hasattr(process, 'has_met_a_file'):\n"
        "    time.sleep(0.5)\n"
        "    end = time.process_time() + 0.6\n"
        "    while time.process_time() < end: pass\n"
        "    os.abort()\n"
        "left = signal.getitimer(signal.ITIMER_PROF)[0]\n"
        "stop = signal.getitimer(signal.ITIMER_REAL)[0]\n"
        "raise process.ProblemFileError(f'{left} s, {stop} s')"
    )
    read_file(path, None)
    bad = path.with_name("bad.h5")
    bad.write_bytes(path.read_bytes())
    with pytest.raises(ProblemFileError, match=r"^1\.[0-4]\d* s, 2\d\d\."):
        read_file(bad, None)


def test_endless_reading_is_ended(path, program, monkeypatch):
    monkeypatch.setattr(reader, "_PROCESSOR_SECONDS", 0.3)
    program("while True: pass")
    with pytest.raises(
        ProblemFileError,
        match=r"dataset 'u' takes longer than a sound file.*more than 0\.34 s of processor time",
    ):
        read_file(path, None)
    monkeypatch.undo()
    assert is_sound(read_file(path, None))


def test_waiting_for_the_disk_takes_no_processor_time(path, program, monkeypatch):
    monkeypatch.setattr(reader, "_PROCESSOR_SECONDS", 0.1)
    program("import time\ntime.sleep(0.5)\nreturn process.Document({'format': 'x'}, {})")
    assert read_file(path, None).attributes == {"format": "x"}


def test_waiting_for_ever_is_ended(path, program, monkeypatch):
    monkeypatch.setattr(reader, "_TIMEOUT", 0.3)
    monkeypatch.setattr(reader, "_TIMEOUT_PER_SECOND", 0.0)
    program("import time\ntime.sleep(60)")
    with pytest.raises(
        ProblemFileError, match=r"dataset 'u' was not done after 0\.3 s on the clock.*Try again"
    ):
        read_file(path, None)
    monkeypatch.undo()
    assert is_sound(read_file(path, None))


def test_the_limits_hold_where_the_caller_blocks_their_signals(path):
    """A process inherits blocked signals; the reader must unblock those of its time limits."""
    done = run(f"""
        import signal
        from pathlib import Path
        from batchkron.storage import read_file, reader
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF, signal.SIGALRM])
        read_file({str(path)!r}, None)
        status = Path(f"/proc/{{reader._READER._process.pid}}/status").read_text()
        print([int(line.split()[1], 16) for line in status.splitlines() if "SigBlk" in line])
    """)
    assert done.stdout == "[0]\n", done.stderr


def test_boundless_memory_is_refused(path, program):
    program("return np.ones(1 << 31)")
    with pytest.raises(ProblemFileError, match="needs more memory than the file's size allows"):
        read_file(path, None)


def test_the_process_cannot_write_files(path, program, tmp_path):
    name = str(tmp_path / "new")
    program(f"os.write(os.open({name!r}, os.O_CREAT | os.O_WRONLY), b'x')")
    with pytest.raises(ProblemFileError, match="too large"):
        read_file(path, None)
    assert (tmp_path / "new").read_bytes() == b""


def test_an_error_of_the_program_is_a_refusal(path, program):
    program("raise KeyError('bug')")
    with pytest.raises(ProblemFileError, match="exit status 1"):
        read_file(path, None)


def test_a_process_that_does_not_start_says_what_to_do(path, monkeypatch):
    reader._READER.stop()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ChildProcessError, match="trusted=True"):
        read_file(path, None)
    assert is_sound(read_file(path, None, trusted=True))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(ChildProcessError, match="ended at once"):
        read_file(path, None)


def test_a_process_that_is_never_ready_says_so(path, tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text("import time\ntime.sleep(60)\n")
    reader._READER.stop()
    monkeypatch.setattr(reader, "_PROGRAM", script)
    monkeypatch.setattr(reader, "_STARTUP_TIMEOUT", 0.1)
    with pytest.raises(ChildProcessError, match=r"it is not ready after 0\.1 s; pass trusted"):
        read_file(path, None)
    reader._READER.stop()


def test_many_threads_read_at_once(path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(is_sound(read_file(path, None))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def run(script, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, **options
    )


def test_a_fork_reads_through_a_process_of_its_own(path):
    done = run(f"""
        import os, threading
        from batchkron.storage import read_file, reader
        hash = read_file({str(path)!r}, None).content_hash
        reader._READER._lock.acquire()  # as another thread might at the moment of the fork
        pid = reader._READER._process.pid
        child = os.fork()
        if child == 0:
            assert read_file({str(path)!r}, None).content_hash == hash
            os._exit(0 if reader._READER._process.pid != pid else 3)
        reader._READER._lock.release()
        assert os.waitpid(child, 0)[1] == 0
        assert read_file({str(path)!r}, None).content_hash == hash
        assert reader._READER._process.pid == pid
        print("done")
    """)
    assert done.stdout == "done\n", done.stderr


def ends_soon(pid):
    for _ in range(500):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_the_process_ends_with_the_one_that_started_it(path, end):
    done = run(f"""
        import os
        from batchkron.storage import read_file, reader
        read_file({str(path)!r}, None)
        print(reader._READER._process.pid, flush=True)
        {end}
    """)
    assert done.stderr == ""
    assert ends_soon(int(done.stdout))


def test_ctrl_c_is_not_for_the_process(path):
    read_file(path, None)
    assert os.getpgid(reader_pid()) != os.getpgid(0)


def test_nothing_is_started_by_importing():
    script = """
        import threading
        from batchkron.storage import reader
        print(reader._READER._process, threading.active_count())
    """
    assert run(script).stdout == "None 1\n"


def test_it_reads_relative_paths_from_the_present_folder(path, monkeypatch, tmp_path):
    read_file(path, None)
    monkeypatch.chdir(tmp_path)
    assert is_sound(read_file("file.h5", None))
    assert is_sound(read_file(b"file.h5".decode(), None))
    odd = tmp_path / os.fsdecode(b"odd \xff\n name.h5")
    odd.write_bytes(path.read_bytes())
    assert is_sound(read_file(odd, None))
