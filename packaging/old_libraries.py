"""Make stand-ins of glibc and libstdc++ to link with, which lack what came after given versions.

    python old_libraries.py FOLDER [--glibc 2.28] [--glibcxx 3.4.25] [--cxxabi 1.3.11]

A library that is linked on a new system asks for the newest version of each symbol, and does not
load on an older one, even where the older version would do. The stand-ins offer for each symbol of
this system's libraries the newest version up to the given ones, and hold no code; what exists in no
such version is `newer_symbols.cpp`'s, or ends the link. Link with ``-L FOLDER -Wl,-z,defs
FOLDER/newer_symbols.o``. The defaults are those of manylinux_2_28 (glibc 2.28, GCC 8).
"""

import argparse
import re
import subprocess
from collections import defaultdict
from pathlib import Path

# Where glibc 2.28 had what later is in libc.
MOVED = {
    "libpthread.so.0": r"pthread_|sem_",
    "libdl.so.2": r"dl(open|sym|vsym|close|error|addr|info)",
}
SYMBOL = re.compile(
    r"^\s*\d+: \S+\s+(?P<size>\d+|0x\S+) (?P<type>\S+)\s+(GLOBAL|WEAK)\s+\S+\s+(?P<section>\S+) "
    r"(?P<name>[^@\s]+)@@?(?P<version>(?P<family>[A-Z]+)_[\d.]+)\b"
)
TYPES = {"OBJECT": "@object", "TLS": "@tls_object", "IFUNC": "@function", "FUNC": "@function"}


def number(version):
    """Return (2, 28) of "GLIBC_2.28"."""
    return tuple(int(part) for part in version.rpartition("_")[2].split("."))


def exported(path, newest):
    """Return for each symbol its newest allowed version, and whether there is one after glibc 2.31.

    A version is (its number, its name, the symbol's type, its size).
    """
    table = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(path)], check=True, capture_output=True, text=True
    ).stdout
    best, latest = {}, {}
    for symbol in filter(None, map(SYMBOL.match, table.splitlines())):
        family = symbol["family"]
        if symbol["section"] == "UND" or symbol["type"] not in TYPES or family not in newest:
            continue
        entry = number(symbol["version"]), symbol["version"], symbol["type"], int(symbol["size"], 0)
        latest[symbol["name"]] = max(latest.get(symbol["name"], entry), entry)
        if entry[0] <= number(newest[family]):
            best[symbol["name"]] = max(best.get(symbol["name"], entry), entry)
    return {name: (entry, latest[name][0] > (2, 31)) for name, entry in best.items()}


def write_stand_in(folder, name, symbols):
    """Write a shared object of that name with these symbols and no code."""
    source, versions = folder / f"{name}.s", folder / f"{name}.map"
    lines = []
    for place, (symbol, (_, version, kind, size)) in enumerate(sorted(symbols.items())):
        section = {"OBJECT": ".data", "TLS": '.section .tdata,"awT",@progbits'}.get(kind, ".text")
        lines += [
            section,
            f".globl s{place}",
            f".type s{place}, {TYPES[kind]}",
            f".size s{place}, {size}",
            f"s{place}: .skip {max(size, 1) if kind != 'FUNC' else 1}",
            f".symver s{place}, {symbol}@@{version}, remove",
        ]
    lines.append('.section .note.GNU-stack,"",@progbits')
    source.write_text("\n".join(lines) + "\n")
    nodes = sorted({entry[1] for entry in symbols.values()})
    versions.write_text("".join(f"{node} {{ }};\n" for node in nodes))
    subprocess.run(
        [
            *("g++", "-shared", "-nostdlib", f"-Wl,-soname,{name}"),
            *(f"-Wl,--version-script={versions}", "-o", str(folder / name), str(source)),
        ],
        check=True,
    )
    source.unlink()
    versions.unlink()


def file_of(name):
    """Return the path of a library that g++ links with."""
    found = subprocess.run(
        ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return Path(found).resolve(strict=True)


def main():
    """Write the stand-ins, and the object with newer symbols."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glibc", default="2.28")
    parser.add_argument("--glibcxx", default="3.4.25")
    parser.add_argument("--cxxabi", default="1.3.11")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    limits = {"GLIBCXX": options.glibcxx, "CXXABI": options.cxxabi, "GLIBC": options.glibc}
    c_library = defaultdict(dict)
    for symbol, (entry, is_late) in exported(file_of("libc.so.6"), limits).items():
        homes = [home for home, names in MOVED.items() if is_late and re.match(names, symbol)]
        c_library[homes[0] if homes else "libc.so.6"][symbol] = entry
    for name, symbols in c_library.items():
        write_stand_in(folder, name, symbols)
    for name, link in (("libstdc++.so.6", "libstdc++.so"), ("libm.so.6", "libm.so")):
        symbols = {symbol: entry for symbol, (entry, _) in exported(file_of(name), limits).items()}
        write_stand_in(folder, name, symbols)
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(name)
    # with the few functions of glibc that are linked in, as its own libc.so has them
    parts = [folder / name for name in sorted(c_library)] + [file_of("libc_nonshared.a")]
    loader = file_of("ld-linux-x86-64.so.2")
    (folder / "libc.so").write_text(
        f"GROUP ( {' '.join(map(str, parts))} AS_NEEDED ( {loader} ) )\n"
    )
    source = Path(__file__).with_name("newer_symbols.cpp")
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-c",
            str(source),
            "-o",
            str(folder / "newer_symbols.o"),
        ],
        check=True,
    )


if __name__ == "__main__":
    main()
