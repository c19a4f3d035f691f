"""Checks a built site: `python docs/check_site.py docs/_build`.

Links inside of it lead somewhere, pages load nothing from other hosts, and no file has an absolute
path of the machine that built it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}
FOREIGN_STYLE = re.compile(r"url\(['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//")


class Page(HTMLParser):
    """A page's identifiers, its links, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to."""
        for key, value in attrs:
            if value is None:
                continue
            if key == "id" or (tag == "a" and key == "name"):
                self.names.add(value)
            if tag == "a" and key == "href":
                self.links.append(value)
            if (tag, key) in LOADED:
                self.loaded.append(value)


def faults(site: Path) -> Iterator[str]:
    """Yield what is wrong, a line each."""
    pages = {
        path.resolve(): Page(path) for path in site.rglob("*.html") if "_static" not in path.parts
    }
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for address in page.loaded:
            if re.match(r"(https?:)?//", address):
                yield f"{name} loads {address}"
            elif not address.startswith("data:") and not target_of(path, address)[0].exists():
                yield f"{name} loads {address}, which does not exist"
        for address in page.links:
            if re.match(r"\w+:|//", address):
                continue
            target, part = target_of(path, address)
            if not target.exists():
                yield f"{name} links to {address}, which does not exist"
            elif target in pages and part not in pages[target].names:
                yield f"{name} links to {address}, which has no such part"
    for path in site.rglob("*"):
        if path.suffix in {".html", ".js", ".css", ".svg", ".ipynb", ".txt"}:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".css" and FOREIGN_STYLE.search(text):
                yield f"{path.relative_to(site)} loads from another host"
            for found in {str(Path(__file__).parents[1]), str(Path.home()), sys.prefix}:
                if found != "/" and found in text:
                    yield f"{path.relative_to(site)} has the path {found}"


def target_of(page: Path, address: str) -> tuple[Path, str]:
    """Return the file and the part of it that an address on a page means."""
    address, part = urldefrag(address)
    path = unquote(address.partition("?")[0])
    return ((page.parent / path).resolve() if path else page), unquote(part)


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1])))
    print(*found, f"{len(found)} faults", sep="\n")
    sys.exit(bool(found))
