"""What a document's file looks like, and that nothing of it is lost on the way."""

import hashlib

import h5py
import numpy as np
import pytest

from batchkron.storage import Document, read_file, write_document
from batchkron.storage.writer import chunk_shape, file_image

FORMAT = {"format": "batchkron-result", "format_version": 1}


@pytest.fixture
def document(rng):
    return Document(
        {**FORMAT, "number": -3, "real": 0.1, "text": "Größe ∫", "empty": ""},
        {
            "reals": rng.normal(size=(70, 3, 1000)),
            "singles": rng.normal(size=17).astype(np.float32),
            "deep/er/integers": rng.integers(-(2**62), 2**62, size=(600, 2)),
            "strided": rng.normal(size=(8, 9)).T[::2],
            "texts": ("", "a", "naïve\n" * 50, " trailing "),
            "none/reals": np.zeros((0, 4)),
            "none/texts": (),
            "extremes": np.array([0.0, -0.0, 5e-324, 1.7e308]),
            "provenance/file": ("{}",),
        },
    )


@pytest.mark.parametrize("trusted", [False, True])
def test_everything_comes_back_bitwise(document, tmp_path, trusted):
    path = tmp_path / "a.h5"
    write_document(path, document)
    back = read_file(path, None, trusted=trusted)
    assert back.content_hash == document.content_hash
    assert back.attributes == {**document.attributes, "content_hash": document.content_hash}
    assert set(back.datasets) == set(document.datasets)
    for name, value in document.datasets.items():
        found = back.datasets[name]
        if isinstance(value, tuple):
            assert found == value
        else:
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            assert found.tobytes() == value.tobytes()
            assert not found.flags.writeable


def test_equal_documents_give_equal_bytes(document):
    shuffled = Document(
        dict(reversed(document.attributes.items())), dict(reversed(document.datasets.items()))
    )
    assert bytes(file_image(document)) == bytes(file_image(shuffled))


def test_every_dataset_with_elements_carries_fletcher32(document, tmp_path):
    path = tmp_path / "a.h5"
    write_document(path, document)
    with h5py.File(path) as file:
        assert {file[name].fletcher32 for name in document.datasets if file[name].size} == {True}
        assert file["deep/er/integers"].compression == "gzip"
        assert file["deep/er/integers"].shuffle
        assert file["reals"].compression is None
        assert file["none/reals"].shape == (0, 4)


def test_the_hash_is_what_the_schema_says(document):
    """Written out by hand, as another language would."""
    digest = hashlib.sha256()

    def text(value):
        encoded = value.encode()
        return len(encoded).to_bytes(8, "little") + encoded

    digest.update(b"attribute empty text\n" + text(""))
    digest.update(b"attribute format text\n" + text("batchkron-result"))
    digest.update(b"attribute format_version int64\n" + (1).to_bytes(8, "little"))
    digest.update(b"attribute number int64\n" + (2**64 - 3).to_bytes(8, "little"))
    digest.update(b"attribute real float64\n" + np.float64(0.1).tobytes())
    digest.update(b"attribute text text\n" + text("Größe ∫"))
    for name, kind, shape in [
        ("deep/er/integers", "int64", "600x2"),
        ("extremes", "float64", "4"),
        ("none/reals", "float64", "0x4"),
        ("none/texts", "text", "0"),
        ("reals", "float64", "70x3x1000"),
        ("singles", "float32", "17"),
        ("strided", "float64", "5x8"),
        ("texts", "text", "4"),
    ]:
        digest.update(f"dataset {name} {kind} {shape}\n".encode())
        value = document.datasets[name]
        digest.update(b"".join(map(text, value)) if isinstance(value, tuple) else value.tobytes())
    assert document.content_hash == digest.hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda a, d: a.update(number=-4),
        lambda a, d: a.update(real=0.1 + 2**-56),
        lambda a, d: a.pop("text"),
        lambda a, d: d.update(texts=("", "a\n", "naïve\n" * 50, " trailing ")),
        lambda a, d: d.update(texts=("a", "", "naïve\n" * 50, " trailing ")),
        lambda a, d: d.update({"none/reals": np.zeros((4, 0))}),
        lambda a, d: d.update(extremes=np.array([-0.0, -0.0, 5e-324, 1.7e308])),
        lambda a, d: d.update(other=d.pop("reals")),
        lambda a, d: d.update(singles=d["singles"].astype(np.float64)),
    ],
)
def test_any_change_changes_the_hash(document, change):
    attributes, datasets = dict(document.attributes), dict(document.datasets)
    change(attributes, datasets)
    assert Document(attributes, datasets).content_hash != document.content_hash


def test_provenance_does_not_count(document):
    datasets = dict(document.datasets) | {"provenance/file": ("other",)}
    assert Document(document.attributes, datasets).content_hash == document.content_hash


@pytest.mark.parametrize(
    ("attributes", "datasets", "error", "text"),
    [
        ({"a": True}, {}, TypeError, "attribute 'a' is bool"),
        ({"a": 2**63}, {}, ValueError, "does not fit into int64"),
        ({"a": float("inf")}, {}, ValueError, "attribute 'a' is inf"),
        ({"a": "x" * 5000}, {}, ValueError, "longer than 4096 bytes"),
        ({"a": "x\0"}, {}, ValueError, "NUL"),
        ({"a-b": 1}, {}, ValueError, "attribute 'a-b'"),
        ({}, {"x": [1.0]}, TypeError, "dataset 'x' is list"),
        ({}, {"x": np.array([1j])}, TypeError, "dataset 'x' is complex128"),
        ({}, {"x": np.array([True])}, TypeError, "dataset 'x' is bool"),
        ({}, {"x": np.array(1.0)}, ValueError, "dataset 'x' is a scalar"),
        ({}, {"x": np.array([[1.0, np.nan]])}, ValueError, r"'x' holds nan at \[0, 1\]"),
        ({}, {"x": ("\ud800",)}, ValueError, "cannot be written as UTF-8"),
        ({}, {"x": (b"a",)}, TypeError, "text 0 is bytes"),
        ({}, {"x": ("",) * 70000}, ValueError, "has 70000 texts"),
        ({}, {"x": ("y" * (65 << 20),)}, ValueError, "bytes of text"),
        ({}, {"/x": np.zeros(1)}, ValueError, "dataset '/x'"),
        ({}, {"x//y": np.zeros(1)}, ValueError, "dataset 'x//y'"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(attributes, datasets, error, text):
    with pytest.raises(error, match=text):
        Document({**FORMAT, **attributes}, datasets)


@pytest.mark.parametrize(
    "shape", [(1,), (10**6,), (3, 10**6), (10**6, 3), (7, 400, 400), (2, 2, 2, 2, 2)]
)
def test_chunks_fit_and_are_not_too_many(shape):
    chunks = chunk_shape(shape, 8)
    assert all(1 <= chunk <= length for chunk, length in zip(chunks, shape, strict=True))
    assert 8 * np.prod(chunks) <= 1 << 20
    count = np.prod([-(-n // chunk) for n, chunk in zip(shape, chunks, strict=True)])
    assert count <= 1 + 4 * 8 * np.prod(shape) / (1 << 20)
