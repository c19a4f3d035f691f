"""Printing of lines that does not end a run if the reader (pipe or terminal) is gone."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import click

__all__ = ["print_line", "print_nothing", "settle_streams"]


_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def print_nothing(*, unless: bool) -> Iterator[None]:
    """Let `print_line` do nothing inside of a ``with`` block, unless a condition holds."""
    token = _SILENT.set(not unless)
    try:
        yield
    finally:
        _SILENT.reset(token)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line; do nothing if its reader is gone.

    With ``err`` it goes to standard error, where any other failure to write is ignored, too.

    Raises `OSError` if standard output has a reader but cannot be written, for example on a full
    disk.
    """
    if _SILENT.get():
        return
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
