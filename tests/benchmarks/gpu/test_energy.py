"""The energy of calls without a device: counters that move now and then, and NVML's answers."""

import ctypes
import itertools
from types import SimpleNamespace

import pytest
import source_benchmarks


def core_energy():
    return source_benchmarks.module("core.energy")


def gpu(name):
    return source_benchmarks.module(f"gpu.{name}")


class Board:
    """A device that takes a constant power, and a counter that moves every 0.1 s."""

    def __init__(self, power, period=0.1):
        self.now, self.power, self.period = 0.0, power, period

    def work(self):
        self.now += 0.013

    def clock(self):
        return self.now

    def joules(self):
        return 5e6 + self.power * self.period * (self.now // self.period)


@pytest.mark.parametrize("power", [80.0, 700.0])
@pytest.mark.parametrize("start", [0.0, 0.04, 0.099])
def test_power_is_the_slope_between_moves_of_the_counter(power, start):
    board = Board(power)
    board.now = start
    found = core_energy().watts(board.work, board.joules, board.clock)
    # a move is seen up to one call late, at either end
    assert found == pytest.approx(power, rel=0.013 / 0.6)
    assert board.now - start < 0.9


def test_a_counter_that_stands_still_is_said():
    board = Board(100.0, period=1e9)
    with pytest.raises(core_energy().EnergyError, match="moved 0 times"):
        core_energy().watts(board.work, board.joules, board.clock)
    assert board.now == pytest.approx(3, abs=0.05)


def library(status=0):
    """What ctypes loads: handle 11, and 2 J more with each question."""
    answers = itertools.count(2000, 2000)

    def handle_by_bus(bus, handle):
        assert bus == b"0000:17:00.0"
        handle._obj.value = 11
        return 0

    def energy(handle, value):
        assert handle.value == 11
        value._obj.value = next(answers)
        return status

    return SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByPciBusId_v2=handle_by_bus,
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )


def test_the_library_of_nvml_is_asked(monkeypatch):
    energy = core_energy()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library())
    counter = energy.energy_counter("0000:17:00.0")
    assert (counter(), counter()) == (4.0, 6.0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library(3))
    with pytest.raises(energy.EnergyError, match=r"TotalEnergyConsumption .* returned 3"):
        energy.energy_counter("0000:17:00.0")

    def absent(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(energy.EnergyError, match="cannot open"):
        energy.energy_counter("0000:17:00.0")


def test_energies_are_printed_beside_times():
    report = gpu("report")
    one = report.Cell("kron", "1: 2^3", "float32", {"microseconds": 10.0})
    one.peers = {"torch": {"microseconds": 20.0, "joules": 0.01}, "cuBLAS": {"reason": "absent"}}
    assert "ours joules" not in report.line(one)
    one.ours = {"microseconds": 10.0, "watts": 512.3, "joules": 0.005123}
    assert ", ours joules 0.00512, torch joules 0.01, " in report.line(one)
    assert one.record()["ours"]["joules"] == 0.005123
    assert gpu("options").read_options(["--energy", "--part", "kron"]).energy
