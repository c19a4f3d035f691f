"""The command itself: help, version, one line of error, exit statuses."""

import subprocess
import sys

import click
import numpy as np
import pytest

import batchkron
from batchkron.cli import failure, main
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.output import text
from batchkron.errors import BackendUnavailableError, ProblemFileError

COMMANDS = ["list", "make", "run", "converge", "info", "check", "validate", "warmup", "tune"]


def test_version(cli):
    assert cli("--version").stdout == f"batchkron, version {batchkron.__version__}\n"


def test_help_lists_commands_and_exit_statuses(cli):
    output = cli("--help").stdout
    assert cli().stdout == output
    for command in COMMANDS:
        assert f"\n  {command} " in output
    for code in ExitCode:
        assert f"{code.value}  {code.meaning}\n" in output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli, command):
    output = cli(command, "--help").stdout
    assert output.startswith("Usage: ")
    for line in output.splitlines():
        assert len(line) <= 80


def test_the_documentation_names_every_option_and_exit_status(pytestconfig):
    document = (pytestconfig.rootpath / "docs" / "reference" / "command-line.md").read_text()
    for name in COMMANDS:
        command = main.get_command(click.Context(click.Command("x")), name)
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else []:
                assert f"`{option}" in document, option
    for code in ExitCode:
        assert f"| {code.value} | {code.meaning}" in document


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu"], "rnu"),
        (["run"], "FILE-or-NAME"),
        (["make", "continuity-1d"], "--output"),
        (["--colour"], "--colour"),
        (["run", "continuity-1d", "--dt"], "--dt"),
        (["list", "everything"], "everything"),
    ],
)
def test_wrong_usage_is_one_line(refused, words, expected):
    assert expected in refused(*words)


def test_version_is_quick_to_say():
    """It needs neither problems nor solvers nor HDF5."""
    script = (
        "import sys\n"
        "from batchkron.cli import main\n"
        "main(['--version'], standalone_mode=False)\n"
        "heavy = {'batchkron.problems', 'batchkron.solvers', 'h5py', 'tqdm', 'matplotlib'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_reader_that_goes_away_is_no_error(start):
    process = start("list")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() in (0, 1)


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (failure.CommandError("no"), "no", ExitCode.USAGE),
        (click.UsageError("no"), "no", ExitCode.USAGE),
        (ProblemFileError("c2.h5: no"), "c2.h5: no", ExitCode.BAD_FILE),
        (BackendUnavailableError("no"), "no", ExitCode.USAGE),
        (PermissionError(13, "no", "c2.h5"), "c2.h5: no", ExitCode.BAD_FILE),
        (OSError("no"), "no", ExitCode.BAD_FILE),
        (MemoryError(), "not enough memory; take a lower level or degree", ExitCode.USAGE),
        (click.Abort(), "interrupted", ExitCode.INTERRUPTED),
        (KeyboardInterrupt(), "interrupted", ExitCode.INTERRUPTED),
    ],
)
def test_errors_in_words(error, line, code):
    assert failure.describe(error) == (line, code)


def test_defects_keep_their_traceback():
    for error in (ZeroDivisionError(), ValueError("x"), SystemExit(3)):
        assert failure.describe(error) is None


def test_usage_errors_leave_bad_files_alone():
    with pytest.raises(failure.CommandError, match="level"), failure.usage_errors():
        raise ValueError("level")
    with pytest.raises(ProblemFileError), failure.usage_errors():
        raise ProblemFileError("bad")
    with pytest.raises(TypeError), failure.usage_errors((ValueError,)):
        raise TypeError("defect")


def test_control_characters_are_escaped():
    assert text.printable("a\x1b[2J\x07\r\u202e\nπ") == "a\\x1b[2J\\x07\\r\\u202e\nπ"
    assert text.printable("\udcff") == "\\udcff"
    assert text.one_line("a\n  b\tc") == "a b c"


def test_json_has_no_nan():
    values = [text.finite(value) for value in (None, np.nan, np.inf, -np.inf, 0.5)]
    assert values == [None, None, None, None, 0.5]
