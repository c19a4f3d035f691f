"""Power of the device by the energy counter of NVML, while work runs again and again.

The counter has the energy of the whole board in mJ and moves every 20 to 100 ms. Power is its slope
between two of its moves, while the device is busy without a gap; the energy of a call is this power
times the call's time. Nothing is subtracted for what the board would take when idle.
"""

import ctypes
import time

MIN_SECONDS = 0.6  # between the first move of the counter and the last one
MAX_SECONDS = 3.0  # after which a counter that does not move is given up
_LIBRARY = "libnvidia-ml.so.1"


class EnergyError(RuntimeError):
    """The energy cannot be measured; the text says why."""


def _checked(status, what):
    if status:
        raise EnergyError(f"not measured: {what} of {_LIBRARY} returned {status}")


def energy_counter(bus):
    """What reads the joules a device has taken; ``bus``: its PCI bus id, "0000:17:00.0"."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise EnergyError(f"not measured: {error}") from None
    handle, value = ctypes.c_void_p(), ctypes.c_ulonglong()
    _checked(nvml.nvmlInit_v2(), "nvmlInit_v2")
    found = nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle))
    _checked(found, "nvmlDeviceGetHandleByPciBusId_v2")

    def joules():
        status = nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
        _checked(status, "nvmlDeviceGetTotalEnergyConsumption")
        return 1e-3 * value.value

    joules()
    return joules


def watts(work, counter, clock=time.perf_counter, least=MIN_SECONDS, most=MAX_SECONDS):
    """The power while ``work``, which takes some 10 ms and waits for the device, is repeated."""
    begun, last = clock(), counter()
    moves = []  # seconds and joules, as they were seen
    while True:
        work()
        now, value = clock(), counter()
        if value != last:
            moves.append((now, value))
            last = value
        if len(moves) > 1 and moves[-1][0] - moves[0][0] >= least:
            (began, first), (ended, end) = moves[0], moves[-1]
            return (end - first) / (ended - began)
        if now - begun > most:
            raise EnergyError(f"not measured: the energy counter moved {len(moves)} times")
