"""Runs that are stopped or killed: nothing is lost, and the end is the same, bit for bit."""

import errno
import fcntl
import json
import os
import pty
import shlex
import signal
import struct
import termios
import time
from functools import partial

import numpy as np
import pytest

from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.cli.output import printing
from batchkron.cli.running.signals import StopOnSignal
from batchkron.problems import make, save_problem
from batchkron.solvers import evolve
from batchkron.storage import load_checkpoint, load_result, previous_path
from batchkron.storage import results as states

DEADLINE = 60.0  # seconds that a test waits for a process or a file
CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGUSR1": 138, "SIGUSR2": 140, "SIGTERM": 143}


@pytest.fixture(autouse=True)
def one_thread(threads):
    """One thread, as in the processes that tests start: another number gives a warning."""
    threads(1)


@pytest.fixture(autouse=True)
def default_signals():
    """Signals act as in a foreground process, here and in what is started here."""
    defaults = dict.fromkeys(map(signal.Signals.__getitem__, CODES), signal.SIG_DFL)
    defaults[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, action) for number, action in defaults.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def problem(folder):
    """A problem of 12 unknowns, as p.h5: a step takes some microseconds."""
    content = make("continuity-1d", level=2, degree=2)
    save_problem(folder / "p.h5", content)
    return content


def wait_for(condition):
    """Return the first true value of a condition."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.002)
    raise AssertionError("waited in vain")


def read_until(process, start_of_line):
    """Read standard error up to a line."""
    for line in process.stderr:
        if line.startswith(start_of_line):
            return
    raise AssertionError(f"no line begins with {start_of_line!r}")


def stop(process, number):
    """Send a signal to the whole group, as a terminal does, and wait for the end."""
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=DEADLINE)
    return process.returncode, output, errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on(start, cli, folder, problem, number, code):
    words = ["run", "p.h5", "--dt", "5e-5", "--until", "10"]
    process = start(*words)
    read_until(process, "step 20")
    found, output, errors = stop(process, number)
    assert found == code, errors
    assert not (folder / "p.result.h5").exists()
    checkpoint = load_checkpoint(folder / "p.checkpoint.h5")
    assert 20000 <= checkpoint.step < 200000
    assert f"stopped by {number.name} after step {checkpoint.step} of 200000" in errors
    assert "Traceback" not in errors
    assert "stopped" in output
    command = shlex.split(errors.strip().splitlines()[-1])
    assert command == ["batchkron", *words, "--resume", "p.checkpoint.h5"]
    # a few steps further, as the library goes on from that checkpoint
    end = checkpoint.step + 7
    until = f"{end * checkpoint.dt:.17g}"
    cli(*command[1:], "--until", until)
    result = load_result(folder / "p.result.h5")
    assert result.steps == end
    expected = evolve(problem, until=float(until), resume=checkpoint)
    assert result.u.tobytes() == expected.u.tobytes()


def test_a_stopped_run_with_checkpoints_leaves_the_last_state(start, folder, problem):
    process = start(
        "run", "p.h5", "--dt", "1e-5", "--until", "10", "--checkpoint-every", "1000",
        "--checkpoint", "kept.h5", "--json",
    )  # fmt: skip
    wait_for((folder / "kept.h5").exists)
    code, output, errors = stop(process, signal.SIGTERM)
    assert code == 143, errors
    step = load_checkpoint(folder / "kept.h5").step
    assert f'"steps": {step}, ' in output
    assert '"status": "stopped"' in output
    assert '"checkpoint": "kept.h5"' in output
    assert f"after step {step} of" in errors


def test_ctrl_c_before_the_first_step_is_no_traceback(cli, folder, problem, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(ProblemArgument, "read", interrupted)
    assert cli("run", "p.h5", expect=130).stderr.split("\n")[-2] == "batchkron: interrupted"
    assert set(folder.iterdir()) == {folder / "p.h5"}


@pytest.fixture
def after_step(monkeypatch):
    """Calls a function once, after a given step of a run in this process."""

    def plan(step, action):
        real, actions = StopOnSignal.__call__, [action]

        def call(self, state):
            if state.step == step and actions:
                actions.pop()()
            return real(self, state)

        monkeypatch.setattr(StopOnSignal, "may_skip", False)
        monkeypatch.setattr(StopOnSignal, "__call__", call)

    return plan


@pytest.mark.skipif(signal.SIGUSR1 != 10, reason="the numbers of these signals are Linux's")
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("words", [[], ["--checkpoint-every", "5"]])
def test_every_signal_leaves_a_checkpoint(cli, folder, problem, after_step, name, words):
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    ignored = dict.fromkeys((signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), signal.SIG_IGN)
    after_step(7, lambda: signal.raise_signal(signal.Signals[name]))
    options = ["p.h5", "--dt", "1e-3", "--until", "0.1", "--quiet", *words]
    stopped = cli("run", *options, expect=CODES[name])
    assert f"stopped by {name} after step 7 of 100" in stopped.stderr
    assert load_checkpoint(folder / "p.checkpoint.h5").step == 7
    assert {number: signal.getsignal(number) for number in before} == before | ignored
    cli(*shlex.split(stopped.stderr.splitlines()[-1])[1:])
    expected = evolve(problem, until=0.1, dt=1e-3)
    assert load_result(folder / "p.result.h5").u.tobytes() == expected.u.tobytes()


def test_a_terminal_that_is_closed_leaves_a_checkpoint(start, folder, problem):
    """It sends SIGHUP, and nothing can be written to it any more."""
    terminal, end = pty.openpty()

    def own():
        fcntl.ioctl(end, termios.TIOCSCTTY, 0)

    process = start("run", "p.h5", *LONG, stdout=end, stderr=end, preexec_fn=own)
    os.close(end)
    shown = b""
    while b"unit" not in shown and b"step/s" not in shown:
        shown += os.read(terminal, 65536)
    os.close(terminal)
    assert process.wait(DEADLINE) == 129
    assert 0 < load_checkpoint(folder / "p.checkpoint.h5").step < 200000


def test_a_report_that_cannot_be_written_is_an_error_but_for_a_closed_terminal(monkeypatch):
    class Stream:
        errors = encoding = None

        def __init__(self, number, place):
            self.number, self.place = number, place

        def write(self, text):
            raise OSError(self.number, "no")

        def fileno(self):
            return self.place

    null = os.open(os.devnull, os.O_WRONLY)
    reader, writer = os.pipe()
    monkeypatch.setattr("sys.stdout", Stream(errno.EIO, null))
    printing.print_line("text")
    for number, place in ((errno.ENOSPC, null), (errno.EIO, writer)):
        monkeypatch.setattr("sys.stdout", Stream(number, place))
        with pytest.raises(OSError, match="no"):
            printing.print_line("text")
    for descriptor in (null, reader, writer):
        os.close(descriptor)


@pytest.fixture
def full_disk(monkeypatch):
    """A list; as soon as it has an entry, writing a checkpoint fails."""
    real, full = states.write_document, []

    def write_document(path, document, **options):
        if full and document.attributes["format"] == "batchkron-checkpoint":
            raise OSError(errno.ENOSPC, "cannot write the file: the disk is full", str(path))
        real(path, document, **options)

    monkeypatch.setattr(states, "write_document", write_document)
    return full


@pytest.mark.filterwarnings("always::batchkron.solvers.CheckpointWarning")
def test_a_full_disk_does_not_end_a_run(cli, folder, problem, after_step, full_disk):
    after_step(12, lambda: full_disk.append(True))
    words = ["run", "p.h5", "--dt", "1e-3", "--until", "0.1", "--checkpoint-every", "5", "--json"]
    done = cli(*words, expect=3)
    warning, error = [line for line in done.stderr.splitlines() if "disk is full" in line]
    assert warning.startswith("batchkron: warning: the checkpoint of step 15, t = 0.015, is not")
    assert error.startswith("batchkron: p.checkpoint.h5: cannot write the file: the disk is full")
    assert "p.checkpoint.h5, is of step 10, t = 0.01." in error
    report = json.loads(done.stdout)
    assert (report["status"], report["steps"]) == ("completed", 100)
    assert (report["result"], report["checkpoint"]) == ("p.result.h5", None)
    expected = evolve(problem, until=0.1, dt=1e-3)
    assert load_result(folder / "p.result.h5").u.tobytes() == expected.u.tobytes()
    assert load_checkpoint(folder / "p.checkpoint.h5").step == 10
    assert load_checkpoint(previous_path(folder / "p.checkpoint.h5")).step == 5


@pytest.mark.filterwarnings("always::batchkron.solvers.CheckpointWarning")
@pytest.mark.parametrize("full_at", [2, 7])
def test_a_run_stopped_on_a_full_disk_goes_on_from_what_is_there(
    cli, folder, problem, after_step, full_disk, full_at
):
    def stop_on_full_disk():
        signal.raise_signal(signal.SIGUSR1)
        full_disk.append(True)

    if full_at == 2:
        full_disk.append(True)
    after_step(7, stop_on_full_disk)
    words = ["run", "p.h5", "--dt", "1e-3", "--until", "0.1", "--checkpoint-every", "5", "--quiet"]
    lines = cli(*words, expect=3).stderr.splitlines()
    assert not (folder / "p.result.h5").exists()
    if full_at == 2:
        assert lines[-1] == "batchkron: stopped by SIGUSR1"
        assert "No checkpoint of the run is there" in lines[-2]
        return
    assert lines[-2] == "batchkron: stopped by SIGUSR1; go on with"
    assert load_checkpoint(folder / "p.checkpoint.h5").step == 5
    full_disk.clear()
    cli(*shlex.split(lines[-1])[1:])
    assert load_result(folder / "p.result.h5").steps == 100


def test_a_second_signal_does_not_wait_for_the_step():
    """The first one is noted and restores the earlier handlers; the second one reaches these."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with StopOnSignal() as stopping:
        assert not stopping(None)
        signal.raise_signal(signal.SIGINT)
        assert stopping(None)
        assert stopping.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_signal_of_a_batch_system_may_come_twice_and_before_another():
    heard = []
    names = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM")
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in map(signal.Signals.__getitem__, names)
    }
    try:
        with StopOnSignal() as stopping:
            for number in (*before, *before):
                signal.raise_signal(number)
            assert stopping.received is signal.SIGHUP
            assert heard == [signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopOnSignal() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping(None)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("first", [signal.SIGUSR2, signal.SIGTERM])
def test_a_signal_that_comes_during_the_shutdown_does_not_kill(first):
    with StopOnSignal() as stopping:
        signal.raise_signal(first)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        assert signal.getsignal(number) == signal.SIG_IGN
    assert stopping.received is first
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_that_is_not_of_python_is_left_alone(monkeypatch):
    real = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda n: None if n == signal.SIGUSR2 else real(n))
    with StopOnSignal():
        assert real(signal.SIGUSR2) == signal.SIG_DFL
        assert real(signal.SIGUSR1) != signal.SIG_DFL
    assert real(signal.SIGUSR1) == signal.SIG_DFL


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopOnSignal() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert not stopping(None)
        signal.raise_signal(signal.SIGTERM)
        assert stopping.received is signal.SIGTERM


def test_signals_are_handed_back_after_a_run(cli, problem):
    before = signal.getsignal(signal.SIGTERM)
    cli("run", "p.h5", "--until", "0.1")
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the last checkpoint may be missing
def test_five_kills_and_the_same_end(start, cli, folder, problem, rng):
    steps, every = 2000, 5
    options = ["--dt", repr(1.0 / steps), "--until", "1", "--quiet"]
    path = folder / "p.checkpoint.h5"
    targets = np.sort(rng.choice(np.arange(every, steps - 600), 5, replace=False))
    seen = 0
    for target in targets:
        resume = ["--resume", path.name] if seen else []
        process = start("run", "p.h5", *options, "--checkpoint-every", every, *resume)
        wait_for(partial(has_reached, path, max(target, seen + 1)))
        time.sleep(rng.uniform(0.0, 0.02))
        assert stop(process, signal.SIGKILL)[0] == -signal.SIGKILL
        seen = load_checkpoint(path).step
    assert seen < steps
    assert not (folder / "p.result.h5").exists()
    cli("run", "p.h5", *options, "--resume", path.name, "--checkpoint-every", every)
    cli("run", "p.h5", *options, "-o", "undisturbed.h5")
    resumed, undisturbed = (load_result(folder / n) for n in ("p.result.h5", "undisturbed.h5"))
    assert (resumed.steps, resumed.t) == (undisturbed.steps, undisturbed.t) == (steps, 1.0)
    assert resumed.u.tobytes() == undisturbed.u.tobytes()
    assert not list(folder.glob(".*.partial"))


def has_reached(path, step):
    try:
        return load_checkpoint(path, trusted=True, previous=False).step >= step
    except FileNotFoundError:
        return False


def test_a_terminal_sees_a_bar(start, problem):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start("run", "p.h5", "--dt", "1e-3", "--until", "1", stderr=end)
    os.close(end)
    process.communicate(timeout=DEADLINE)
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(terminal)
    assert process.returncode == 0
    assert b"100%|" in shown
    assert b"1000/1000" in shown
    assert b"t = 1" in shown


LONG = ["--dt", "5e-5", "--until", "10"]


def killed_reader(start, *words):
    """Start a run whose output goes to a pipe; return it and the reader's end, to be closed."""
    reader, writer = os.pipe()
    process = start("run", "p.h5", *LONG, *words, stdout=writer, stderr=writer)
    os.close(writer)
    return process, reader


def test_a_reader_that_goes_away_does_not_end_a_run(start, folder, problem):
    process, reader = killed_reader(start, "--until", "0.1")
    os.read(reader, 1)
    os.close(reader)
    assert process.wait(DEADLINE) == 0
    assert load_result(folder / "p.result.h5").steps == 2000


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_nobody_reads_is_stopped_with_a_checkpoint(
    start, folder, problem, number, code, quiet
):
    process, reader = killed_reader(start, "--checkpoint-every", "1000", *quiet)
    wait_for((folder / "p.checkpoint.h5").exists)
    os.close(reader)
    os.killpg(process.pid, number)
    assert process.wait(DEADLINE) == code
    step = load_checkpoint(folder / "p.checkpoint.h5").step
    assert 1000 <= step < 200000
    assert not (folder / "p.result.h5").exists()


def test_a_stopped_run_without_checkpoints_leaves_one_that_nobody_reads_about(
    start, folder, problem
):
    process, reader = killed_reader(start)
    shown = b""
    while b"step 20" not in shown:
        shown += os.read(reader, 65536)
    os.close(reader)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(DEADLINE) == 130
    assert 20000 <= load_checkpoint(folder / "p.checkpoint.h5").step < 200000


def test_a_run_without_standard_error(start, folder, problem):
    process = start(
        "run", "p.h5", "--until", "0.1", stderr=None, preexec_fn=partial(os.close, 2)
    )  # fmt: skip
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert "L2 error" in output
    assert (folder / "p.result.h5").exists()


def test_a_bar_whose_terminal_goes_away_does_not_end_a_run(start, folder, problem):
    terminal, end = pty.openpty()
    process = start("run", "p.h5", "--dt", "5e-5", "--until", "0.1", stderr=end)
    os.close(end)
    os.read(terminal, 1)
    os.close(terminal)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert (folder / "p.result.h5").exists()
