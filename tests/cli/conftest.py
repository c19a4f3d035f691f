"""What the tests of the command share: an empty folder, and commands run inside it."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from batchkron.cli import main
from batchkron.problems import make, save_problem


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder that the commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli():
    """Runs ``batchkron WORDS`` in this process; checks the exit status and returns the result."""

    def run(*words, expect=0):
        result = CliRunner().invoke(main, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == expect, result.output
        return result

    return run


@pytest.fixture
def refused(cli, folder):
    """Runs a command that is refused: one line of error, and nothing written or changed."""

    def run(*words, expect=2):
        before = contents(folder)
        result = cli(*words, expect=expect)
        assert result.stdout == ""
        assert result.stderr.startswith("batchkron: ")
        assert result.stderr.count("\n") == 1
        assert result.stderr.endswith("\n")
        assert contents(folder) == before
        return result.stderr

    return run


@pytest.fixture
def problem():
    """A tiny problem with an exact solution."""
    return make("continuity-2d", level=3, degree=1)


@pytest.fixture
def problem_file(folder, problem):
    """The file c2.h5."""
    save_problem(folder / "c2.h5", problem)
    return folder / "c2.h5"


@pytest.fixture
def start(folder):
    """Starts ``batchkron WORDS`` as a process group of its own; it ends with the test."""
    processes = []

    def run(*words, environment=(), **streams):
        process = subprocess.Popen(
            [sys.executable, "-m", "batchkron.cli", *map(str, words)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **dict(environment)},
            start_new_session=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **streams},
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def contents(folder):
    """The files in a folder with what they hold."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """The folder of compiled kernels, in an empty cache of this test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BATCHKRON_CACHE_DIR", str(folder))
    return folder / "kernels"
