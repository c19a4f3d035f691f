"""Files of other programs: what is asked for is read or refused, the rest is not looked at."""

import os

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

from batchkron import ProblemFileError
from batchkron.storage import Document, read_foreign_file, write_document
from batchkron.storage.foreign import MAX_OBJECTS


@pytest.fixture(params=[False, True], ids=["untrusted", "trusted"])
def trusted(request):
    return request.param


@pytest.fixture(params=["earliest", "latest"])
def path(request, tmp_path):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver=request.param) as file:
        file["a number"] = np.int32(-5)
        file["reals"] = np.array([0.5, 0.25], dtype=np.float32)
        file.create_dataset("table", data=np.arange(600).reshape(100, 6), chunks=(7, 6))
        file.create_dataset("empty", data=np.ones(0), maxshape=(None,), chunks=(2,))
        file["text"] = "äöü"
        file["fixed"] = np.bytes_("fixed")
        file["group/one"], file["group/two"] = 1.0, np.array([(1, 2.0)], dtype="i4,f8")
        file["compound"] = np.array((1, 2.0), dtype="i4,f8")
        file["compound"].attrs["note"] = "not looked at"
        file["link"] = h5py.SoftLink("/nowhere")
    return path


def test_objects_are_read_by_name_and_pattern(path, trusted):
    names = ("a number", "re*s", "table", "empty", "text", "fixed", "group", "missing")
    document = read_foreign_file(path, names, trusted=trusted)
    assert document.attributes == {}
    found = dict(document.datasets)
    assert found.pop("text") == ("äöü",)
    assert found.pop("fixed") == ("fixed",)
    assert found.pop("group") == ("one", "two")
    expected = {
        "a_number": np.array([-5]),
        "reals": np.array([0.5, 0.25]),
        "table": np.arange(600).reshape(100, 6),
        "empty": np.ones(0),
    }
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)
        assert not found[name].flags.writeable


def refused(path, text, trusted, names=("extra",)):
    with pytest.raises(ProblemFileError, match=text) as caught:
        read_foreign_file(path, names, trusted=trusted)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert set(read_foreign_file(path, ["reals"], trusted=trusted).datasets) == {"reals"}


def stored(**options):
    return lambda file: file.create_dataset("extra", **options)


def virtual(file):
    layout = h5py.VirtualLayout(shape=(10,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "u", shape=(10,))
    file.create_virtual_dataset("extra", layout)


def second_name(file):
    file["extra"] = file["table"]


def named_type(file):
    file["type"] = np.dtype("f8")
    file.create_dataset("extra", data=np.ones(3), dtype=file["type"])


def empty_space(file):
    h5d.create(file.id, b"extra", h5t.IEEE_F64LE, h5s.create(h5s.NULL))


def missing_chunk(file):
    file.create_dataset("extra", (4,), "f8", chunks=(2,))[:2] = 1.0


def repeated_filter(file):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk((8,))
    properties.set_shuffle()
    properties.set_shuffle()
    h5d.create(file.id, b"extra", h5t.IEEE_F64LE, h5s.create_simple((8,)), properties)


REFUSALS = [
    (lambda file: file.__setitem__("extra", h5py.SoftLink("/reals")), "is a soft link"),
    (lambda file: file.__setitem__("extra", h5py.ExternalLink("/etc/passwd", "/")), "external"),
    (second_name, "is linked more than once"),
    (virtual, "is a virtual dataset"),
    (stored(shape=(2,), dtype="f8", external=[("/etc/hostname", 0, 16)]), "external storage"),
    (stored(shape=(4,), dtype="f8"), "declares 32 bytes, but 0 are stored"),
    (stored(shape=(1 << 40,), dtype="f8"), "beyond the limit|but 0 are stored"),
    (
        stored(shape=(1 << 28,), dtype="f8", chunks=(1 << 20,), compression=9),
        "only 0 bytes|beyond the limit",
    ),
    (missing_chunk, "only 16 bytes are stored|has 1 of its 2 chunks"),
    (stored(data=np.ones(9), chunks=(9,), compression="lzf"), "passes HDF5 filter 32000"),
    (repeated_filter, "passes HDF5 filter 2"),
    (stored(data=np.ones(2, ">f8")), "has another type"),
    (stored(data=np.ones(2, "u8")), "has another type"),
    (stored(data=np.ones(2, "i2")), "has another type"),
    (stored(data=np.ones(2, bool)), "has another type"),
    (stored(data=np.ones(2, complex)), "has another type"),
    (stored(shape=(2,), dtype=h5py.vlen_dtype("f8")), "has another type"),
    (stored(shape=(2,), dtype=h5py.ref_dtype), "has another type"),
    (named_type, "has another type"),
    (empty_space, "is null"),
    (stored(shape=(1,) * 9, dtype="f8", data=1.0), "has shape"),
    (stored(data=["two", "texts"]), r"has shape \(2,\)"),
    (stored(data=np.bytes_(b"x" * 5000)), "is longer than 4096 bytes"),
    (stored(data="x" * 5000), "is no string of at most 4096 bytes"),
    (stored(data=b"\xff"), "is not UTF-8"),
    (stored(data=np.nan), "holds nan"),
]


@pytest.mark.parametrize(("change", "text"), REFUSALS)
def test_what_is_not_plain_is_refused(path, change, text, trusted):
    with h5py.File(path, "r+") as file:
        change(file)
    refused(path, rf"'extra'.* {text}", trusted)


def test_names_that_a_document_cannot_hold_are_refused(path, trusted):
    with h5py.File(path, "r+") as file:
        file["extra-1"] = 1.0
    refused(path, "object 'extra-1'", trusted, ["extra*"])


def test_too_many_members_are_refused(tmp_path, trusted):
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["reals"] = 1.0
        group = file.create_group("extra")
        for k in range(MAX_OBJECTS + 1):
            group[f"m{k}"] = h5py.SoftLink("/")
    refused(path, f"'extra' has {MAX_OBJECTS + 1} members", trusted)


def test_files_of_the_family_are_refused(tmp_path, trusted):
    path = tmp_path / "file.h5"
    write_document(path, Document({"format": "batchkron-result", "format_version": 1}, {}))
    with pytest.raises(ProblemFileError, match=r"load this file with .*\.load_result"):
        read_foreign_file(path, ["u"], trusted=trusted)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, trusted):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProblemFileError, match="not a regular file"):
        read_foreign_file(tmp_path / "pipe", ["u"], trusted=trusted)
    with pytest.raises(IsADirectoryError):
        read_foreign_file(tmp_path, ["u"], trusted=trusted)
