"""`batchkron warmup`: what it asks the cache of kernels for, and how it refuses.

No device is needed: problems stay on the CPU, and their products ask for made-up kernels.
"""

import os
import sys

import pytest

from batchkron.backends import backend
from batchkron.backends.cuda.runtime import kernel_cache
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel, cached_kernel
from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.cli.running import warm_step
from batchkron.problems import Problem, make, save_problem
from batchkron.problems.semidiscrete.system import System
from batchkron.solvers import Adapt, evolve

INSTALL = "pip install 'batchkron[cuda13]'"


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def no_device(monkeypatch):
    """Problems stay on the CPU; a product needs one made-up kernel, operator_at another."""
    read, accumulate, operator_at = ProblemArgument.read, System._accumulate, Problem.operator_at

    def ask(key):
        cached_kernel(key, lambda: CompiledKernel(key, b"code"))

    def asking(self, *arguments):
        ask("product")
        return accumulate(self, *arguments)

    def asking_too(self, t):
        ask("operator")
        return operator_at(self, t)

    monkeypatch.setattr(ProblemArgument, "read", lambda self, method, device: read(self, method))
    monkeypatch.setattr(System, "_accumulate", asking)
    monkeypatch.setattr(Problem, "split_rhs", lambda self: None)  # steps take whole products
    monkeypatch.setattr(Problem, "operator_at", asking_too)


def rows(output):
    return dict(line.split("  ", 1) for line in output.splitlines())


def test_kernels_are_compiled_once(cli, folder, problem_file, no_device, cache):
    before = problem_file.read_bytes()
    shown = {key: text.strip() for key, text in rows(cli("warmup", "c2.h5").stdout).items()}
    assert shown["compiled"] == "1 kernel"
    assert shown["in the cache"] == "0 kernels already"
    assert shown["cache"] == str(cache)
    again = cli("warmup", "c2.h5").stdout
    assert "0 kernels\n" in again
    assert "1 kernel already" in again
    assert [path.name for path in folder.iterdir()] == ["c2.h5"]
    assert problem_file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        (["continuity-1d"], 1),
        (["continuity-2d", "--level", "2", "--degree", "1", "--stepper", "crank-nicolson"], 2),
        (["diffusion-1d"], 2),
        (["diffusion-1d", "--stepper", "rk4", "--device", "cuda"], 1),
    ],
)
def test_the_stepper_decides_what_is_needed(cli, no_device, words, compiled):
    kernels = "1 kernel" if compiled == 1 else "2 kernels"
    assert f"compiled      {kernels}\n" in cli("warmup", *words).stdout


@pytest.mark.parametrize("stepper", ["backward-euler", "esdirk3", "imex-euler", "ark2"])
@pytest.mark.parametrize("name", ["landau-1x1v", "relaxation-1x1v", "bgk-1x1v"])
def test_operators_that_depend_on_the_state(cli, no_device, name, stepper):
    """The step takes the operator of the initial state."""
    words = ["--level", "2", "--degree", "2", "--stepper", stepper]
    assert rows(cli("warmup", name, *words).stdout)["stepper"].strip() == stepper


def test_a_rule_of_adaptation_does_not_change_the_grid(cli, folder, no_device, monkeypatch):
    """Each command takes its step on the file's grid, with which the kernels are."""
    grids = []

    def noted(problem, **options):
        result = evolve(problem, **options)
        grids.append((problem.adapt is not None, result.u.size))
        return result

    monkeypatch.setattr(warm_step, "evolve", noted)
    problem = make("continuity-2d", 3, 1).with_adapt(Adapt(1e-9, every=1, max_level=6))
    save_problem(folder / "adaptive.h5", problem)
    moved = evolve(problem, until=1e-3, method="rk4", dt=1e-3)
    assert moved.u.size > problem.unknowns  # the rule would add cells in this step
    cli("warmup", "adaptive.h5", "--stepper", "rk4")
    monkeypatch.setattr("batchkron.cli.commands.tune.backend_on", lambda _: backend())
    cli("tune", "adaptive.h5", "--stepper", "rk4")
    assert grids == [(True, problem.unknowns)] * 2


@pytest.mark.parametrize(
    ("words", "expected", "status"),
    [
        (["c9.h5"], "neither a file nor a name", 2),
        (["c2.h5", "--degree", "1"], "--degree is for names of the gallery", 2),
        (["c2.h5", "--device", "cpu"], "'cpu' is not 'cuda'", 2),
        (["c2.h5", "--stepper", "rk5"], "--stepper", 2),
        (["bad.h5"], "bad.h5", 3),
    ],
)
def test_refusals(refused, problem_file, folder, no_device, words, expected, status):
    (folder / "bad.h5").write_bytes(b"no problem")
    assert expected in refused("warmup", *words, expect=status)


@pytest.mark.parametrize("word", ["c2.h5", "continuity-1d"])
def test_without_cupy_it_says_what_to_install(refused, problem_file, no_cupy, word):
    assert INSTALL in refused("warmup", word)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_cache_of_others_is_refused(refused, problem_file, no_device, cache):
    cache.mkdir(mode=0o777)
    os.chmod(cache, 0o777)
    assert "is not private to this user" in refused("warmup", "c2.h5", expect=3)


def test_a_kernel_that_could_not_be_kept_is_reported(
    refused, problem_file, no_device, cache, monkeypatch
):
    def full(path, kernel):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_cache, "_write", full)
    text = refused("warmup", "c2.h5", expect=3)
    assert f"1 kernel could not be kept in {cache}" in text
