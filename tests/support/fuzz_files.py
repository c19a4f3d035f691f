"""Fuzz the loaders: python tests/support/fuzz_files.py --files 20000

Damages sound files of every format, at random from a seed, and loads each. Every file must be
refused with one ProblemFileError that names a place in it, or else be taken for exactly what it
says; nothing else may be opened, no file may take longer than 5 s, crash the caller or use more
memory than allowed. Ends with status 1, and the offending files kept, where one of these fails.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from fuzzing.campaign import Campaign


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000, help="how many files")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where offending files are kept")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=options.folder))
    campaign = Campaign(folder, options.seed)
    report = campaign.run(range(options.first, options.first + options.files))
    print("\n".join(report.lines()))
    if report.violations:
        sys.exit(f"The offending files are in {folder}.")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
