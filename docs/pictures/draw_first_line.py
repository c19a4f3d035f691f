"""Draws the picture that the README's first line makes: `python docs/pictures/draw_first_line.py`.

It runs the commands of that line with the batchkron that is installed, and keeps what they draw.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from pathlib import Path

from PIL import Image

from batchkron.cli import main

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
WIDTH = 720  # pixels


def commands() -> list[list[str]]:
    """Return the arguments of the commands of the first line, and of the file they draw."""
    line = next(one for one in README.read_text(encoding="utf-8").splitlines() if "&&" in one)
    return [shlex.split(one) for one in re.findall(r"bin/batchkron ([^&]*)", line)]


def draw() -> None:
    """Run the commands, and write their picture beside this file."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for arguments in commands():
            main(arguments, standalone_mode=False)
        drawn = Image.open(arguments[arguments.index("--plot") + 1]).convert("RGB")
    height = round(drawn.height * WIDTH / drawn.width)
    small = drawn.resize((WIDTH, height), Image.Resampling.LANCZOS)
    small.quantize(64, dither=Image.Dither.NONE).save(HERE / "first-line.png", optimize=True)


if __name__ == "__main__":
    draw()
