"""The command `batchkron` itself: its subcommands, its errors and its exit status."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

import batchkron
from batchkron.cli.arguments.similar_names import did_you_mean
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import describe
from batchkron.cli.output.printing import print_line, settle_streams
from batchkron.cli.output.text import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["main"]

# The module of each command, and the first sentence of its help text: to show the list of commands
# none of them is imported.
_COMMANDS = {
    "list": ("list_and_make", "List the problems of the gallery, one per line."),
    "make": ("list_and_make", "Write a problem of the gallery to a file."),
    "run": ("run", "Solve a problem in time: a file, or a name of the gallery with make's flags."),
    "fit": (
        "fit",
        "Fit the rate and the frequency with which a recorded quantity grows or decays.",
    ),
    "converge": (
        "converge",
        "Show how the error of a problem of the gallery falls with the level.",
    ),
    "info": (
        "info_and_check",
        "Describe a problem, result or checkpoint file, or a problem of the gallery.",
    ),
    "check": ("info_and_check", "Verify a file from an untrusted source."),
    "validate": ("validate", "Compare a problem's operator with dense Kronecker products."),
    "warmup": ("warmup", "Compile the kernels that runs of a problem on a device need."),
    "tune": ("tune", "Find the fastest kernels for a device."),
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
        module = importlib.import_module(f"batchkron.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, {"list": "list_gallery"}.get(cmd_name, cmd_name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the words begin with; fail with similar names for others."""
        word = args[0]
        if word not in _COMMANDS and not word.startswith("-"):
            hint = did_you_mean(word, _COMMANDS) or f" Expected one of {', '.join(_COMMANDS)}."
            ctx.fail(f"there is no command {word!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        width = formatter.width - 6 - max(map(len, _COMMANDS))
        rows = [
            (name, click.Command(name, help=text).get_short_help_str(width))
            for name, (_, text) in _COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, or options, that begin as the word does."""
        from click.shell_completion import CompletionItem

        named = [
            (name, text) for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        found = [CompletionItem(name, help=text) for name, text in named]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and end with its exit status.

        ``args``: the arguments of the command line; those of this process by default.
        ``prog_name``: the program's name.
        ``standalone_mode``: if False, errors are raised and not printed, and the status is
          returned.
        ``**extra``: further arguments of `click.Command.main`.

        Result: only if ``standalone_mode`` is false.
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
