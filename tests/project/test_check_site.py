"""The check of the built site finds dead links, files of other hosts and paths of the machine."""

import runpy
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "docs" / "check_site.py"
SOUND = (
    '<a href="other.html#part">, <a href="#here" id="here">, <a href="https://example.org/x">'
    '<script src="_static/own.js?v=1"></script><a href="notes%20a.ipynb">'
)


@pytest.fixture
def faults(tmp_path):
    """Returns what is wrong with a site of two pages, of which the first has the given text."""
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "own.js").write_text("")
    (tmp_path / "notes a.ipynb").write_text("{}")
    (tmp_path / "other.html").write_text('<h1 id="part">')

    def check(text):
        (tmp_path / "index.html").write_text(text)
        return list(runpy.run_path(str(CHECK))["faults"](tmp_path))

    return check


def test_a_sound_site_has_no_faults(faults):
    assert faults(SOUND) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="none.html">', "links to none.html, which does not exist"),
        ('<a href="other.html#none">', "links to other.html#none, which has no such part"),
        ('<img src="none.png">', "loads none.png, which does not exist"),
        ('<script src="https://example.org/x.js">', "loads https://example.org/x.js"),
        ('<link href="//example.org/x.css">', "loads //example.org/x.css"),
        (f"<pre>{CHECK.parents[1]}/x</pre>", f"has the path {CHECK.parents[1]}"),
    ],
)
def test_faults_are_found(faults, text, said):
    assert faults(SOUND + text) == [f"index.html {said}"]
