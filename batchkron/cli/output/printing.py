"""Printing of lines that does not end a run if the reader (pipe or terminal) is gone."""

from __future__ import annotations

import errno
import os
import stat
import sys

import click

__all__ = ["print_line", "settle_streams"]


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line; do nothing if its reader is gone.

    Parameters
    ----------
    text : str
        The line.
    err : bool
        Print to standard error; any other failure to write is then ignored, too.

    Raises
    ------
    OSError
        If standard output has a reader but cannot be written, for example on a full disk.
    """
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        pass
    except (OSError, ValueError) as error:  # ValueError: the stream is closed
        if not err and not _is_terminal_gone(error):
            raise


def _is_terminal_gone(error: Exception) -> bool:
    """Whether an error of writing to standard output means that the terminal was closed."""
    if not isinstance(error, OSError) or error.errno != errno.EIO:
        return False
    return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def settle_streams() -> None:
    """Flush the output streams; discard what cannot be written.

    Otherwise Python would try to flush at exit, fail, and change the exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, stream.fileno())
            os.close(sink)
