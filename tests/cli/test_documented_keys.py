"""The reference of the command names the keys that it prints, and all preconditioners."""

import json
import re

import pytest

from batchkron.solvers.preconditioners.choice import _NAMES


@pytest.fixture
def page(pytestconfig):
    return (pytestconfig.rootpath / "docs" / "reference" / "command-line.md").read_text()


@pytest.fixture
def documented(page):
    """The keys that the table gives each command."""
    rows = re.findall(r"^\| `(list|make|check|validate|fit|converge)` \| (.*`.*) \|$", page, re.M)
    return {name: set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", text))) for name, text in rows}


def keys(printed):
    """All keys of an object, and of the objects in its lists."""
    found = json.loads(printed)
    inner = [one for value in found.values() if isinstance(value, list) for one in value]
    return {*found, *(key for one in inner if isinstance(one, dict) for key in one)}


def test_all_keys_are_documented(cli, documented):
    wave = ("run", "landau-1x1v", "--level", "1,3", "--grid", "full", "--until", "2")
    cli(*wave, "--record", "field", "--quiet", "-o", "wave.h5")
    for words in (
        ("list",),
        ("make", "continuity-1d", "--level", "3", "-o", "c1.h5"),
        ("check", "c1.h5"),
        ("validate", "c1.h5"),
        ("fit", "wave.h5", "--model", "exponential"),
        ("converge", "continuity-1d", "--levels", "2:3", "--until", "0.02"),
    ):
        assert keys(cli(*words, "--json").stdout) == documented[words[0]], words[0]


def test_all_preconditioners_are_documented(page):
    (row,) = re.findall(r"^\| `--preconditioner` \| (.*)$", page, re.M)
    assert set(_NAMES) <= set(re.findall(r"`([\w-]+)`", row))
