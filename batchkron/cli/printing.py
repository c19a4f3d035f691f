"""Lines for a user who may have stopped reading, which is no reason to lose a run."""

from __future__ import annotations

import os
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
    except (OSError, ValueError):  # ValueError: the stream is closed
        if not err:
            raise


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
