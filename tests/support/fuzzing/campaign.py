"""Many damaged files, one after another, and what became of them."""

import collections
import dataclasses
import faulthandler
import re
import resource
import time
import warnings

import numpy as np
from crafted_files import write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import load_problem
from batchkron.storage import reader
from fuzzing import damage, rules, samples, says, structure, watch
from fuzzing.content import rewrite

MAX_SECONDS = 5.0
CALLER_BYTES = 1 << 30
FAMILIES = {"blind": 0.25, "sealed": 0.3, "forbidden": 0.15, "permitted": 0.05, "content": 0.25}
"""Kinds of damage, each with its share of the files. "asgard" is the blind kind, too: of files
without checksums, where a changed number cannot be told from the right one, only that whatever
else is asked for holds."""


@dataclasses.dataclass
class Report:
    """Counts and extremes of a campaign."""

    files: int = 0
    outcomes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refusals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    slowest_seconds: float = 0.0
    seconds: float = 0.0
    reader_bytes: int = 0
    caller_bytes: int = 0
    reader_deaths: int = 0
    reader_timeouts: int = 0
    violations: list = dataclasses.field(default_factory=list)

    def lines(self):
        """The report as text."""
        kinds = sorted({family for family, _ in self.outcomes})
        table = [
            f"{family:10} {self.outcomes[family, 'refused']:6} refused "
            f"{self.outcomes[family, 'accepted']:6} accepted, rightly"
            for family in kinds
        ]
        return [
            f"{self.files} files in {self.seconds:.0f} s, {len(self.violations)} violations",
            *table,
            f"{len(self.refusals)} different refusals",
            f"reader process: {self.reader_deaths} files ended it, {self.reader_timeouts} took it "
            f"too long; at most {self.reader_bytes >> 20} MiB",
            f"caller: at most {self.slowest_seconds:.2f} s and {self.caller_bytes >> 20} MiB "
            f"for a file",
            *(f"VIOLATION {text}" for text in self.violations),
        ]


class Campaign:
    """Damages the samples and loads them.

    Parameters
    ----------
    folder : Path
        For the files, and beside it the traps.
    seed : int
        File k of one seed is always the same.
    """

    def __init__(self, folder, seed):
        self._folder, self._seed = folder / "work", seed
        outside = folder / "elsewhere"
        for place in (self._folder, outside):
            place.mkdir()
        shares = samples.all_samples()
        self._samples, self._shares = list(shares), list(shares.values())
        self._traps = watch.Traps(self._folder, outside, self._samples[0].image)
        self.report = Report()

    def run(self, numbers):
        """Go through the files of these numbers."""
        began = time.monotonic()
        try:
            with warnings.catch_warnings(), watch.limited_memory(CALLER_BYTES):
                warnings.simplefilter("error")
                for number in numbers:
                    faulthandler.dump_traceback_later(60, exit=True)
                    self._one(number)
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.report.seconds = time.monotonic() - began
        return self.report

    def _start_reader(self):
        """Start the reader process, so that the time of the next file does not include it."""
        if reader._READER._process is None:
            path = self._folder / "sound.h5"
            path.write_bytes(self._samples[0].image)
            load_problem(path)

    def _one(self, number):
        rng = np.random.default_rng([self._seed, number])
        sample = self._samples[rng.choice(len(self._samples), p=self._shares)]
        family = str(rng.choice(list(FAMILIES), p=list(FAMILIES.values())))
        if sample.document is None:
            family = "asgard"
        if family == "sealed" and not sample.has_hash:
            family = "blind"  # nothing would tell other numbers with the right checksums
        path = self._folder / f"file-{number}.h5"
        name, said, is_sound = self._damage(path, sample, family, rng)
        # what h5py wrote may be read here as well; other damage only the reader process survives
        trusted = family in ("forbidden", "permitted", "content") and rng.random() < 0.25
        self._start_reader()
        self._traps.sprung()
        watch.forget_peak()
        before = watch.memory_of("self")["VmHWM"]
        began = time.monotonic()
        faults = list(self._load(sample, path, trusted, family, said, is_sound))
        faults += self._surroundings(time.monotonic() - began, before)
        self.report.files += 1
        if faults:
            text = f"file {number} ({sample.name}, {family}: {name}): {'; '.join(faults)}"
            self.report.violations.append(text)
        else:
            path.unlink()

    def _damage(self, path, sample, family, rng):
        """Write the file; return what was done, what it says, and whether it is sound.

        The latter is None where the file may be refused or else taken for the sample.
        """
        if family == "content":
            document, name = rewrite(sample.document, rng)
            write_unchecked(path, document)
            is_sound = rules.fault_of(document, sample.format) is None
            return name, document, None if is_sound and rules.is_extreme(document) else is_sound
        if family in ("forbidden", "permitted"):
            is_permitted = family == "permitted"
            name = structure.restructure(
                path, sample.image, rng, self._traps, permitted=is_permitted
            )
            return name, sample.document, is_permitted
        choices = damage.SEALED if family == "sealed" else damage.BLIND
        change = choices[int(rng.integers(len(choices)))]
        path.write_bytes(change(sample.image, rng))
        return change.__name__, sample.document, None

    def _load(self, sample, path, trusted, family, said, is_sound):
        """Load the file and yield what is wrong with the outcome."""
        try:
            loaded = sample.load(path, trusted)
        except ProblemFileError as error:
            self.report.outcomes[family, "refused"] += 1
            yield from self._refusal_faults(path, str(error))
            if is_sound:
                yield f"a sound file was refused: {error}"
        except Exception as error:
            yield f"{type(error).__name__} instead of ProblemFileError: {error}"
        else:
            self.report.outcomes[family, "accepted"] += 1
            if is_sound is False:
                yield f"accepted: {rules.fault_of(said, sample.format) or 'a forbidden structure'}"
                return
            if said is None:
                return
            wrong = says.disagreement(loaded, said, provenance=family != "sealed")
            if wrong:
                yield f"a wrong result was accepted: {wrong}"

    def _refusal_faults(self, path, text):
        self.report.reader_deaths += "ended the reader process" in text
        self.report.reader_timeouts += "takes longer than a sound file" in text
        kind = re.sub(r"'[^']*'|[\d.e+-]+", "…", text.replace(str(path), ""))
        self.report.refusals[kind] += 1
        if not text.startswith(f"{path}: ") or "\n" in text:
            yield f"the refusal does not begin with the file or has several lines: {text!r}"
        if not names_a_place(text[len(f"{path}: ") :]):
            yield f"the refusal names no place: {text!r}"

    def _surroundings(self, elapsed, before):
        """Yield what is wrong with time, memory and opened files."""
        report = self.report
        grown = watch.memory_of("self")["VmHWM"] - before
        report.caller_bytes = max(report.caller_bytes, grown)
        report.slowest_seconds = max(report.slowest_seconds, elapsed)
        if elapsed > MAX_SECONDS:
            yield f"took {elapsed:.1f} s"
        for name in self._traps.sprung():
            yield f"opened {name}, which is elsewhere"
        process = reader._READER._process
        if process is not None and process.poll() is None:
            memory = watch.memory_of(process.pid)
            report.reader_bytes = max(report.reader_bytes, memory["VmHWM"])
            # without a limit of its own it has inherited that of this process, or none
            own, inherited = watch.limit_of(process.pid), watch.limit_of(0)
            if own in (inherited, resource.RLIM_INFINITY) or own > memory["VmSize"] + CALLER_BYTES:
                yield f"the reader process has no limit of its own on its memory: {own}"


def names_a_place(text):
    """Whether a refusal says where in the file something is wrong."""
    return re.search(
        r"(dataset|attribute|object|group) '|the root group|the structure of the file|truncated|"
        r"the file is empty|not an HDF5 file|superblock|the end of the file|attribute's name",
        text,
    )
