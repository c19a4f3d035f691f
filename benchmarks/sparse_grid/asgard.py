"""ASGarD by a small driver that is compiled against its build; what is timed, and found right."""

import ctypes
import os
import shutil
import subprocess
from ctypes import POINTER, c_char_p, c_double, c_int, c_long, c_void_p
from functools import cached_property
from pathlib import Path

import numpy as np

from batchkron.solvers.steppers.ssp_rk3 import SspRk3

DRIVER = Path(__file__).with_name("asgard_driver.cpp")
LIBRARY = "libasgard.so"
TIME = 0.1  # t at which right-hand sides are taken
CHECKED_STEPS = 3


class Asgard:
    """The build of one version, in the folder where CMake has built it."""

    def __init__(self, build):
        self.build = None if build is None else build.resolve()

    def found(self):
        """Return itself, if it can be measured, and what a file says of the peers."""
        missing = self.missing()
        if missing is None:
            return self, {"peers": {"ASGarD": self.version}, "missing_peers": {}}
        return None, {"peers": {}, "missing_peers": {"ASGarD": missing}}

    def missing(self):
        if self.build is None:
            return "no --asgard BUILD"
        if not (self.build / LIBRARY).exists():
            return f"no {LIBRARY} in {self.build}"
        try:
            self.library  # noqa: B018
        except (subprocess.CalledProcessError, OSError, KeyError) as error:
            return f"the driver does not compile: {getattr(error, 'stderr', '') or error}"[-400:]
        return None

    @cached_property
    def settings(self):
        found = {}
        for line in (self.build / "CMakeCache.txt").read_text().splitlines():
            key, separator, value = line.partition("=")
            if separator and not line.startswith(("#", "/")):
                found[key.partition(":")[0]] = value
        return found

    @property
    def version(self):
        settings = self.settings
        flags = " ".join((settings["CMAKE_CXX_FLAGS"], settings["CMAKE_CXX_FLAGS_RELEASE"]))
        openmp = settings.get("ASGARD_USE_OPENMP", "OFF")
        return f"{settings['CMAKE_PROJECT_VERSION']} ({flags.strip()}, OpenMP {openmp})"

    @cached_property
    def library(self):
        target = self.build / "batchkron_driver.so"
        newest = max(DRIVER.stat().st_mtime, (self.build / LIBRARY).stat().st_mtime)
        if not target.exists() or target.stat().st_mtime < newest:
            self._compile(target)
        library = ctypes.CDLL(str(target))
        doubles = POINTER(c_double)
        library.make_problem.restype = c_void_p
        library.make_problem.argtypes = [
            *([c_int] * 3), *([doubles] * 3), POINTER(c_int), c_double, c_double
        ]  # fmt: skip
        for name, numbers in (("diffusion", 1), ("two_stream", 1), ("relaxation", 2)):
            make = getattr(library, f"make_{name}")
            make.restype, make.argtypes = c_void_p, [c_char_p, *[c_double] * numbers]
        library.unknowns.restype = c_long
        for name in ("argument", "result", "state"):
            getattr(library, name).restype = doubles
        for name in ("free_problem", "unknowns", "argument", "result", "state"):
            getattr(library, name).argtypes = [c_void_p]
        library.right_hand_side.argtypes = [c_void_p, c_double]
        library.advance.argtypes = [c_void_p, c_long]
        return library

    def _compile(self, target):
        settings = self.settings
        compiler = settings.get("CMAKE_CXX_COMPILER") or shutil.which("g++") or "c++"
        flags = f"{settings['CMAKE_CXX_FLAGS']} {settings['CMAKE_CXX_FLAGS_RELEASE']}".split()
        source = Path(settings["CMAKE_HOME_DIRECTORY"])
        command = [compiler, "-std=c++17", *flags, "-fopenmp", "-fPIC", "-shared", str(DRIVER)]
        command += [f"-I{source / 'src'}", f"-I{self.build}", f"-L{self.build}", "-lasgard"]
        command += [f"-Wl,-rpath,{self.build}", "-o", f"{target}.partly"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        os.replace(f"{target}.partly", target)

    def problem(self, case, dt):
        box, dims = case.box, len(case.box.numbers)

        def doubles(values):
            return (c_double * dims)(*values)

        handle = self.library.make_problem(
            *(dims, case.level, case.degree),
            *map(doubles, (box.half_widths, box.velocities, box.numbers)),
            *((c_int * dims)(*map(int, box.sines)), box.omega, dt),
        )
        return AsgardProblem(self.library, handle, case.label)

    def example(self, name, words, *numbers):
        """A problem of the driver, by ASGarD's options and its numbers.

        "diffusion": the heat equation on the unit square by Crank-Nicolson, with its step;
        "two_stream" with its step; "relaxation" with its step and rate.
        """
        handle = getattr(self.library, f"make_{name}")(words.encode(), *numbers)
        return AsgardProblem(self.library, handle, f"{name} {words}")


class AsgardProblem:
    """One problem of ASGarD's."""

    def __init__(self, library, handle, label):
        if not handle:
            raise ValueError(f"ASGarD refuses {label}")
        self._library, self._handle = library, handle
        self.unknowns = int(library.unknowns(handle))

    def close(self):
        self._library.free_problem(self._handle)

    def _vector(self, name):
        pointer = getattr(self._library, name)(self._handle)
        return np.ctypeslib.as_array(pointer, (self.unknowns,))

    @property
    def argument(self):
        """What the right-hand side is taken of; may be written to."""
        return self._vector("argument")

    @property
    def result(self):
        return self._vector("result")

    @property
    def state(self):
        return self._vector("state").copy()

    def right_hand_side(self, t):
        self._library.right_hand_side(self._handle, t)

    def advance(self, steps):
        self._library.advance(self._handle, steps)


def ours(problem):
    u = np.array(problem.exact_coefficients(TIME))
    out, state = np.empty_like(u), u.copy()
    stepper = SspRk3(problem, problem.stepper.dt)
    after = TIME + problem.stepper.dt
    return {
        "right-hand side": lambda: problem.rhs(TIME, u, out),
        "step": lambda: stepper.step(state, TIME, after),
    }


def asgards(problem):
    return {
        "right-hand side": lambda: problem.right_hand_side(TIME),
        "step": lambda: problem.advance(1),
    }


def disagreement(case, theirs):
    """Return what is not the same problem, or None: bases are orthonormal, norms are the same."""
    problem = case.problem
    if theirs.unknowns != problem.unknowns:
        return f"ASGarD has {theirs.unknowns} unknowns, batchkron {problem.unknowns}"
    dt = problem.stepper.dt
    stepper, state = SspRk3(problem, dt), np.array(problem.initial)
    for step in range(CHECKED_STEPS):
        stepper.step(state, step * dt, (step + 1) * dt)
    theirs.advance(CHECKED_STEPS)
    own, other = np.linalg.norm(state), np.linalg.norm(theirs.state)
    # the two methods of order 3 differ by their errors in time
    if not np.isclose(own, other, rtol=1e-4):
        return f"after {CHECKED_STEPS} steps the norm is {other:.8e}, batchkron's {own:.8e}"
    theirs.argument[...] = theirs.state
    theirs.right_hand_side(TIME)
    slope = np.empty_like(state)
    problem.rhs(TIME, state, slope)
    own, other = np.linalg.norm(slope), np.linalg.norm(theirs.result)
    if not np.isclose(own, other, rtol=1e-4):
        return f"the right-hand side's norm is {other:.8e}, batchkron's {own:.8e}"
    return None
