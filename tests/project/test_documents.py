"""The examples in the README and in docs/ run, and print what they say; links lead somewhere."""

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import batchkron as bk

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *(ROOT / f / "README.md" for f in ("benchmarks", "csrc", "tests")),
]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def needs(text):
    """Marks of a document whose examples need a device, torch, GPyTorch, JAX or lineax."""
    marks = [pytest.mark.gpu] if ">>> import cupy" in text else []
    for name in ("torch", "gpytorch", "jax", "lineax"):
        if f">>> import {name}" in text:
            absent = importlib.util.find_spec(name) is None
            marks.append(pytest.mark.skipif(absent, reason=f"{name} is not installed"))
    return marks


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=needs(path.read_text())) for path in DOCUMENTS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_examples_print_what_they_say(path, tmp_path, monkeypatch):
    """All ``pycon`` blocks of one document, one after another, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = FENCE.findall(path.read_text())
    assert path.read_text().count("```pycon") == len(blocks)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, path.name, str(path), 0)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


def test_the_readme_steps_a_list_in_eight_lines():
    """The first example of the README, without the lines that look at the product."""
    lines = re.findall(
        r"^>>> (.*)$", FENCE.findall((ROOT / "README.md").read_text())[0], re.MULTILINE
    )
    last = next(k for k, line in enumerate(lines) if "evolve(" in line)
    script = [line for line in lines[: last + 1] if not re.match(r"y = |np\.allclose", line)]
    assert len(script) <= 8
    names = {}
    exec("\n".join(script), names)
    assert str(names["result"].status) == "completed"


def headings(path):
    """The names by which links refer to a page's headings, made as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in found]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def test_links_lead_somewhere():
    for path in [*DOCUMENTS, *OTHERS]:
        prose = BLOCK.sub("", path.read_text())
        for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", prose):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name} links to {target}"
            assert not heading or heading in headings(page), f"{path.name}: {target}#{heading}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy of the files without history")
def test_commits_that_are_named_exist():
    pages = [*DOCUMENTS, *OTHERS, ROOT / "benchmarks" / "README.md"]
    named = {
        commit: path.name
        for path in pages
        for commit in re.findall(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,12}\b", path.read_text())
        if not re.fullmatch(r"\d+e\d+", commit)
    }
    assert len(named) > 20
    command = ["git", "-C", str(ROOT), "cat-file", "--batch-check=%(objecttype)"]
    given = "\n".join(f"{commit}^{{commit}}" for commit in named)
    found = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    kinds = found.stdout.splitlines()
    missing = [f"{c} in {named[c]}" for c, k in zip(named, kinds, strict=True) if k != "commit"]
    assert not missing


def test_the_first_line_of_the_readme_may_be_run_again():
    """What it installs and writes is there then; the line itself is run by .ci/run."""
    line = next(one for one in (ROOT / "README.md").read_text().splitlines() if "&&" in one)
    commands = [words.split() for words in line.split("&&") if "bin/batchkron" in words]
    assert [words[1] for words in commands] == ["make", "run"]
    assert all("--force" in words for words in commands)


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "docs").glob("*/*.md")),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_the_index_of_a_folder_has_every_page(path):
    """From the links of an index the site makes its lists of pages."""
    indexes = [path.parent / "index.md", ROOT / "docs" / "index.md"]
    links = f"]({path.name})", f"]({path.parent.name}/{path.name})"
    assert any(link in index.read_text() for link, index in zip(links, indexes, strict=True)), (
        "docs/FOLDER/index.md has no link to the page"
    )


def test_the_citation_has_the_version():
    assert f"\nversion: {bk.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version {bk.__version__}, " in (ROOT / "docs" / "project" / "index.md").read_text()


def test_pictures_are_those_that_the_script_draws(tmp_path):
    folder = ROOT / "docs" / "pictures"
    copy = tmp_path / "draw.py"
    copy.write_text((folder / "draw.py").read_text())
    subprocess.run([sys.executable, str(copy)], check=True)
    drawn = {path.name: path.read_bytes() for path in tmp_path.glob("*.svg")}
    kept = [*folder.glob("sweeps-*.svg"), folder / "kronecker-sparse.svg"]
    assert drawn == {path.name: path.read_bytes() for path in kept}
    assert len(drawn) == 4


def test_the_picture_of_an_exchange_is_what_the_plan_says(tmp_path):
    folder, drawn = ROOT / "docs" / "pictures", tmp_path / "exchange.svg"
    subprocess.run([sys.executable, str(folder / "draw_exchange.py"), str(drawn)], check=True)
    assert drawn.read_text() == (folder / "exchange.svg").read_text()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.name
)
def test_pictures_are_small_readable_in_the_dark_and_used(path):
    drawn = path.read_text()
    assert len(drawn.encode()) < 20_000
    assert "prefers-color-scheme: dark" in drawn
    tags = {element.tag.split("}")[1] for element in ElementTree.fromstring(drawn).iter()}
    assert {"title", "text"} <= tags, "what it shows, and texts that can be searched"
    assert not tags & {"image", "script", "foreignObject"}
    assert any(f"pictures/{path.name})" in document.read_text() for document in DOCUMENTS)
