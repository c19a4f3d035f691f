"""The benchmark of chains of Kronecker-sparse matrices."""

import json

import numpy as np
import pytest
import source_benchmarks

import batchkron as bk


@pytest.fixture
def chains():
    return source_benchmarks.module("kronecker_chains")


def test_it_measures_and_writes(chains, tmp_path, capsys):
    path = tmp_path / "chains.json"
    options = ["--batch", "9", "--json", str(path), "--chain", "10 of 2 × 2"]
    assert chains.main([*options, "--chain", "a layer of ViT"]) == 0
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 8  # chains, dtypes, layouts
    for cell in cells:
        assert set(cell["seconds"]) == {"chain", "factors"}
        butterfly = cell["chain"] == "10 of 2 × 2"
        assert len(cell["multiplied_out"]) in ((2, 3) if butterfly else (2,))
    assert capsys.readouterr().out.count("chain 10 of 2 × 2, ") == 4


def test_portions_are_all_vectors(chains, rng, monkeypatch):
    monkeypatch.setattr(chains, "PORTIONS", (1 << 12,))
    chain = bk.KroneckerSparseChain([rng.standard_normal(p) for p in [(1, 3, 4, 4), (4, 4, 5, 1)]])
    x = rng.standard_normal((77, 20))
    vectors = [np.full((77, 12), np.nan), np.full((77, 16), np.nan)]
    calls = chains.calls_of(chain, x, vectors, True)
    assert list(calls) == ["chain", "factors", "portions of 0 MiB"]
    for call in calls.values():
        vectors[0][...] = np.nan
        call()
        np.testing.assert_allclose(vectors[0], x @ chain.to_dense().T, atol=1e-12)
