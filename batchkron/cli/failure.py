"""Errors of the command: exceptions as one line of text and an exit status."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import click

from batchkron.cli.exit_codes import ExitCode
from batchkron.errors import (
    BackendUnavailableError,
    ContextLostError,
    NotPhysicalError,
    ProblemFileError,
)

__all__ = ["CommandError", "describe", "describe_system_error", "usage_errors"]


class CommandError(click.ClickException):
    """An error that ends the command.

    ``message``: the error text: what was expected, what was given, and what to do.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = exit_code


def describe(error: BaseException) -> tuple[str, ExitCode] | None:
    """Return an exception's line of text and exit status.

    Parameters
    ----------
    error : BaseException
        The exception that a command raised.

    Returns
    -------
    tuple of (str, ExitCode), or None
        None if the exception is a defect of the program, so that its traceback should be shown.

    Examples
    --------
    >>> text, code = describe(FileNotFoundError(2, "No such file or directory", "c2.h5"))
    >>> print(text, int(code))
    c2.h5: No such file or directory 3
    """
    match error:
        case CommandError():
            return error.message, error.code
        case click.ClickException():
            return error.format_message(), ExitCode.USAGE
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", ExitCode.INTERRUPTED
        case ProblemFileError():
            return str(error), ExitCode.BAD_FILE
        case BackendUnavailableError():
            return str(error), ExitCode.USAGE
        case ContextLostError():
            return str(error), ExitCode.DEVICE_FAILED
        case NotPhysicalError():
            return str(error), ExitCode.NOT_PHYSICAL
        case OSError():
            return describe_system_error(error), ExitCode.BAD_FILE
        case MemoryError():
            text = f"not enough memory ({error}); take a lower level or degree"
            return text.replace(" ()", ""), ExitCode.USAGE
    return None


def describe_system_error(error: OSError) -> str:
    """Return an error of the system as one line, which begins with the file's name."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


@contextlib.contextmanager
def usage_errors(kinds: tuple[type[Exception], ...] = (ValueError, TypeError)) -> Iterator[None]:
    """Turn exceptions about values that the user chose into usage errors of the command.

    ``kinds``: the types of these exceptions.

    Raises `CommandError` in place of such an exception. A ProblemFileError passes unchanged.
    """
    try:
        yield
    except ProblemFileError:
        raise
    except kinds as error:
        raise CommandError(str(error)) from error
