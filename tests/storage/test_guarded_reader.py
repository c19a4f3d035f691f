"""Files whose HDF5 structure is damaged or hostile: each is refused, and the text says where."""

import os
import re
import zlib

import h5py
import numpy as np
import pytest
from crafted_files import changed, edit, write_unchecked
from h5py import h5d, h5p, h5s, h5t

from batchkron import ProblemFileError
from batchkron.storage import Document, check_file, identify, read_file, write_document

SOUND = Document(
    {"format": "batchkron-result", "format_version": 1, "number": 7},
    {
        "u": np.arange(1.0, 5000.0),
        "group/integers": np.arange(4000),
        "group/texts": ("one", "two"),
    },
)


@pytest.fixture(params=[False, True], ids=["untrusted", "trusted"])
def trusted(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.h5"
    write_document(path, SOUND)
    return path


def names_a_place(text):
    """Whether a refusal says where something is wrong: which object, or that there is none."""
    return re.search(
        "(dataset|attribute|object|group) '|the root group|the structure of the file|superblock|"
        "truncated|the file is empty|not an HDF5 file",
        text,
    )


def refused(path, text, trusted=False):
    """The file is refused with one text; a sound one is still read afterwards."""
    with pytest.raises(ProblemFileError, match=text) as caught:
        read_file(path, "batchkron-result", trusted=trusted)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert names_a_place(str(caught.value))
    other = path.with_name("sound.h5")
    write_document(other, SOUND, overwrite=True)
    assert read_file(other, None, trusted=trusted).content_hash == SOUND.content_hash


def soft_link(file):
    file["soft"] = h5py.SoftLink("/u")


def dangling_soft_link(file):
    file["soft"] = h5py.SoftLink("/nowhere")


def external_link(file):
    file["external"] = h5py.ExternalLink("/etc/passwd", "/")


def external_storage(file):
    file.create_dataset("extra", (10,), "f8", external=[("/etc/hostname", 0, 80)])


def virtual_dataset(file):
    layout = h5py.VirtualLayout(shape=(10,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "u", shape=(10,))
    file.create_virtual_dataset("extra", layout)


def second_name(file):
    file["group/again"] = file["u"]


def cycle(file):
    file["group/loop"] = file["group"]


def cycle_through_the_root(file):
    file["group/root"] = file["/"]


def deep_tree(file):
    file.create_group("/".join("abcdefghijkl"))


def many_objects(file):
    for k in range(300):
        file.create_group(f"g{k}")


def odd_name(file):
    file.create_group("..\n")


def object_references(file):
    reference = np.array([file["u"].ref], dtype=h5py.ref_dtype)
    file.create_dataset("extra", data=reference, chunks=(1,), fletcher32=True)


def region_references(file):
    file.create_dataset("extra", (1,), dtype=h5py.regionref_dtype)


def dataset_of(dtype):
    def change(file):
        file.create_dataset("extra", (3,), dtype=dtype, chunks=(3,), fletcher32=True)

    return change


def variable_length(file):
    file.create_dataset("extra", (3,), dtype=h5py.vlen_dtype(np.float64))


def variable_strings(file):
    file.create_dataset("extra", data=["a", "b"], dtype=h5py.string_dtype())


def space_padded(file):
    datatype = h5t.C_S1.copy()
    datatype.set_size(4)
    datatype.set_strpad(h5t.STR_SPACEPAD)
    h5d.create(file.id, b"extra", datatype, h5s.create_simple((3,)))


def named_datatype(file):
    file["named"] = np.dtype("f8")


def dataset_of_named_datatype(file):
    file["group/named"] = np.dtype("f8")
    file.create_dataset("a_dataset", (3,), dtype=file["group/named"])


def scalar(file):
    file.create_dataset("extra", data=1.0)


def null_space(file):
    file.create_dataset("extra", data=h5py.Empty("f8"))


def attribute_of_dataset(file):
    file["u"].attrs["unit"] = 1.0


def attribute_of_group(file):
    file["group"].attrs["unit"] = 1.0


def no_checksum(file):
    file.create_dataset("extra", data=np.ones(10), chunks=(10,))


def contiguous(file):
    file.create_dataset("extra", data=np.ones(10))


def compact(file):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_layout(h5d.COMPACT)
    h5d.create(file.id, b"extra", h5t.IEEE_F64LE, h5s.create_simple((3,)), properties)


def with_filter(**options):
    def change(file):
        file.create_dataset("extra", data=np.arange(64), chunks=(64,), **options)

    return change


def unknown_filter(file):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk((4,))
    properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
    properties.set_fletcher32()
    h5d.create(file.id, b"extra", h5t.IEEE_F64LE, h5s.create_simple((4,)), properties)


def declared(shape, chunks, **options):
    def change(file):
        file.create_dataset("extra", shape, "f8", chunks=chunks, fletcher32=True, **options)

    return change


def missing_chunk(file):
    dataset = file.create_dataset("extra", (64,), "f8", chunks=(8,), fletcher32=True)
    dataset[:40] = 1.0
    dataset.id.write_direct_chunk((40,), bytes(200))
    dataset.id.write_direct_chunk((48,), bytes(200))


def larger_chunks(file):
    dataset = file.create_dataset(
        "extra", (1,), "f8", maxshape=(None,), chunks=(1 << 20,), fletcher32=True
    )
    dataset[:] = 1.0


def changed_data(file):
    file["u"][17] = -1.0


def changed_integer(file):
    file["group/integers"][17] ^= 1


def changed_attribute(file):
    file.attrs.modify("number", 8)


def additional_dataset(file):
    file.create_dataset("extra", data=np.ones(10), chunks=(10,), fletcher32=True)


def removed_dataset(file):
    del file["u"]


def array_attribute(file):
    file.attrs["extra"] = np.zeros(3)


def variable_text_attribute(file):
    file.attrs["extra"] = "text"


def nan_attribute(file):
    file.attrs["extra"] = np.nan


def long_attribute(file):
    file.attrs["extra"] = np.bytes_(b"x" * 5000)


def text_that_is_not_utf8(file):
    file.attrs["extra"] = np.bytes_(b"\xff\xfe")


def many_attributes(file):
    for k in range(100):
        file.attrs[f"a{k}"] = k


def not_a_number(file):
    file["u"][17] = np.nan


CHANGES = [
    (soft_link, "object 'soft' is a soft link"),
    (dangling_soft_link, "object 'soft' is a soft link"),
    (external_link, "object 'external' is an external link"),
    (external_storage, "dataset 'extra' has external storage"),
    (virtual_dataset, "dataset 'extra' is a virtual dataset"),
    (second_name, "is linked more than once"),
    (cycle, "'group(/loop)?' is linked more than once"),
    (cycle_through_the_root, "object 'group/root' is linked more than once"),
    (deep_tree, "group '/a/b/c/d' is nested deeper than 4 levels"),
    (many_objects, "group '/' takes the file beyond 256 objects"),
    (odd_name, "group '/' holds a bad name"),
    (object_references, "dataset 'extra' has type object reference"),
    (region_references, "dataset 'extra' has type object reference"),
    (variable_length, "dataset 'extra' has type variable-length array"),
    (variable_strings, "dataset 'extra' has type variable-length string"),
    (space_padded, "dataset 'extra' has type space-padded string"),
    (dataset_of("c16"), "dataset 'extra' has type compound"),
    (dataset_of("f2"), "dataset 'extra' has type another floating-point number"),
    (dataset_of(">f8"), "dataset 'extra' has type another floating-point number"),
    (dataset_of("u8"), "dataset 'extra' has type another integer"),
    (dataset_of("i4"), "dataset 'extra' has type another integer"),
    (dataset_of("?"), "dataset 'extra' has type enumeration"),
    (dataset_of("V8"), "dataset 'extra' has type opaque"),
    (dataset_of("(3,)f8"), "dataset 'extra' has type array"),
    (named_datatype, "object 'named' is neither a group nor a dataset"),
    (dataset_of_named_datatype, "dataset 'a_dataset' has type a named datatype"),
    (scalar, "dataset 'extra' is a scalar or null"),
    (null_space, "dataset 'extra' is a scalar or null"),
    (attribute_of_dataset, "dataset 'u' has attributes"),
    (attribute_of_group, "group '/group' has attributes"),
    (no_checksum, "dataset 'extra' is chunked without checksums"),
    (contiguous, "dataset 'extra' is contiguous without checksums"),
    (compact, "dataset 'extra' is compact without checksums"),
    (with_filter(compression="lzf"), "dataset 'extra' passes HDF5 filter 32000"),
    (with_filter(scaleoffset=0), "dataset 'extra' passes HDF5 filter 6"),
    (unknown_filter, "dataset 'extra' passes HDF5 filter 32015"),
    (declared((10**12,), (10**6,)), r"dataset 'extra' declares 8000000000000 bytes"),
    (declared((10**12,), (10**6,), compression="gzip"), "'extra' declares 8000000000000 bytes"),
    (declared((2**32, 2**31 - 1), (1, 8)), f"'extra' declares {2**32 * (2**31 - 1) * 8} bytes"),
    (declared((2,) * 12, (2,) * 12), "dataset 'extra' has 12 dimensions"),
    (missing_chunk, "dataset 'extra' has 7 of its 8 chunks|declares 512 bytes"),
    (larger_chunks, "dataset 'extra' of shape .* has larger chunks"),
    (changed_data, "the content has the hash"),
    (changed_integer, "the content has the hash"),
    (changed_attribute, "the content has the hash"),
    (additional_dataset, "the content has the hash"),
    (removed_dataset, "the content has the hash"),
    (array_attribute, "attribute 'extra' is not a scalar"),
    (variable_text_attribute, "attribute 'extra' has type variable-length string"),
    (nan_attribute, "attribute 'extra' is nan"),
    (long_attribute, "attribute 'extra' is longer than 4096 bytes"),
    (text_that_is_not_utf8, "attribute 'extra' is not UTF-8"),
    (many_attributes, "has 104 attributes"),
    (not_a_number, r"dataset 'u' holds nan at \[17\]"),
]


@pytest.mark.parametrize(
    ("change", "text"), CHANGES, ids=[f"{k}-{c.__name__}" for k, (c, _) in enumerate(CHANGES)]
)
def test_a_changed_structure_is_refused(path, change, text, trusted):
    edit(path, change)
    refused(path, text, trusted)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"format": None}, "attribute 'format' is None.*not a file of batchkron"),
        ({"format": "ASGarD"}, "attribute 'format' is 'ASGarD'"),
        ({"format": 3}, "attribute 'format' is 3"),
        ({"format_version": None}, "attribute 'format_version' is None"),
        ({"format_version": 0}, "attribute 'format_version' is 0"),
        ({"format_version": "1"}, "attribute 'format_version' is '1'"),
        ({"format_version": 3}, "'format_version' is 3, newer than version 2.*update batchkron"),
        ({"format": "batchkron-problem"}, "load this file with batchkron.problems.load_problem"),
        ({"format": "batchkron-checkpoint"}, "load this file with .*storage.load_checkpoint"),
    ],
)
def test_another_format_or_version_is_refused(path, attributes, text, trusted):
    write_unchecked(path, changed(SOUND, attributes=attributes))
    refused(path, text, trusted)


@pytest.mark.parametrize("keep", [1, 7, 8, 40, 47, 48, 100, 500, 0.3, 0.7, 0.95, -1])
def test_a_truncated_file_is_refused(path, keep, trusted):
    image = path.read_bytes()
    kept = image[: int(keep * len(image)) if isinstance(keep, float) else keep]
    assert len(kept) < len(image)
    path.write_bytes(kept)
    refused(path, "truncated|not an HDF5 file", trusted)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"hello", "not an HDF5 file"),
        (bytes(10_000), "not an HDF5 file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(10_000), "superblock version 0"),
        (b"\x89HDF\r\n\x1a\n\x03\x04\x04" + bytes(10_000), "8-byte addresses"),
        (b"\x89HDF\r\n\x1a\n\x03\x08\x08" + bytes(10_000), "the structure of the file is damaged"),
    ],
)
def test_what_is_not_hdf5_is_refused(path, content, text, trusted):
    path.write_bytes(content)
    refused(path, text, trusted)


def test_a_layout_without_checksums_is_refused(path, trusted):
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["format"] = "batchkron-result"
    refused(path, "superblock version 0; expected 2 or 3", trusted)


def test_a_file_that_inflates_beyond_its_declaration_is_refused(path):
    """A chunk of 1 KiB, as declared, that inflates to 1 GiB."""

    def bomb(file):
        dataset = file.create_dataset(
            "extra", (128,), "f8", chunks=(128,), compression="gzip", fletcher32=True
        )
        packer = zlib.compressobj(1)
        zeros = bytes(1 << 20)
        packed = b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush()
        skip_fletcher32 = 0b10  # the second filter in the pipeline
        dataset.id.write_direct_chunk((0,), packed, filter_mask=skip_fletcher32)

    edit(path, bomb)
    refused(path, "dataset 'extra' is damaged|more memory")


def test_much_content_in_a_small_file_is_not_even_read(path):
    def change(file):
        dataset = file.create_dataset(
            "extra", (700 << 20,), "f8", chunks=(64 << 20,), compression="gzip", fletcher32=True
        )
        packed = zlib.compress(bytes(512 << 20), 1)
        for k in range(11):
            dataset.id.write_direct_chunk((k * (64 << 20),), packed)

    edit(path, change)
    refused(path, "dataset 'extra' of 5872025600 bytes takes the content beyond the limit")


def test_missing_files_and_folders_are_what_they_are_elsewhere(tmp_path, trusted):
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing.h5", None, trusted=trusted)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, None, trusted=trusted)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        read_file(tmp_path / "file" / "inside.h5", None, trusted=trusted)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path, trusted):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProblemFileError, match="not a regular file"):
        read_file(tmp_path / "pipe", None, trusted=trusted)


def test_the_file_is_closed_after_reading(path, trusted):
    before = sorted(os.listdir("/proc/self/fd"))
    read_file(path, None, trusted=True)
    read_file(path, None)  # starts the reader process
    before = sorted(os.listdir("/proc/self/fd"))
    read_file(path, None, trusted=trusted)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_kind_of_a_file_is_told_without_reading_it(path, trusted):
    assert identify(path, trusted=trusted) == "batchkron-result"
    edit(path, changed_data)
    assert identify(path, trusted=trusted) == "batchkron-result"
    path.write_bytes(b"text")
    with pytest.raises(ProblemFileError):
        identify(path, trusted=trusted)


def test_checking_returns_the_attributes_or_refuses(path):
    assert check_file(path, "batchkron-result")["number"] == 7
    with pytest.raises(ProblemFileError, match="load_result"):
        check_file(path, "batchkron-problem")
    edit(path, changed_data)
    with pytest.raises(ProblemFileError, match="the content has the hash"):
        check_file(path, "batchkron-result")
