"""What commands have in common: their usual options."""

import argparse
from pathlib import Path


def counts(text):
    """Return the numbers of a text such as "1,2"."""
    return [int(word) for word in text.split(",")]


USUAL = {
    "asgard": {"type": Path, "metavar": "BUILD", "help": "a build of ASGarD 0.9.0"},
    "device": {"choices": ("cpu", "cuda"), "default": "cpu", "help": "where it is measured"},
    "json": {"type": Path, "metavar": "PATH", "help": "where all figures are written"},
    "plot": {"type": Path, "metavar": "PATH", "help": "picture to draw"},
    "quick": {"action": "store_true", "help": "small cases, to try it"},
    "rounds": {"type": int, "help": "turns of each contender"},
    "seconds": {"type": float, "help": "no cell begins after these"},
    "seed": {"type": int, "default": 1},
    "threads": {"type": counts, "default": [1], "help": "numbers of threads, such as 1,2"},
    "turn": {"type": float, "help": "seconds of a contender's turn"},
}


def parser_of(text, *usual, **defaults):
    """A parser with options of `USUAL`; ``text``: the module's docstring."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    for name in usual:
        parser.add_argument(f"--{name}", **USUAL[name])
    parser.set_defaults(**defaults)
    return parser
