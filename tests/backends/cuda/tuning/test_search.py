"""The search itself, with kernels that are only numbers; no device is needed."""

import struct
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from batchkron.backends.cuda.kernel import LaunchShape
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.tuning.search import RejectedError, Search
from batchkron.backends.cuda.tuning.tuning import Tuning, tuned_plans, tuning_for, wanted_tuning
from batchkron.errors import ContextLostError

LIMITS = DeviceLimits(1000, 4)


def cubin(registers, stack):
    """Machine code of which only what a thread takes is there."""
    info = b"".join(
        struct.pack("<BBHII", 4, name, 8, 0, value)
        for name, value in ((0x2F, registers), (0x12, stack))
    )
    names = b"\0.nv.info\0"
    header = bytearray(64)
    start = len(header)
    struct.pack_into("<Q", header, 0x28, start + len(names) + len(info))
    struct.pack_into("<HHH", header, 0x3A, 40, 2, 0)
    sections = struct.pack("<IIQQQQ", 0, 0, 0, 0, start, len(names))
    sections += struct.pack("<IIQQQQ", 1, 0, 0, 0, start + len(names), len(info))
    return bytes(header) + names + info + sections


class Compiler:
    """Compiles at once; a choice's code says what a thread takes."""

    processes = 3

    def __init__(self, takes=None, seconds=0.0):
        self.takes, self.seconds, self.asked = takes or {}, seconds, []

    def submit(self, program):
        self.asked.append(program)
        answer = Future()
        number = int(program.expression)
        if self.takes.get(number) == "broken":
            answer.set_exception(RejectedError("does not compile"))
        elif self.seconds:
            threading.Timer(self.seconds, answer.set_result, [self.code(number)]).start()
        else:
            answer.set_result(self.code(number))
        return answer

    def code(self, number):
        return CompiledKernel(str(number), cubin(*self.takes.get(number, (32, 0))))


class Numbers:
    """Choices are numbers: first tens, then what is near the best one."""

    rule = 50

    def kernels(self, choice):
        if choice < 0:
            return None
        return (
            (Program("a.cuh", str(choice)), LaunchShape(1, 64, 1, 5000 if choice == 7 else 10)),
        )

    def steps(self):
        yield lambda best: range(-10, 100, 10)
        yield lambda best: range(best - 5, best + 6)


def searched(times, compiler=None, tuning=None):
    """The search after it has run, and its outcome; ``times``: from choices to µs."""
    search = Search(
        Numbers(),
        compiler or Compiler(),
        lambda choice, compiled, best: times(choice),
        LIMITS,
        tuning or Tuning(seconds=30),
        "numbers",
    )
    return search, search.run()


def test_the_best_is_found_step_by_step():
    search, outcome = searched(lambda choice: 100 + abs(choice - 23))
    assert search.best == 23
    assert (outcome.rule_microseconds, outcome.microseconds) == (127, 100)
    assert outcome.gain == pytest.approx(1.27)
    assert (outcome.tried, outcome.pruned, outcome.failed) == (9 + 10, 1, 0)
    assert outcome.is_complete
    assert list(search.best_kernels()) == [Program("a.cuh", "23")]


def test_nothing_is_compiled_twice():
    compiler = Compiler()
    searched(lambda choice: 100 + abs(choice - 23), compiler)
    assert len(compiler.asked) == len(set(compiler.asked))


def test_where_the_rule_is_the_best_or_nearly_it_stays():
    search, outcome = searched(lambda choice: 100.0 if choice == 50 else 99.5)
    assert search.best == 50
    assert outcome.microseconds == outcome.rule_microseconds == 100


def test_a_lucky_measurement_is_not_believed():
    seen = []

    def times(choice):
        seen.append(choice)
        return 10 if choice == 30 and seen.count(30) == 1 else 100

    search, outcome = searched(times)
    assert search.best == 50
    assert outcome.gain == 1
    assert seen.count(30) > 1


def test_what_does_not_fit_or_spills_is_pruned_unmeasured():
    measured = []
    takes = {20: (32, 8), 30: (2000, 0), 50: (32, 4), 60: (32, 4)}

    def times(choice):
        measured.append(choice)
        return 100 - choice % 7 if choice < 50 else 100

    _, outcome = searched(times, Compiler(takes))
    assert outcome.pruned >= 3
    assert not {-10, 20, 30, 7} & set(measured)
    assert 60 in measured, "it spills no more than the rule's kernel"


def test_failures_are_counted_said_and_never_chosen():
    def times(choice):
        if choice == 20:
            raise RejectedError("wrong result")
        return 1 if choice == 20 else 100

    search, outcome = searched(times, Compiler({30: "broken"}))
    assert search.best == 50
    assert outcome.failed == 2
    assert outcome.reasons == ("20: wrong result", "30: does not compile")


def test_a_lost_device_and_a_broken_rule_end_the_search():
    def lost(choice):
        if choice == 20:
            raise ContextLostError("gone")
        return 100

    with pytest.raises(ContextLostError):
        searched(lost)
    with pytest.raises(RejectedError, match="does not compile"):
        searched(lambda choice: 1, Compiler({50: "broken"}))


def test_time_and_number_are_bounds():
    began = time.monotonic()
    _, outcome = searched(
        lambda choice: time.sleep(0.05) or 100 - choice, tuning=Tuning(seconds=0.2)
    )
    assert time.monotonic() - began < 2
    assert not outcome.is_complete
    assert 0 < outcome.tried < 19
    _, outcome = searched(lambda choice: 100, tuning=Tuning(candidates=4))
    assert outcome.tried + outcome.pruned + outcome.failed == 4
    assert not outcome.is_complete


def test_a_compiler_that_is_too_slow_does_not_hold_up_the_search():
    class Slow(Compiler):
        def submit(self, program):
            self.seconds = 0.0 if program.expression == "50" else 5.0
            return super().submit(program)

    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        _, outcome = pool.submit(searched, lambda choice: 100, Slow(), Tuning(seconds=0.3)).result()
    assert time.monotonic() - began < 3
    assert outcome.tried == 0
    assert outcome.gain == 1


def test_progress_is_told_after_each_candidate():
    told = []
    tuning = Tuning(progress=lambda *what: told.append(what))
    _, outcome = searched(lambda choice: 100 + abs(choice - 23), tuning=tuning)
    assert [number for _, number, _ in told] == list(range(1, len(told) + 1))
    assert len(told) == outcome.tried + outcome.pruned + outcome.failed
    assert told[-1] == ("numbers", len(told), outcome.gain)


def test_plans_are_tuned_inside_of_the_block_alone():
    assert wanted_tuning() is None
    with tuned_plans(Tuning()) as tuning:
        assert wanted_tuning() is tuning
        with tuned_plans(None):
            assert wanted_tuning() is tuning
    assert wanted_tuning() is None


def test_the_argument_tune_is_a_bool():
    assert tuning_for(False) is None
    assert tuning_for(True).seconds == 120
    for wrong in (1, None, "yes"):
        with pytest.raises(TypeError, match="expected a bool"):
            tuning_for(wrong)


@pytest.mark.parametrize("code", [b"", b"\x7fELF", bytes(64), b"x" * 200])
def test_code_that_is_no_cubin_tells_nothing(code):
    assert resources(code) is None


def test_a_cubin_tells_registers_and_stack():
    assert resources(cubin(77, 16)) == (77, 16)
