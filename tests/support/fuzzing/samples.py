"""Sound files of every format, small, to be damaged."""

import dataclasses
import io
from pathlib import Path

import h5py
import numpy as np
from crafted_files import SIGNATURES, changed
from random_lists import random_list, random_problem

from batchkron.problems import (
    LinearProblem,
    OperatorTerm,
    Problem,
    SeparableVector,
    StepperSettings,
    load_problem,
    make,
    time,
)
from batchkron.problems.files.asgard.file import load_asgard
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.files.lists import encode_list
from batchkron.problems.semidiscrete.value import content_of
from batchkron.storage import Checkpoint, Document, ResultFile, load_checkpoint, load_result
from batchkron.storage import results as states
from batchkron.storage.writer import file_image


@dataclasses.dataclass(frozen=True)
class Sample:
    """A sound file: its content, None where no checksum would tell another one, and its bytes."""

    name: str
    document: object
    image: bytes
    has_hash: bool = True

    @property
    def format(self):
        return self.document.attributes["format"] if self.document else "asgard"

    def load(self, path, trusted=False):
        """Call the loader of this format; it takes no other file in place of a bad one."""
        if self.format == "batchkron-checkpoint":
            return load_checkpoint(path, trusted=trusted, previous=False)
        loaders = {
            "batchkron-problem": load_problem,
            "batchkron-result": load_result,
            "asgard": load_asgard,
        }
        return loaders[self.format](path, trusted=trusted)


def all_samples():
    """The samples, each with its share of the files."""
    rng = np.random.default_rng(11)
    rich = _undated(encode_problem(content_of(_rich_problem(rng))))
    return {
        _sample("problem", rich): 0.2,
        Sample("relaid problem", rich, _relaid(rich)): 0.15,
        _sample("list", encode_list(random_problem(rng).content)): 0.05,
        _foreign_list(rng): 0.05,
        _sample("planned list", encode_list(_planned_list(rng).content)): 0.05,
        _sample("bare problem", encode_problem(content_of(_bare_problem(rng)))): 0.1,
        _sample("result", states._encode("batchkron-result", result(rng))): 0.1,
        _sample("checkpoint", states._encode("batchkron-checkpoint", checkpoint(rng))): 0.2,
        _asgard_sample("layout090_continuity_2d_adaptive.h5"): 0.05,
        _asgard_sample("layout2024_diffusion_2_step20.h5"): 0.05,
    }


def _undated(document):
    """The document without the time of its writing, so that its file is always the same."""
    return Document(document.attributes, {**document.datasets, "provenance/file": ("{}",)})


def _foreign_list(rng):
    """A list with little more than a name, and no hash, as another program may write it."""
    problem = LinearProblem(random_list(rng, "complex64"), rng.normal(size=24))
    document = encode_list(problem.content)
    left_out = {"blocks": None, "provenance/file": None}
    document = changed(document, datasets=left_out, attributes={"t0": None})
    buffer = io.BytesIO(bytes(file_image(document)))
    with h5py.File(buffer, "r+", libver=("v110", "v110")) as file:
        del file.attrs["content_hash"]
    return Sample("foreign list", document, buffer.getvalue(), has_hash=False)


def _planned_list(rng):
    """A list with a factored plan, whose products share partial products and weights."""
    op = random_list(rng, products=30)
    op.update(weights=rng.integers(1, 4, 30))
    return LinearProblem(op.plan("factored"), rng.normal(size=24))


def _sample(name, document):
    document = _undated(document)
    return Sample(name, document, bytes(file_image(document)))


def _asgard_sample(name):
    """A file of ASGarD's: no checksums, no hash."""
    folder = Path(__file__).parents[2] / "data" / "asgard"
    return Sample(name, None, (folder / name).read_bytes())


def _rich_problem(rng):
    """Two axes, all datasets, every kind of function of time."""
    problem = make("continuity-2d", level=2, degree=1)
    spline = time.spline([0.0, 0.4, 1.0, 2.5], [1.0, -0.1, 1 / 7, 3.0])
    functions = [
        spline.derivative(),
        time.polynomial([0.1, 0.0, 1 / 3]),
        time.exp(-1.0) * time.cos(3.0) + 2.0 * spline,
    ]
    first, second = (term.modes for term in problem.terms)
    vectors = [
        SeparableVector(tuple(rng.normal(size=8) for _ in range(2)), function, explicit)
        for function, explicit in zip(functions, [False, True, True], strict=True)
    ]
    return dataclasses.replace(
        problem,
        name="zufällig ∇",
        terms=[
            *problem.terms,
            OperatorTerm((first[0], second[1]), functions[2]),
            OperatorTerm((None, None), time.constant(0.5)),
        ],
        sources=[*problem.sources, *vectors],
        initial=rng.normal(size=problem.unknowns),
        units={"x": "µm", "t": "s"},
        masses=[np.eye(2) + rng.random((4, 1, 1)), None],
        t0=0.1,
    )


def _bare_problem(rng):
    """One axis and nothing that may be left out."""
    problem = make("continuity-1d", level=1, degree=0)
    return Problem(
        "bare",
        problem.axes,
        0,
        problem.grid,
        [],
        [],
        rng.normal(size=problem.unknowns),
        stepper=StepperSettings("rk4", 0.1, 1.0),
    )


def result(rng, size=300):
    return ResultFile(
        u=rng.normal(size=size),
        t=0.1 * 3,
        status="completed",
        steps=12,
        dt=1 / 3,
        method="crank-nicolson",
        problem_hash="0123abcd",
        problem_name="Wärme",
        l2_error=1e-17,
        history=[{"step": 3, "norm": 0.1}, {"event": "completed"}],
    )


def checkpoint(rng, size=200):
    return Checkpoint(
        u=rng.normal(size=size),
        t0=0.1,
        dt=0.3,
        step=7,
        until=5.0,
        method="ssp-rk3",
        problem_hash="0123abcd",
        version="0.1.0",
        threads=4,
        instruction_set="avx2",
        dtype="float64",
        history=[{"event": "step", "t": 0.1 + 0.2}, None, [1, "∫"]],
    )


def _relaid(document):
    """The same content in small compressed chunks, of which HDF5 keeps account in many ways."""
    buffer = io.BytesIO(bytes(file_image(document)))
    with h5py.File(buffer, "r+", libver=("v110", "v110")) as file:
        for number, path in enumerate(document.datasets):
            dataset = file[path]
            if not dataset.size:
                continue
            value, datatype = dataset[()], dataset.dtype
            chunks = tuple(max(1, min(length, 3 + number % 4)) for length in dataset.shape)
            grows = [dataset.shape, (None, *dataset.shape[1:]), (None,) * dataset.ndim]
            del file[path]
            file.create_dataset(
                path,
                data=value,
                dtype=datatype,
                chunks=chunks,
                maxshape=grows[number % 3],
                compression=("gzip", None)[number % 2],
                shuffle=number % 4 < 2,
                fletcher32=True,
            )
    image = buffer.getvalue()
    kinds = [signature for signature in SIGNATURES if signature in image]
    assert len(kinds) >= 10, kinds  # of 15, so that damage reaches most of libhdf5's readers
    return image
