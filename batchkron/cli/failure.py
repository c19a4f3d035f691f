"""Errors as the user of the command sees them: one line and an exit status."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import click

from batchkron.cli.exit_codes import ExitCode
from batchkron.errors import BackendUnavailableError, ContextLostError, ProblemFileError

__all__ = ["CommandError", "describe", "describe_system_error", "usage_errors"]


class CommandError(click.ClickException):
    """An error that ends the command.

    Parameters
    ----------
    message : str
        What was expected, what came and what to do.
    exit_code : ExitCode
        The exit status.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = exit_code


def describe(error: BaseException) -> tuple[str, ExitCode] | None:
    """Put an exception into a line and an exit status.

    Parameters
    ----------
    error : BaseException
        What a command raised.

    Returns
    -------
    tuple of (str, ExitCode), or None
        None for what is no mistake of the user's: a defect, whose traceback is wanted.

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
        case OSError():
            return describe_system_error(error), ExitCode.BAD_FILE
        case MemoryError():
            text = f"not enough memory ({error}); take a lower level or degree"
            return text.replace(" ()", ""), ExitCode.USAGE
    return None


def describe_system_error(error: OSError) -> str:
    """Put what the system says into a line, the file first.

    Parameters
    ----------
    error : OSError

    Returns
    -------
    str
    """
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


@contextlib.contextmanager
def usage_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, TypeError),
) -> Iterator[None]:
    """Turn what the library says about values that the user chose into errors of usage.

    Parameters
    ----------
    kinds : tuple of type
        The exceptions to turn.

    Raises
    ------
    CommandError
        For these, other than a bad file, which passes.
    """
    try:
        yield
    except ProblemFileError:
        raise
    except kinds as error:
        raise CommandError(str(error)) from error
