"""The fit of the costs of Kronecker-sparse kernels finds the costs that times were made with."""

import json
import shutil
from types import SimpleNamespace

import pytest
import source_benchmarks

from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

ROOT = source_benchmarks.ROOT
COSTS = ROOT / "batchkron" / "backends" / "cuda" / "costs" / "h100.json"
DEVICE = "NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors"
LIMITS = DeviceLimits(227 << 10, 132, 8, name=DEVICE)


def records(costs):
    cases = source_benchmarks.module("gpu.cases.sparse_cases")
    tiles = FAMILIES[0]
    for pattern in cases.FIRST:
        for layout in cases.LAYOUTS:
            case = cases.SparseCase(pattern, layout)
            shape = cases.shape_of(case, "float16")
            for variant in tiles.variants(shape, LIMITS)[::9]:
                kernel = tiles.kernel(shape, variant, LIMITS)
                seconds = tiles.seconds(tiles.work(shape, variant, LIMITS), costs)
                yield {
                    "case": case.name,
                    "pattern": pattern,
                    "layout": layout,
                    "dtype": "float16",
                    "family": "tiles",
                    "variant": list(variant),
                    "kernel": kernel.program.expression,
                    "microseconds": 1e6 * float(seconds),
                }


def test_fit(tmp_path, capsys):
    fit = source_benchmarks.module("gpu.fit_sparse")
    table = json.loads(COSTS.read_text())
    wanted = SimpleNamespace(**table["kron_sparse"]["tiles"])
    wanted.memory_rate *= 0.8
    wanted.fragment *= 1.3
    rows = list(records(wanted))
    gone = dict(rows[0], kernel="batchkron::kron_sparse_tiles<of another version>")
    measurements, costs = tmp_path / "measured.json", tmp_path / "costs.json"
    measurements.write_text(json.dumps({"device": DEVICE, "kernels": [*rows, gone]}))
    shutil.copy(COSTS, costs)
    fit.main([str(measurements), "--write", str(costs)])
    said = f"1 of {len(rows) + 1} kernels are not those of this version"
    assert said in capsys.readouterr().out
    written = json.loads(costs.read_text())
    found = written["kron_sparse"]["tiles"]
    assert found["memory_rate"] == pytest.approx(wanted.memory_rate, rel=0.05)
    assert found["fragment"] == pytest.approx(wanted.fragment, rel=0.1)
    assert written["kron_sparse"]["general"] == table["kron_sparse"]["general"]
    assert written["kron"] == table["kron"]
    assert found.keys() == vars(wanted).keys()
