"""Check a source archive: it has all that a build and the tests need, and nothing else.

    python check_sdist.py ARCHIVE

The archive is compared with the files of the repository that this script lies in: sources have to
be there, results, pictures and files that the repository does not have must not be.
"""

import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

MAX_BYTES = 4 << 20
ROOT = Path(__file__).parents[1]
# what builds the package, is installed with it, or tells of it
NEEDED = ("batchkron", "solvers", "problems", "csrc", "examples", "packaging")
NEEDED_FILES = ("CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md")
# results of runs, what scripts draw, and what checks the repository itself
UNWANTED = (
    *("benchmarks/results", "docs/results", "docs/pictures"),
    *("tests/benchmarks", "tests/project", ".ci"),
)
MADE = {"PKG-INFO"}  # by the build


def tracked_files(root):
    """Return the paths of a repository's files."""
    names = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout
    return set(filter(None, names.split("\0")))


def is_in(name, folders):
    """Return whether a path is one of the folders or lies in one."""
    path = PurePosixPath(name)
    return any(path.is_relative_to(folder) for folder in folders)


def faults(path, tracked):
    """Yield what is wrong with an archive of a repository with these files, in words."""
    if path.stat().st_size > MAX_BYTES:
        yield f"{path.stat().st_size} bytes, more than {MAX_BYTES}"
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    needed = {name for name in tracked if is_in(name, NEEDED + NEEDED_FILES)}
    for name in sorted(needed - names):
        yield f"{name} is missing"
    for name in sorted(names):
        if is_in(name, UNWANTED):
            yield f"{name} is not needed"
        elif name not in tracked | MADE:
            yield f"{name} is not a file of the repository"


def main():
    """Print an archive's faults; exit with 1 if there are any."""
    path = Path(sys.argv[1])
    found = list(faults(path, tracked_files(ROOT)))
    print(f"{path.name}: {path.stat().st_size} bytes", *found, sep="\n  ")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
