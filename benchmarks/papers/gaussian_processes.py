"""Table 5 of FastKron (Jangda and Yadav, PPoPP 2024): GPyTorch's SKI, SKIP and LOVE.

The paper's program for SKIP runs SKI unchanged: the row of SKIP has the times of SKI. Its LOVE is
SKI behind a neural network. What LOVE is for, predictions with variances, is a second table.
"""

import math
import statistics
import sys
import time
import warnings
from itertools import product

import gpytorch
import torch
from gpytorch.utils.grid import create_grid

from benchmarks.core.options import parser_of
from benchmarks.core.records import earlier, machine, save
from benchmarks.core.tables import head, row
from benchmarks.gaussian_processes import (
    CASES,
    QUICK,
    WAYS,
    Training,
    add_dtypes_and_epochs,
    measure,
    settings,
)
from benchmarks.torch_layers import synchronize

MODELS = ("SKI", "LOVE")
PREDICTED = ("GPyTorch", "interpolated")  # the ways of predictions: products alone change little
TESTED = 1000  # points of a prediction, or fewer where a data set has fewer that are not trained
# Elements that GPyTorch keeps on the grid, and of its windows, for a prediction.
MAX_KEPT = {"cpu": 1 << 27, "cuda": 1 << 32}
ROUNDS = 3  # of a prediction; the first one, which compiles kernels, counts only if it took
MAX_ROUND_SECONDS = 5.0  # longer than this
# The largest data set comes last: it takes longest, and by GPyTorch it runs out of memory.
ORDER = [
    *(name for name, case in CASES.items() if case.published and not name.startswith("kin40k")),
    "kin40k 8^8",
]


class Prediction:
    """A model with what it keeps for predictions, in one of the ways."""

    def __init__(self, case, way, options, dtype):
        training = Training(case, "LOVE", way, options, dtype)
        self.model, self.context, self.device = training.model, training.context, options.device
        count = max(1, min(TESTED, case.points - len(training.x)))
        torch.manual_seed(3)
        self.points = [
            torch.rand(count, case.dimensions, dtype=torch.float64).mul(2).sub(1).to(training.x)
            for _ in range(ROUNDS)
        ]
        self.fix_grid([training.x, *self.points])

    def fix_grid(self, points):
        """Give the kernel one grid for all points.

        A kernel without given bounds chooses grids anew within a prediction, and GPyTorch then
        reads what it keeps on one of them by windows on another: its means are wrong by per cents.
        """
        kernel = self.model.covar_module.base_kernel
        self.model.eval()
        with torch.no_grad():
            places = [self.model.features(some).aminmax(dim=0) for some in points]
        lower = torch.stack([place.min for place in places]).amin(0).double()
        upper = torch.stack([place.max for place in places]).amax(0).double()
        # Two intervals and some more are beyond the points, as in GPyTorch's choice.
        margin = 2.02 * (upper - lower) / (kernel.grid_sizes[0] - 4.04)
        kernel.grid_bounds = tuple(
            zip((lower - margin).tolist(), (upper + margin).tolist(), strict=True)
        )
        made = {"dtype": kernel.grid[0].dtype, "device": kernel.grid[0].device}
        kernel.update_grid(create_grid(kernel.grid_sizes, kernel.grid_bounds, **made))
        kernel.has_initialized_grid.fill_(True)
        kernel.grid_is_dynamic = False

    def forget(self):
        self.model.train()
        self.model.eval()

    def predict(self, points):
        torch.manual_seed(4)
        synchronize(self.device)
        began = time.perf_counter()
        with self.context(), torch.no_grad(), gpytorch.settings.fast_pred_var():
            found = self.model(points)
            result = found.mean, found.variance
            synchronize(self.device)
        return time.perf_counter() - began, result


def peak_bytes(device):
    """The most memory that torch has had on the device, with that of CuPy's pool; None on a CPU."""
    if device != "cuda":
        return None
    cupy = sys.modules.get("cupy")
    pool = 0 if cupy is None else cupy.get_default_memory_pool().total_bytes()
    return int(torch.cuda.max_memory_allocated()) + int(pool)


def free(device):
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def kept_elements(case, trained):
    """Elements that GPyTorch keeps on the grid and in windows, of the larger of both."""
    columns = trained if trained <= 800 else 100  # Cholesky's method, or Lanczos's
    return max(case.size**case.dimensions * columns, trained * 4**case.dimensions)


def _times(made):
    first = []
    for _ in range(ROUNDS):
        made.forget()
        elapsed, result = made.predict(made.points[0])
        first.append(elapsed)
        if elapsed > MAX_ROUND_SECONDS:
            break
    after = [made.predict(points)[0] for points in made.points]
    times = {
        "first": 1e3 * statistics.median(first[1:] or first),
        "next": 1e3 * statistics.median(after),
        "bytes": peak_bytes(made.device),
    }
    return times, result, float(made.model.covar_module.outputscale)


def differences(found, expected, prior):
    """How far means and variances are from the expected ones; ``prior``: the variance without data.

    Means by the range of those expected; deviations by the one without data: a variance is a
    difference of numbers of that size, and relative to itself may have no digit in float32.
    """
    (mean, variance), (their_mean, their_variance) = found, expected
    spread = float(their_mean.max() - their_mean.min()) or 1.0
    roots = [one.clamp(min=0).sqrt() for one in (variance, their_variance)]
    return {
        "mean": float((mean - their_mean).abs().max()) / spread,
        "deviation": float((roots[0] - roots[1]).abs().max()) / math.sqrt(prior),
    }


def predictions(case, trained, dtype, options):
    found = {}
    results = {}
    prior = 1.0
    for way in PREDICTED:
        elements = kept_elements(case, trained)
        if way == "GPyTorch" and elements > MAX_KEPT[options.device]:
            found[way] = {"failed": f"{elements:.1e} elements"}
            continue
        free(options.device)
        try:
            found[way], results[way], prior = _times(
                Prediction(case, way, options, getattr(torch, dtype))
            )
        except (RuntimeError, MemoryError) as error:  # out of memory: named and left out
            found[way] = {"failed": type(error).__name__}
    if len(results) == 2:
        found["differences"] = differences(results["interpolated"], results["GPyTorch"], prior)
    return found


def measure_missing(report, chosen, options):
    begun = time.perf_counter()
    for name, model, dtype in product(chosen, MODELS, options.dtypes):
        key, case = f"{name} {model} {dtype}", chosen[name]
        if key in report["cells"]:
            continue
        if time.perf_counter() - begun > options.seconds:
            yield f"{key}: not begun after {options.seconds:g} s; run it again"
            return
        started = time.perf_counter()
        free(options.device)
        with settings():
            cell = measure(name, case, model, dtype, options)
        if model == "LOVE":
            cell["predictions"] = predictions(case, cell["trained"], dtype, options)
        report["cells"][key] = cell
        taken = time.perf_counter() - started
        yield f"{key}: {taken:.0f} s; {'; '.join(cell['remarks'])}"


def number(value, digits=3):
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def steps_table(report, dtype, names):
    columns = ["data set, grid", "points", "model", *(f"{way}, ms" for way in WAYS)]
    yield head([*columns, "published factor", "product", "bound", "interpolated"])
    for name, model in product(names, ("SKI", "SKIP", "LOVE")):
        cell = report["cells"].get(f"{name} {'SKI' if model == 'SKIP' else model} {dtype}")
        if cell is None:
            continue
        times = cell["milliseconds"]
        base = times.get("GPyTorch", math.nan)
        factors = [base / times.get(way, math.nan) for way in ("product", "bound", "interpolated")]
        published = cell["published"].get(model)
        numbers = map(number, [*(times.get(way) for way in WAYS), published, *factors])
        yield row([name, cell["trained"], model, *numbers])


def predictions_table(report, dtype, names):
    columns = ["data set, grid", "points"]
    columns += [f"{way}: {what}" for what in ("first, ms", "next, ms", "MiB") for way in PREDICTED]
    yield head([*columns, "difference of the mean", "of the deviation"])
    for name in names:
        cell = report["cells"].get(f"{name} LOVE {dtype}")
        if cell is None:
            continue
        found, texts = cell["predictions"], [name, cell["trained"]]
        for what in ("first", "next"):
            texts += [found[way].get("failed") or number(found[way][what]) for way in PREDICTED]
        taken = (found[way].get("bytes") for way in PREDICTED)
        texts += [number(None if one is None else one / 2**20) for one in taken]
        # Files of earlier runs have one number, relative to the variance itself.
        apart = found.get("differences", {})
        yield row([*texts, *(number(apart.get(what), 2) for what in ("mean", "deviation"))])


def main(arguments=None):
    parser = parser_of(__doc__, "device", "json", "quick", "seconds", device=None, seconds=240.0)
    parser.add_argument("--cases", nargs="+", choices=ORDER, default=ORDER)
    add_dtypes_and_epochs(parser, 5)
    options = parser.parse_args(arguments)
    chosen = QUICK if options.quick else {name: CASES[name] for name in options.cases}
    here = machine(options.device) if options.device else {}
    kept = earlier(options.json, here, *(("device", "processor") if here else ()))
    report = {"cells": {}, **kept}
    if options.device:
        report |= {"machine": here, "device": here.get("device", here.get("processor"))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of GPyTorch: iterations end before they converge
            for text in measure_missing(report, chosen, options):
                print(text, flush=True)
                save(options.json, report)
    if not report["cells"]:
        sys.exit("nothing was measured: give --device, or a file by --json")
    for dtype in options.dtypes:
        print(f"\n{dtype}: a training step\n")
        print("\n".join(steps_table(report, dtype, list(chosen))))
        print(f"\n{dtype}: predictions with variances (LOVE)\n")
        print("\n".join(predictions_table(report, dtype, list(chosen))))
    remarks = [text for cell in report["cells"].values() for text in cell["remarks"]]
    return int(any("differs" in text for text in remarks))


if __name__ == "__main__":
    sys.exit(main())
