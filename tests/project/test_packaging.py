"""The checks of releases: a source archive in which something is missing or too much."""

import importlib.util
import io
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACKED = {"CMakeLists.txt", "batchkron/a.py", "csrc/b.cpp", "docs/pictures/c.svg", "tests/d.py"}


def script(name):
    """Return a script of packaging/ as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


check_sdist = script("check_sdist")


def archive(path, names):
    with tarfile.open(path, "w:gz") as target:
        for name in names:
            member = tarfile.TarInfo(f"batchkron-0/{name}")
            member.size = 1
            target.addfile(member, io.BytesIO(b"x"))
    return path


@pytest.mark.parametrize(
    ("missing", "more", "fault"),
    [
        (None, "PKG-INFO", None),
        ("tests/d.py", "PKG-INFO", None),
        ("csrc/b.cpp", "PKG-INFO", "csrc/b.cpp is missing"),
        ("CMakeLists.txt", "PKG-INFO", "CMakeLists.txt is missing"),
        (None, "docs/pictures/c.svg", "docs/pictures/c.svg is not needed"),
        (None, "csrc/b.o", "csrc/b.o is not a file of the repository"),
    ],
)
def test_faults_of_a_source_archive(tmp_path, missing, more, fault):
    names = TRACKED - {missing, "docs/pictures/c.svg"} | {more}
    found = list(check_sdist.faults(archive(tmp_path / "a.tar.gz", names), TRACKED))
    assert found == ([fault] if fault else [])


def test_a_large_source_archive(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.tar.gz", TRACKED - {"docs/pictures/c.svg"})
    monkeypatch.setattr(check_sdist, "MAX_BYTES", 10)
    assert list(check_sdist.faults(path, TRACKED)) == [f"{path.stat().st_size} bytes, more than 10"]
