"""Damaged files by the thousand, and whether the fuzzer would notice what it looks for.

The longer run: python tests/support/fuzz_files.py --files 20000
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzzing import campaign, samples, watch
from fuzzing.campaign import Campaign

from batchkron import ProblemFileError

PROGRAM = Path(__file__).parents[1] / "support" / "fuzz_files.py"


@pytest.mark.slow
def test_two_thousand_damaged_files():
    command = [sys.executable, str(PROGRAM), "--files", "2000"]
    environment = {**os.environ}
    environment.pop("PYTHONSAFEPATH", None)  # the program imports what lies beside it
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"2000 files in \d+ s, 0 violations", done.stdout)
    refused = dict(re.findall(r"^(\w+) +(\d+) refused", done.stdout, re.MULTILINE))
    accepted = dict(re.findall(r"^(\w+) .* refused +(\d+) accepted", done.stdout, re.MULTILINE))
    assert set(refused) == {*campaign.FAMILIES, "asgard"}
    for family in refused:  # both outcomes occur, so both are checked
        assert family == "permitted" or int(refused[family]) > 50
        assert family == "forbidden" or int(accepted[family]) > 30
    (kinds,) = re.findall(r"(\d+) different refusals", done.stdout)
    assert int(kinds) > 100


@pytest.fixture
def load(monkeypatch):
    """Replaces what loads the files."""

    def replace(function):
        monkeypatch.setattr(samples.Sample, "load", function)

    return replace


def violations(folder, files=40):
    return Campaign(folder, seed=1).run(range(files)).violations


real_load = samples.Sample.load


def test_good_loaders_violate_nothing(tmp_path):
    assert violations(tmp_path) == []


def test_a_file_has_the_same_bytes_for_the_same_seed(tmp_path):
    found = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        fuzz = Campaign(tmp_path / folder, seed=3)
        path = tmp_path / folder / "file.h5"
        images = []
        for number in range(12):
            rng = np.random.default_rng([3, number])
            family = ("blind", "sealed", "content")[number % 3]
            fuzz._damage(path, fuzz._samples[number % 4], family, rng)
            images.append(path.read_bytes())
        found.append(images)
    assert found[0] == found[1]
    assert len(set(found[0])) == 12


def test_believing_every_file_is_noticed(tmp_path, load):
    sound = tmp_path / "sound.h5"

    def credulous(self, path, trusted=False):
        sound.write_bytes(self.image)
        return real_load(self, sound)

    load(credulous)
    found = violations(tmp_path)
    assert any("forbidden: " in text and "accepted: " in text for text in found)
    assert any("content: " in text and "accepted: " in text for text in found)


def test_a_number_read_wrongly_is_noticed(tmp_path, load):
    def sloppy(self, path, trusted=False):
        loaded = real_load(self, path, trusted)
        vector = loaded.initial if hasattr(loaded, "initial") else loaded.u
        vector.flags.writeable = True
        vector.view(np.int64)[-1] ^= 1
        return loaded

    load(sloppy)
    assert any("a wrong result was accepted" in text for text in violations(tmp_path))


def test_refusing_every_file_is_noticed(tmp_path, load):
    def timid(self, path, trusted=False):
        raise ProblemFileError(f"{path}: dataset 'u' does not please")

    load(timid)
    found = violations(tmp_path)
    assert any("permitted: " in text and "a sound file was refused" in text for text in found)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("u"), "KeyError instead of ProblemFileError"),
        (MemoryError(), "MemoryError instead of ProblemFileError"),
        (ProblemFileError("bad"), "the refusal does not begin with the file"),
    ],
)
def test_another_error_is_noticed(tmp_path, load, error, text):
    def failing(self, path, trusted=False):
        raise error

    load(failing)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all(text in entry for entry in found)


def test_a_refusal_without_a_place_is_noticed(tmp_path, load):
    def vague(self, path, trusted=False):
        raise ProblemFileError(f"{path}: something is wrong")

    load(vague)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("names no place" in text for text in found)


def test_a_warning_is_noticed(tmp_path, load):
    def noisy(self, path, trusted=False):
        np.float64(1e300) * np.float64(1e300)

    load(noisy)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("RuntimeWarning" in text for text in found)


def test_opening_a_file_elsewhere_is_noticed(tmp_path, load):
    def curious(self, path, trusted=False):
        (path.parent.parent / "elsewhere" / "secret.txt").read_bytes()
        return real_load(self, path, trusted)

    load(curious)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("opened secret.txt, which is elsewhere" in text for text in found)


def test_the_traps_see_other_processes(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    traps = watch.Traps(tmp_path / "work", tmp_path / "outside", b"content")
    assert traps.sprung() == set()
    subprocess.run(["cat", "../outside/sound.h5"], cwd=tmp_path / "work", check=True)
    assert traps.sprung() == {"sound.h5"}
    assert traps.sprung() == set()
    traps.close()


def test_slowness_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "MAX_SECONDS", 0.0)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("took " in text for text in found)


def test_greed_is_noticed(tmp_path, load):
    def greedy(self, path, trusted=False):
        return np.ones(campaign.CALLER_BYTES // 4)

    load(greedy)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("MemoryError" in text for text in found)


@pytest.mark.parametrize("limit", [resource.RLIM_INFINITY, None])
def test_a_reader_without_a_limit_is_noticed(tmp_path, monkeypatch, limit):
    """None: a reader with the limit that it inherited from this process."""
    real = watch.limit_of
    monkeypatch.setattr(watch, "limit_of", lambda pid: real(0) if limit is None else limit)
    found = violations(tmp_path, files=3)
    assert len(found) == 3
    assert all("no limit of its own on its memory" in text for text in found)
