"""The page of the gallery has the lines that draw_gallery.py runs, and pictures that are small."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "pictures" / "gallery"
PAGE = (ROOT / "docs" / "reference" / "gallery.md").read_text()
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", PAGE, flags=re.M)[1:]}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_the_page_has_the_lines_of_each_problem(path):
    """Run docs/pictures/draw_gallery.py NAME after a change of them."""
    name = path.stem.replace("_", "-")
    title, _, lines = path.read_text().removeprefix('"""').partition('"""\n')
    section = SECTIONS[name]
    assert title in section
    assert f"```python\n{lines.strip()}\n```" in section
    assert "```text\n" in section


def test_the_page_has_every_problem_in_the_order_of_the_gallery():
    """Run docs/pictures/draw_gallery.py missing for a new problem."""
    from batchkron.problems import gallery

    assert list(SECTIONS) == list(gallery.names())


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_are_of_the_gallery_and_have_a_picture(name):
    from batchkron.problems import gallery

    assert gallery.get(name).equation in SECTIONS[name]
    (picture,) = re.findall(r"!\[.*\]\(\.\./pictures/gallery/(.*)\)", SECTIONS[name])
    assert (RECIPES / picture).exists()
    assert f"- [![](../pictures/gallery/{picture}) {name}](#{name})" in PAGE  # in its overview


def test_pictures_are_small_and_used():
    tutorials = "".join(path.read_text() for path in (ROOT / "docs" / "tutorials").glob("*.md"))
    for path in [*RECIPES.glob("*.svg"), *RECIPES.glob("*.png")]:
        assert path.stat().st_size <= 60_000
        assert f"pictures/gallery/{path.name})" in PAGE + tutorials
        if path.suffix == ".svg":
            assert "prefers-color-scheme: dark" in path.read_text()
            assert "<text" in path.read_text()
