"""Makes notebooks of the tutorials: `python docs/notebooks.py FOLDER`.

The examples of a page become cells, without what they print; figures are shown. Jupytext writes the
notebook; nothing is executed.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

import jupytext
from nbformat import NotebookNode, v4

TUTORIALS = Path(__file__).parent / "tutorials"
EXAMPLES = re.compile(r"^```pycon\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


def names() -> list[str]:
    """Return the names of the tutorials."""
    return sorted(path.stem for path in TUTORIALS.glob("*.md") if path.stem != "index")


def notebook(page: str) -> NotebookNode:
    """Return a page as a notebook."""
    cells = []
    for number, part in enumerate(EXAMPLES.split(page)):
        cells += code_cells(part) if number % 2 else text_cells(part)
    if any("figure =" in cell.source for cell in cells):
        cells.insert(0, v4.new_code_cell("%matplotlib inline"))
    made = v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {
        "name": "python3", "language": "python", "display_name": "Python 3",
    }  # fmt: skip
    return made


def text_cells(text: str) -> list[NotebookNode]:
    """Return a cell of text, whose links and pictures would lead nowhere."""
    text = re.sub(r"^!\[.*\]\(.*\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text).strip()
    return [v4.new_markdown_cell(text)] if text else []


def code_cells(block: str) -> list[NotebookNode]:
    """Return the cells of a block of examples: one, or more where an error is expected."""
    cells = [v4.new_code_cell("")]
    for example in doctest.DocTestParser().get_examples(block):
        source = example.source.rstrip("\n")
        if example.exc_msg is not None:
            cells.append(v4.new_code_cell(source, metadata={"tags": ["raises-exception"]}))
            cells.append(v4.new_code_cell(""))
            continue
        if example.want and "\n" not in source and not source.startswith("print("):
            source = f"display({source.split('  #')[0]})"  # wherever it stands in the cell
        if source.startswith("figure ="):
            source += "\ndisplay(figure)"
        cells[-1].source = f"{cells[-1].source}\n{source}".strip()
    return [cell for cell in cells if cell.source]


def write(folder: Path) -> None:
    """Write all notebooks into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        page = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
        jupytext.write(notebook(page), folder / f"{name}.ipynb")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
