"""Check wheels: size, licences, list of parts, and that each symbol from outside has a version.

    python check_wheels.py WHEEL ...

A symbol that is looked for without a version is found by grades of symbol versions in any library,
and fails when the wheel is used. Python's own have none.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MAX_BYTES = 6 << 20
PARTS = ("licenses/LICENSE", "licenses/packaging/licences/pybind11.txt", "sboms/batchkron.cdx.json")
# address, flags, section, size, then the version if there is one, and the name
UNDEFINED = re.compile(
    r"^[0-9a-f]+ (?P<flags>.{7}) \*UND\*\s+[0-9a-f]+\s+"
    r"(?P<version>\([^)]*\)|\S+_[\d.]+)?\s*(?P<name>\S+)$"
)


def unversioned_symbols(library):
    """Return what a library looks for without a version, apart from weak symbols."""
    table = subprocess.run(
        ["objdump", "-T", str(library)], check=True, capture_output=True, text=True
    ).stdout
    symbols = filter(None, map(UNDEFINED.match, table.splitlines()))
    return [s["name"] for s in symbols if not s["version"] and "w" not in s["flags"]]


def faults(path):
    """Yield what is wrong with a wheel, in words."""
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = wheel.namelist()
        wheel.extractall(folder)
        if path.stat().st_size > MAX_BYTES:
            yield f"{path.stat().st_size} bytes, more than {MAX_BYTES}"
        for part in PARTS:
            if not any(name.endswith(f".dist-info/{part}") for name in names):
                yield f"{part} is missing"
        libraries = [name for name in names if name.endswith(".so")]
        own = Path(folder, "batchkron/lib/libbatchkron.so")
        table = subprocess.run(
            ["nm", "-D", "--defined-only", str(own)], check=True, capture_output=True, text=True
        ).stdout
        provided = {line.split()[-1].partition("@")[0] for line in table.splitlines()}
        for name in libraries:
            for symbol in unversioned_symbols(Path(folder, name)):
                if not symbol.startswith(("Py", "_Py")) and symbol not in provided:
                    yield f"{name} looks for {symbol} without a version"


def main():
    """Print each wheel with its faults; exit with 1 if there are any."""
    is_right = True
    for path in map(Path, sys.argv[1:]):
        found = list(faults(path))
        print(f"{path.name}: {path.stat().st_size} bytes", *found, sep="\n  ")
        is_right &= not found
    raise SystemExit(not is_right)


if __name__ == "__main__":
    main()
