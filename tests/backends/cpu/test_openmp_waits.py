"""Idle threads of the core leave their processors to others soon."""

import os
import subprocess
import sys

import pytest

SHOW = "import os, batchkron; print(os.environ.get('GOMP_SPINCOUNT'))"


def settings(**environment):
    """What the OpenMP library says it uses, and what the environment has afterwards."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP_", "OMP_"))}
    run = subprocess.run(
        [sys.executable, "-c", SHOW],
        env=kept | {"OMP_DISPLAY_ENV": "verbose"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_SPINCOUNT" not in run.stderr:
        pytest.skip("the OpenMP library is not libgomp")
    (line,) = [line for line in run.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    return int(line.split("'")[1]), run.stdout.strip()


def test_threads_wait_briefly():
    assert settings() == settings(OMP_WAIT_POLICY="") == (3000, "None")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"GOMP_SPINCOUNT": "12345"}, (12345, "12345")),
        ({"OMP_WAIT_POLICY": "passive"}, (0, "None")),
    ],
)
def test_what_the_user_says_counts(environment, expected):
    assert settings(**environment) == expected
