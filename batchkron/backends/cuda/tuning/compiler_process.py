"""Program of a process that compiles kernels for a search, one after another.

NVRTC compiles only one kernel at a time in a process. Requests arrive on standard input until it is
closed, which also happens when the parent process dies. No device is used.
"""

from __future__ import annotations

import os
import pickle

from batchkron.backends.cuda.runtime.device import compile_program
from batchkron.backends.cuda.runtime.kernel_cache import CompiledKernel


def main() -> None:
    """Read pairs of program and options; answer each with the kernel or with an error text."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output goes to standard error, so that it is not read as an answer
    while True:
        try:
            program, options = pickle.load(incoming)
        except EOFError:
            return
        answer: CompiledKernel | str
        try:
            answer = compile_program(program, options)
        except RuntimeError as error:
            answer = str(error)
        pickle.dump(answer, outgoing)
        outgoing.flush()


if __name__ == "__main__":
    main()
