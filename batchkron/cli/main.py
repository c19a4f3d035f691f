"""The command `batchkron` itself: its subcommands, its errors and its exit status."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

import click

import batchkron
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import describe
from batchkron.cli.output.printing import print_line, settle_streams
from batchkron.cli.output.text import one_line

__all__ = ["main"]

_COMMANDS = {
    "list": ("batchkron.cli.commands.list_and_make", "list_gallery"),
    "make": ("batchkron.cli.commands.list_and_make", "make"),
    "run": ("batchkron.cli.commands.run", "run"),
    "fit": ("batchkron.cli.commands.fit", "fit"),
    "converge": ("batchkron.cli.commands.converge", "converge"),
    "info": ("batchkron.cli.commands.info_and_check", "info"),
    "check": ("batchkron.cli.commands.info_and_check", "check"),
    "validate": ("batchkron.cli.commands.validate", "validate"),
    "warmup": ("batchkron.cli.commands.warmup", "warmup"),
    "tune": ("batchkron.cli.commands.tune", "tune"),
}

_HELP = """Solve PDEs on sparse grids by batches of small Kronecker products.

Begin with "batchkron list", or with

\b
  batchkron make continuity-2d --degree 2 --level 6 -o c2.h5
  batchkron run c2.h5 --until 0.1 --plot c2.png
"""
_EXIT_STATUSES = "\b\nExit status:\n" + "\n".join(
    f"  {code.value:>3}  {code.meaning}" for code in ExitCode
)


class Program(click.Group):
    """A group that imports a subcommand only when it is used, and prints errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help text."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and end with its exit status.

        Parameters
        ----------
        args : sequence of str, optional
            The arguments of the command line; those of this process by default.
        prog_name : str, optional
            The program's name.
        standalone_mode : bool
            If False, errors are raised and not printed, and the status is returned.
        **extra
            Further arguments of `click.Command.main`.

        Returns
        -------
        ExitCode
            Only if ``standalone_mode`` is false.
        """
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # for terminals without mathematical symbols
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                code = super().main(args, prog_name, standalone_mode=False, **extra)
        except BaseException as error:
            described = describe(error)
            if described is None:
                raise
            text, code = described
            print_line(f"batchkron: {one_line(text)}", err=True)
        settle_streams()
        sys.exit(int(code or ExitCode.DONE))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line on standard error."""
    print_line(f"batchkron: warning: {one_line(str(message))}", err=True)


@click.command(
    cls=Program,
    help=_HELP,
    invoke_without_command=True,
    epilog=_EXIT_STATUSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(batchkron.__version__, prog_name="batchkron")
@click.pass_context
def main(context: click.Context) -> None:
    """Carry out a command line."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
