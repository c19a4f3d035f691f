"""Device kernels on the CPU: their templates compiled by the host's compiler and run lane by lane.

Instructions in assembly become calls of functions of ``instructions.hpp``; all else is
compiled as it is. Slow, but strict about what a device leaves undefined: asynchronous copies come
as early or as late as they may, shared memory begins as NaN, and warps go on in any order.
"""

import ctypes
import os
import re
import subprocess
from pathlib import Path

from batchkron.backends.cuda.runtime.program import device_sources

COPIES = {"late": 0, "at once": 1, "at random": 2}  # when asynchronous copies come
_EMULATOR = Path(__file__).parent
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_MNEMONIC = re.compile(r"\b[a-z]\w*(?:(?:\.|::)\w+)+")
_OPTIONS = ("-std=c++17", "-O1", "-fno-strict-aliasing", "-w", "-shared", "-fPIC")


class Launch(ctypes.Structure):
    """How a kernel runs, see ``emulated::Launch``."""

    _fields_ = [
        ("blocks", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
        ("when", ctypes.c_int),
        ("seed", ctypes.c_uint),
        ("readable", ctypes.c_void_p),
        ("ranges", ctypes.c_int),
        ("down", ctypes.c_int),
    ]


def mistake(header, right, wrong):
    """Return what replaces the right words of a header by wrong ones, as `compiled` takes it."""

    def change(name, text):
        assert name != header or right in text
        return text.replace(right, wrong) if name == header else text

    return change


def _end_of_call(text, begin):
    """Return where the parenthesis that opens at `begin` closes."""
    depth, place = 0, begin
    while True:
        string = _STRING.match(text, place)
        if string:
            place = string.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
        place += 1


def _parts(body):
    """Split an asm statement at its colons, those within strings and parentheses left out."""
    parts, place, begin = [], 0, 0
    while place < len(body):
        string = _STRING.match(body, place)
        if string:
            place = string.end()
        elif body[place] == "(":
            place = _end_of_call(body, place) + 1
        elif body[place] == ":":
            parts.append(body[begin:place])
            place = begin = place + 1
        else:
            place += 1
    return [*parts, body[begin:]]


def _operands(part):
    """Return the expressions of operands such as `"r"(x), "n"(count)`."""
    found, place = [], 0
    while string := _STRING.search(part, place):
        begin = part.index("(", string.end())
        place = _end_of_call(part, begin) + 1
        found.append(part[begin:place])
    return found


def _called(body):
    """Return an asm statement as a call named after its mnemonic, if that is written there."""
    text, *rest = _parts(body)
    code = "".join(string[1:-1] for string in _STRING.findall(text)).replace("\\n", " ")
    mnemonic = _MNEMONIC.search(code)
    name = re.sub(r"[.:]+", "_", mnemonic.group()) if mnemonic else "wait_for_phase"
    return f"{name}({', '.join(operand for part in rest[:2] for operand in _operands(part))})"


def translated(text):
    """Return a header without assembly."""
    text = re.sub(r"#(define|undef) BATCHKRON_ASK.*", "", text)  # a mnemonic, see `_called`
    text = re.sub(
        r"extern __shared__[^;]*?(\w+)\[\];",
        r"unsigned char* const \1 = reinterpret_cast<unsigned char*>(emulated::device.shared);",
        text,
    )
    out, place = [], 0
    for asm in re.finditer(r"\basm\s*(volatile\s*)?\(", text):
        begin = asm.end() - 1
        end = _end_of_call(text, begin)
        out += text[place : asm.start()], _called(text[begin + 1 : end])
        place = end + 1
    return "".join([*out, text[place:]])


def compiled(programs, folder, architecture=900, change=lambda name, text: text):
    """Compile programs to one library.

    Parameters
    ----------
    programs : sequence of Program
    folder : Path
        Empty; for sources and library.
    architecture : int
        As ``__CUDA_ARCH__``.
    change : callable
        Is given a header's name and text, returns what it shall be.

    Returns
    -------
    list of callable
        What launches each program: arguments as bytes, `Launch`, arrays that may be read. Returns
        what went wrong, "" if nothing did.
    """
    for name, text in device_sources().items():
        header = folder / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(translated(change(name, text)))
    lines = [
        f"#define __CUDA_ARCH__ {architecture}",
        '#include "instructions.hpp"',
        *dict.fromkeys(f'#include "{program.header}"' for program in programs),
        "template <class Arguments> const char* launch(void (*kernel)(Arguments), const void* a,",
        "                                              const emulated::Launch& how) {",
        "  const Arguments& arguments = *static_cast<const Arguments*>(a);",
        "  return emulated::run(how, [&] { kernel(arguments); });",
        "}",
    ]
    for number, program in enumerate(programs):
        lines += [
            f'extern "C" const char* launch_{number}(const void* a, emulated::Launch* how) {{',
            f"  return launch(&{program.expression}, a, *how);",
            "}",
        ]
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join(lines) + "\n")
    compiler = os.environ.get("CXX", "c++").split()
    paths = [f"-I{folder}", f"-I{_EMULATOR}"]
    command = [*compiler, *_OPTIONS, *paths, str(source), "-o", str(library)]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    loaded = ctypes.CDLL(str(library))
    return [_launcher(loaded[f"launch_{number}"]) for number in range(len(programs))]


def _launcher(function):
    function.restype = ctypes.c_char_p

    def launch(arguments, how, arrays):
        ends = [end for a in arrays for end in (a.ctypes.data, a.ctypes.data + a.nbytes)]
        ranges = (ctypes.c_void_p * len(ends))(*ends)
        how.readable, how.ranges = ctypes.addressof(ranges), len(arrays)
        return function(arguments, ctypes.byref(how)).decode()

    return launch


def run_kernel(launch, arguments, blocks, threads, shared_bytes, arrays, rng):
    """Launch one of the functions of `compiled`, with warps in a random order and late copies."""
    seed = int(rng.integers(1 << 30))
    how = Launch(blocks, threads, shared_bytes, COPIES["late"], seed)
    failure = launch(arguments.tobytes(), how, arrays)
    assert not failure, failure
