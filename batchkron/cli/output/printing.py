"""Lines for a user who may have stopped reading, which is no reason to lose a run."""

from __future__ import annotations

import errno
import os
import stat
import sys

import click

__all__ = ["print_line", "settle_streams"]


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line, or nothing where its reader has gone.

    Parameters
    ----------
    text : str
        The line.
    err : bool
        Print it on standard error, where any other failure to write is passed over as well.

    Raises
    ------
    OSError
        If standard output cannot be written though it has a reader: a full disk.
    """
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        pass
    except (OSError, ValueError) as error:  # ValueError: the stream is closed
        if not err and not _is_terminal_gone(error):
            raise


def _is_terminal_gone(error: Exception) -> bool:
    """Whether an error of writing standard output is that of a terminal that was closed."""
    if not isinstance(error, OSError) or error.errno != errno.EIO:
        return False
    return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def settle_streams() -> None:
    """Drop what can no longer be written, which would change the exit status at the very end."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, stream.fileno())
            os.close(sink)
