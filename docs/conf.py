"""The site of these pages: `sphinx-build -W docs docs/_build`.

The pages are Markdown that can be read as it is, in a repository too. What Sphinx needs beside it
is made here: the order of the pages, from the lists of the index pages; addresses of files outside
of docs/; links of names in `code` to their reference.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.autodoc.mock import _MockObject, mock
from sphinx.ext.autosummary import import_by_name
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import stringify_signature

import batchkron

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import notebooks  # noqa: E402

ROOT = DOCS.parent
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = re.findall(  # modules and single names with a page in the reference
    r"^   (batchkron[\w.]*)$", (DOCS / "reference/python-api.md").read_text("utf-8"), re.MULTILINE
)

project = "batchkron"
release = version = batchkron.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
]
exclude_patterns = ["README.md", "_build", "_templates", "pictures"]
templates_path = ["_templates"]
default_role = "py:obj"  # `name` in a docstring is a link
highlight_language = "none"  # formulas and commands; examples name their language
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "batchkron"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_sidebars = {"index": [], "reference/gallery": []}  # pages without others beside them
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
}

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autosummary_context = {
    "elsewhere": [  # documented with another module
        "batchkron.problems.time.TimeFunction",
        "batchkron.solvers.preconditioners.PreconditionerWarning",
    ]
}
autodoc_typehints = "none"  # the docstrings say types and shapes
autodoc_member_order = "alphabetical"
toc_object_entries_show_parents = "hide"
autodoc_mock_imports = [
    "cupy", "gpytorch", "jax", "linear_operator", "lineax", "equinox", "mpi4py", "torch",
]  # fmt: skip
_MockObject.__setitem__ = lambda self, key, value: None  # rules of primitives, for tables of JAX
numpydoc_show_class_members = False  # the template lists them


def offer_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a link to the notebook below a tutorial."""
    folder, _, name = docname.partition("/")
    if folder == "tutorials" and name in notebooks.names():
        link = f'<a href="../notebooks/{name}.ipynb" download>{name}.ipynb</a>'
        source[0] += f"\nThis page as a notebook: {link}\n"


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write the notebooks beside the pages."""
    if error is None:
        notebooks.write(Path(app.outdir) / "notebooks")


def list_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give an index page the toctree that the links of its lists describe."""
    if docname.rpartition("/")[2] != "index":
        return
    lists = "\n".join(re.findall(r"^- .*(?:\n  .*)*", source[0], re.MULTILINE))
    pages = re.findall(r"\[([^\]]+)\]\(((?!\.\./)[\w./-]+)\.md\)", lists)
    if docname == "index":
        pages = [f"{text} <{page}>" for text, page in pages]  # short titles for the bar
    else:
        pages = [page for _, page in pages]
    source[0] += "\n".join(["\n```{toctree}", ":hidden:", "", *pages, "```\n"])


class RepositoryAddresses(SphinxTransform):
    """Links to files that are no pages, such as examples, lead to the repository.

    Without an address of the repository (`[project.urls]` of pyproject.toml, or `-D
    repository=https://…`) they become the file's path.
    """

    default_priority = 5  # before Sphinx collects files to be copied

    def apply(self, **kwargs: Any) -> None:
        """Change the links of a page."""
        folder = (DOCS / self.env.docname).parent
        for link in [*self.document.findall(is_link_of_markdown)]:
            target = link["reftarget"] + ".md" * (link["refdomain"] == "doc")
            path = Path(os.path.normpath(folder / target))
            if path.is_relative_to(DOCS) and path.suffix == ".md":
                continue
            if not path.exists():
                raise ExtensionError(f"{self.env.docname} links to {target}, which does not exist")
            name = path.relative_to(ROOT).as_posix()
            if self.config.repository:
                address = f"{self.config.repository}/blob/main/{name}"
                link.replace_self(nodes.reference("", "", *link.children, refuri=address))
            else:
                link.replace_self([*link.children, *path_beside(name, link.astext())])


def is_link_of_markdown(node: nodes.Node) -> bool:
    """Whether a node is a link to a file, before it is resolved."""
    kinds = (download_reference, pending_xref)
    return isinstance(node, kinds) and node["reftype"] == "myst" and bool(node["reftarget"])


def path_beside(name: str, text: str) -> list[nodes.Node]:
    """Return the path of a file in brackets, unless the text of the link says it."""
    if name.rpartition("/")[2] in text:
        return []
    return [nodes.Text(" ("), nodes.literal(name, name), nodes.Text(")")]


class NamesInCode(SphinxTransform):
    """A public name in `code` is a link to its reference, in Markdown as in docstrings."""

    default_priority = 6

    def apply(self, **kwargs: Any) -> None:
        """Change the code of a page."""
        targets = self.app.public_names
        for code in [*self.document.findall(nodes.literal)]:
            target = targets.get(re.sub(r"^bk\.|\(\)$", "", code.astext()))
            if target is None or has_parent(code, pending_xref, nodes.reference, nodes.title):
                continue
            link = pending_xref(
                refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname,
                refexplicit=True,
            )  # fmt: skip
            code.replace_self(link)
            link += code


def has_parent(node: nodes.Node, *kinds: type[nodes.Node]) -> bool:
    """Whether a node is in one of these kinds."""
    return node.parent is not None and (
        isinstance(node.parent, kinds) or has_parent(node.parent, *kinds)
    )


def find_targets() -> dict[str, str]:
    """Return where public names are documented; those that several modules have by both."""
    full = list(NAMES)
    with mock(autodoc_mock_imports):
        for name in NAMES:
            full += [f"{name}.{one}" for one in getattr(import_by_name(name)[1], "__all__", ())]
    last = Counter(name.rpartition(".")[2] for name in full)
    short = {name.rpartition(".")[2]: name for name in full}
    return {name: name for name in full} | {n: full for n, full in short.items() if last[n] == 1}


def name_arguments(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Return the arguments of a class, where Sphinx takes those of `LinearOperator.__new__`."""
    if what != "class" or "*args, **kwargs" not in (signature or ""):
        return None
    return stringify_signature(inspect.signature(obj), show_annotation=False), ""


def keep_signs(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the bars of |λ| and the star of (*batch, N), which are markup to Sphinx."""
    if name == "batchkron":
        del lines[2:]  # a table of names for help(), which is no reStructuredText
    for number, line in enumerate(lines):
        line = re.sub(r"\|(?=\S[^|]*\|)|(?<=\S)\|", r"\\|", line)
        lines[number] = re.sub(r"(?<![\w*`])\*(?=\w)(?![^*]*\w\*)", r"\\*", line)


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.add_config_value("repository", METADATA.get("urls", {}).get("Repository", ""), "env")
    app.public_names = find_targets()
    app.add_transform(RepositoryAddresses)
    app.add_transform(NamesInCode)
    app.connect("autodoc-process-docstring", keep_signs, priority=900)  # after numpydoc
    app.connect("source-read", list_pages)
    app.connect("source-read", offer_notebook)
    app.connect("build-finished", write_notebooks)
    app.connect("autodoc-process-signature", name_arguments)
