"""The device: its streams, events and captured graphs, its allocations and launches."""

import ctypes

import numpy as np

from fake_cupy.kernels.table import COMPUTE, argument_bytes
from fake_cupy.memory import DEVICES, Memory

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class Stream:
    """A stream; `capturing` is the number of the graph that it captures, 0 for none."""

    def __init__(self, ptr):
        self.ptr, self.capturing = ptr, 0

    def is_capturing(self):
        return self.capturing != 0

    def synchronize(self):
        assert not self.capturing
        DEVICES[-1].finish()

    def submit(self, work):
        """Do work now, or when the device is waited for, or whenever a graph is launched."""
        if self.capturing:
            self.graph.nodes.append(work)
        elif DEVICES[-1].late is None:
            work()
        else:
            DEVICES[-1].late.append(work)

    def __enter__(self):
        DEVICES[-1].streams.append(self)

    def __exit__(self, *error):
        DEVICES[-1].streams.pop()

    def wait_event(self, event):
        DEVICES[-1].waits.append((self, event.stream))

    def begin_capture(self):
        assert not self.capturing
        self.capturing, self.graph = 1, Graph()

    def end_capture(self):
        assert self.capturing
        self.capturing = 0
        return self.graph


class Graph:
    """What a stream captures: functions, which work on it hands over instead of running them."""

    def __init__(self):
        self.nodes, self.launches, self.memory = [], 0, []

    def launch(self, stream):
        assert not stream.capturing
        self.launches += 1
        for node in self.nodes:
            stream.submit(node)


def on_stream(work):
    """Do work of arrays, or hand it over to the graph that the current stream captures."""
    streams = DEVICES[-1].streams
    if streams and streams[-1].capturing:
        streams[-1].graph.nodes.append(work)
    else:
        work()


class Event:
    """An event, which knows the stream that it was recorded on."""

    def __init__(self, disable_timing=False):
        self.stream = None

    def record(self, stream):
        assert not stream.capturing
        self.stream = stream

    def synchronize(self):
        if self.stream is not None:
            DEVICES[-1].finish()


class Device:
    """The current device and stream; what was allocated in bytes, and launched on which stream.

    Its kernels compute at once, so that an order of streams cannot be seen here. But copies from
    the host, and sums of steps, are what streams capture, and wait if ``late`` is a list.
    """

    def __init__(self):
        self.current, self.stream = 0, Stream(0)
        self.streams, self.waits, self.made = [], [], 0  # those of "with" blocks; of wait_event
        self.allocated, self.launches, self.kernels, self.known = [], [], [], {}
        self.launch, self.late = LAUNCH(self._launch), None

    def finish(self):
        """Do what waits."""
        for work in self.late or ():
            work()
        if self.late is not None:
            self.late.clear()

    def new_stream(self, non_blocking=False):
        self.made += 1
        return Stream(16 + self.made)  # 1 and 2 are default streams

    def alloc(self, size):
        self.allocated.append(size)
        memory = Memory(np.full(size + 256, 255, np.uint8))
        memory.ptr += -memory.ptr % 256
        memory.mem.size = size
        return memory

    def _launch(self, configuration, number, parameters, extra):
        try:
            kernel = self.known[self.kernels[number - 1].program]
            stream = ctypes.c_void_p.from_address(configuration + 32).value or 0
            compute = COMPUTE[type(kernel).__name__]
            current = self.streams[-1] if self.streams else self.stream
            captured = bool(self.streams) and current.capturing
            if not captured:
                self.launches.append((kernel, stream))
            if captured or getattr(kernel, "kind", "") == "step_sum":
                content = ctypes.create_string_buffer(
                    ctypes.string_at(parameters[0], argument_bytes(kernel))
                )
                current.submit(lambda: compute(kernel, ctypes.addressof(content)))
            else:
                compute(kernel, parameters[0])
        except Exception as error:  # would not leave the callback
            self.error = error
            return 999
        return 0

    def check(self, status):
        raise self.error
