"""Draws the gallery, docs/reference/gallery.md: `python docs/pictures/draw_gallery.py [NAME ...]`.

For every problem of batchkron's gallery it runs the lines in gallery/NAME.py, checks that they
state that problem, and puts these lines, what they print and their `figure` on the page. A problem
without such a file gets lines that make and run it. With names only these problems are run, and the
rest of the page stays; "missing" stands for all that the page does not have, the name of a tutorial
for its last picture. All of it takes some minutes.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from PIL import Image

from batchkron.problems import Problem, gallery

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
RECIPES = HERE / "gallery"
TUTORIALS = HERE.parent / "tutorials"
PAGE = HERE.parent / "reference" / "gallery.md"
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }"
MAX_BYTES = 60_000  # largest picture

HEAD = """# Gallery

Each section has an equation, the lines that solve it, what they print, with the error or the number
that theory or publications give, and the picture that they draw. The problems are in
`batchkron.problems.gallery`: `make("landau-1x1v", k=0.4)` in Python, and on the command line
`batchkron run landau-1x1v:k=0.4`. The [quickstart](../tutorials/quickstart.md),
[Solve kinetic equations](../guides/kinetic.md) and
[functions of the solution](../guides/nonlinear.md) explain the words.

This page is made by `python docs/pictures/draw_gallery.py`, which runs all of it, and compares each
problem with that of its name in the gallery.
"""

WITHOUT_RECIPE = '''"""{title}"""

from batchkron.problems import make
from batchkron.solvers import evolve

problem = make("{name}")
result = evolve(problem, until={until:g})
print(f"{{problem.unknowns}} unknowns, {{result.steps}} steps of {{result.method}}")
{number}figure = result.plot({show})
'''
ERROR = """print(f"relative L2 error {problem.relative_error(result.u, result.t):.1e}")
"""


def path_of(name: str) -> Path:
    """Return the file with the lines of a problem."""
    return RECIPES / f"{name.replace('-', '_')}.py"


def recipe_of(name: str) -> str:
    """Return the lines of a problem."""
    if path_of(name).exists():
        return path_of(name).read_text(encoding="utf-8")
    entry = gallery.get(name)
    known = entry.solution.removeprefix("not known; ")
    return WITHOUT_RECIPE.format(
        title=f"{'Solution' if entry.is_known else 'Known'}: {known}.",
        name=name,
        until=entry.until,
        number=ERROR if entry.is_known else "",
        show="" if len(entry.pde.axes) == 1 else 'show="solution"',
    )


def run(name: str, code: str) -> tuple[str, dict[str, Any]]:
    """Run the lines of a problem; return what they print, and their variables."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        path = Path(folder) / "recipe.py"
        path.write_text(code, encoding="utf-8")
        variables = runpy.run_path(str(path))
    assert str(variables["result"].status) == "completed", variables["result"].message
    check(name, variables["problem"], variables)
    return printed.getvalue(), variables


def check(name: str, problem: Problem, variables: dict[str, Any]) -> None:
    """Compare a problem with that of the gallery: its state at t0, and the rate of change there."""
    entry = gallery.get(name)
    parameters = {key: variables[key] for key in entry.parameters if key in variables}
    known = entry.make(None, problem.degree, problem.grid, **parameters)
    np.testing.assert_allclose(problem.initial, known.initial, atol=1e-12)
    rates = [np.empty_like(problem.initial) for _ in range(2)]
    for own, rate in zip((problem, known), rates, strict=True):
        own.rhs(own.t0, problem.initial, rate)
    np.testing.assert_allclose(*rates, atol=1e-11 * float(np.abs(rates[1]).max()))


def save(name: str, figure: Figure) -> str:
    """Write a figure as SVG if it has curves only, else as PNG; return the file's name."""
    if any(axes.get_images() for axes in figure.axes):
        path = RECIPES / f"{name}.png"
        for resolution in (120, 100, 80, 64):
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=resolution)
            picture = Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE)
            picture.save(path, optimize=True)
            if path.stat().st_size <= MAX_BYTES:
                break
    else:
        path = RECIPES / f"{name}.svg"
        path.write_text(as_svg(name, figure), encoding="utf-8")
    assert path.stat().st_size <= MAX_BYTES, f"{path} has {path.stat().st_size} bytes"
    return path.name


def as_svg(name: str, figure: Figure) -> str:
    """Return a figure as SVG with texts that can be searched, turned where the page is dark."""
    content = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": True}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    drawn = content.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    end = drawn.index(">") + 1
    title = f"\n <title>{name}: what its lines draw</title>\n <style>{DARK}</style>"
    drawn = drawn[:end] + title + drawn[end:]
    short = re.sub(r'="[^"]*"', lambda value: rounded(value[0]), drawn)  # coordinates, no texts
    return "\n".join(line.rstrip() for line in short.splitlines()) + "\n"


def rounded(text: str) -> str:
    """Return a text with its numbers rounded to two digits after the point."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text)


def section(name: str) -> str:
    """Return the section of a problem, after running its lines."""
    code = recipe_of(name)
    printed, variables = run(name, code)
    picture = save(name, variables["figure"])
    title, _, lines = code.removeprefix('"""').partition('"""\n')
    entry = gallery.get(name)
    return (
        f"## {name}\n\n{title}\n\n    {entry.equation}\n\n```python\n{lines.strip()}\n```\n\n"
        f"```text\n{printed.strip()}\n```\n\n![{name}](../pictures/gallery/{picture})\n"
    )


def draw_tutorial(path: Path) -> None:
    """Run the examples of a tutorial and save the last `figure` that they make, if any."""
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, path.stem, None, 0)
    if "figure =" not in text:
        return
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        assert runner.run(examples, clear_globs=False).failed == 0
    save(path.stem, examples.globs["figure"])


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page by their names."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return {part.split("\n", 1)[0].removeprefix("## "): part for part in parts[1:]}


def overview(sections: list[str]) -> str:
    """Return a list of all pictures with links to their sections."""
    lines = []
    for part in sections:
        name = part.split("\n", 1)[0].removeprefix("## ")
        picture = re.findall(r"^!\[.*\]\((.*)\)$", part, re.MULTILINE)[-1]
        lines.append(f"- [![]({picture}) {name}](#{name})")
    return "\n".join(lines) + "\n"


def main(wanted: list[str]) -> None:
    """Write the page and its pictures."""
    kept = sections_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() and wanted else {}
    if "missing" in wanted:
        wanted = [*wanted, *(name for name in gallery.names() if name not in kept)]
    parts = []
    for name in gallery.names():
        if wanted and name not in wanted and name in kept:
            parts.append(kept[name].rstrip() + "\n")
            continue
        print(name, flush=True)
        parts.append(section(name))
    PAGE.write_text("\n".join([HEAD, overview(parts), *parts]), encoding="utf-8")
    for path in sorted(TUTORIALS.glob("*.md")):
        if not wanted or path.stem in wanted:
            draw_tutorial(path)


if __name__ == "__main__":
    main(sys.argv[1:])
