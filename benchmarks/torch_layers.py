"""Functions of batchkron.torch: ``python -m benchmarks.torch_layers [--device cuda]``.

A chain of torch's products is compiled in a limited time: first in a process of its own. What
Inductor compiles there is in its cache on the disk, from which the own process takes it.
"""

import importlib
import math
import os
import signal
import statistics
import subprocess
import sys
import warnings
from functools import partial
from itertools import product

import torch

import batchkron as bk
from batchkron.torch import kron_matmul
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import in_turn, medians, nothing
from benchmarks.shapes import chain, square_shapes

READY = "ready"


def operands(task, device):
    count, sizes, dtype = task
    torch.manual_seed(0)
    made = {"dtype": getattr(torch, dtype), "device": device}
    x = torch.randn(count, math.prod(sizes), **made, requires_grad=True)
    factors = [(torch.randn(n, n, **made) / math.sqrt(n)).requires_grad_() for n in sizes]
    return x, factors, torch.randn(count, math.prod(sizes), **made)


def with_gradients(function, x, factors, g):
    """The product, and the gradients of x and all factors.

    Without its history: that of a call on another stream must not take part in a captured one.
    """
    y = function(x, factors)
    gradients = torch.autograd.grad(y, (x, *factors), g)
    return y.detach(), *gradients


def compiled(function, backend):
    return torch.compile(function, backend=backend, dynamic=False)


def failure(task, device, backend, seconds):
    """Compile a chain and its gradients in a process; why that was not possible, or ""."""
    # not by multiprocessing: with its module "__mp_main__" the keys of the cache are others
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from benchmarks.torch_layers import work; "
        f"work({task!r}, {device!r}, {backend!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    while (line := process.stdout.readline()) and line.strip() != READY:
        pass
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
        process.communicate()
        return f"took over {seconds:g} s to compile"
    if process.returncode:
        return f"the process that compiles has ended with status {process.returncode}"
    return said.strip().rpartition("\n")[2]


def work(task, device, backend):
    warnings.simplefilter("ignore")
    given = operands(task, device)
    print(READY, flush=True)
    try:
        with_gradients(compiled(chain, backend), *given)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        print(f"{type(error).__name__}: {text[:100]}")


# Rows, and the sizes of square factors: FastKron's, and small and uneven ones.
SHAPES = square_shapes(
    "1024: 8^5; 16^4; 32^3; 64^2; 128^2 | 16: 64^3; 32^4 | 1024: 3^7 | 20: 2^9 | 4: 8^3 | 48: 24^3"
    "| 33: 3, 5, 4, 6"
)
MAX_CPU_ELEMENTS = 1 << 23  # of x on the CPU; shapes with more have fewer rows there
COMPILED = "chain, compiled"
GRAPH = ", graph"  # what the name of a contender ends in if it is a CUDA graph
ROUND_SECONDS = 0.02  # about the length of one contender's turn
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11}  # relative to the largest entry


def linear_operator_product(x, factors):
    operators = importlib.import_module("linear_operator.operators")
    dense = [operators.DenseLinearOperator(factor.mT) for factor in factors]
    return (operators.KroneckerProductLinearOperator(*dense) @ x.mT).mT


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def captured(call):
    """A call that replays the launches of another one, and returns the same results in place."""
    torch.cuda.empty_cache()  # a graph has memory of its own
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles, plans and allocates
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay():
        graph.replay()
        return result

    return replay


def microseconds(calls, rounds, device):
    wait = torch.cuda.synchronize if device == "cuda" else nothing
    times = medians(in_turn(calls, rounds, ROUND_SECONDS, wait))
    return {name: 1e6 * time for name, time in times.items()}


def empty_operator():
    """A registered operator with the signature of ours that returns an empty tensor."""
    library = torch.library.Library("batchkron_benchmark", "DEF")
    lists = "Tensor[] arguments, Tensor[] lists, SymInt[] numbers"
    library.define(f"nothing(Tensor x, {lists}) -> Tensor")

    def nothing(x, arguments, lists, numbers):
        return x.new_empty(x.shape)

    for device in ("CPU", "CUDA"):
        library.impl("nothing", nothing, device)
    torch.library.register_autograd(
        "batchkron_benchmark::nothing",
        lambda ctx, gradient: (gradient, [], [], []),
        setup_context=lambda ctx, inputs, output: None,
        lib=library,
    )
    return library, torch.ops.batchkron_benchmark.nothing.default


def overheads(device, rounds):
    kept, nothing_at_all = empty_operator()
    tiny = {"1: 2^2": (1, (2, 2)), "4: 4^3": (4, (4, 4, 4))}
    for (name, (count, sizes)), dtype in product(tiny.items(), ("float32", "float64")):
        made = {"dtype": getattr(torch, dtype), "device": device}
        x = torch.randn(count, math.prod(sizes), **made)
        factors = [torch.randn(n, n, **made) for n in sizes]
        module = importlib.import_module("cupy" if device == "cuda" else "numpy")
        arrays = [module.from_dlpack(one) for one in (x, *factors)]
        ours = partial(bk.gemkm, arrays[0], arrays[1:])
        calls = {"ours on arrays": ours}
        calls["empty operator"] = partial(nothing_at_all, x, factors, [], [])
        calls["ours in torch"] = partial(kron_matmul, x, factors)
        found = microseconds(calls, rounds, device)
        values = [time or 0.0 for time in found.values()]
        remark = f"beyond both: {values[2] - values[0] - values[1]:.1f} µs"
        yield row_of(name, dtype, found, [remark])
    del kept


def is_wrong(found, expected):
    return any(
        not relative_error(one.double(), other) <= TOLERANCE[one.dtype]
        for one, other in zip(found, expected, strict=True)
    )


def contenders(compile_backend):
    found = {"ours": kron_matmul, "chain": chain}
    if compile_backend != "none":
        found[COMPILED] = compiled(chain, compile_backend)
    try:
        importlib.import_module("linear_operator")
    except ImportError:
        print("linear_operator is not installed: not measured", file=sys.stderr)
    else:
        found["linear_operator"] = linear_operator_product
    return found


def products(device, rounds, names, backend, limit, graphs):
    for name in names:
        count, sizes = SHAPES[name]
        columns = math.prod(sizes)
        remarks = []
        if device == "cpu" and count * columns > MAX_CPU_ELEMENTS:
            count = max(1, MAX_CPU_ELEMENTS // columns)
            remarks.append(f"{count} rows")
        for dtype in (torch.float32, torch.float64):
            task = count, sizes, str(dtype).removeprefix("torch.")
            x, factors, g = operands(task, device)
            exact = [one.detach().double().requires_grad_() for one in (x, *factors)]
            expected = with_gradients(chain, exact[0], exact[1:], g.double())
            calls = {}
            notes, by = list(remarks), backend
            if by != "none" and (why := failure(task, device, by, limit)):
                notes.append(f"{COMPILED}: {why}")
                by = "none"
            torch.compiler.reset()
            for who, function in contenders(by).items():
                call = partial(with_gradients, function, x, factors, g)
                try:
                    result = call()
                except Exception as error:  # a peer that fails is named and left out
                    notes.append(f"{who}: {type(error).__name__}")
                    continue
                if is_wrong(result, expected):
                    notes.append(f"{who}: wrong")
                    continue
                calls[who] = call
            del expected
            if graphs:
                eager = {who: calls[who] for who in ("ours", "chain") if who in calls}
                calls |= {who + GRAPH: captured(call) for who, call in eager.items()}
            found = microseconds(calls, rounds, device)
            for kind in ("", GRAPH) if graphs else ("",):
                ratio = best_ratio(found, kind)
                if ratio is not None:
                    notes.append(f"best peer / ours{kind}: {ratio:.2f}")
            yield row_of(name, task[2], found, notes)


def best_ratio(microseconds, kind=""):
    """The time of the fastest peer over ours: of calls, or of graphs; None without both."""
    ours = microseconds.get("ours" + kind)
    peers = [
        time
        for who, time in microseconds.items()
        if time is not None and who != "ours" + kind and who.endswith(GRAPH) == bool(kind)
    ]
    return min(peers) / ours if ours and peers else None


def row_of(name, dtype, times, remarks):
    return {"name": name, "dtype": dtype, "microseconds": times, "remarks": remarks}


def main(arguments=None):
    parser = parser_of(__doc__, "device", "rounds", "json", rounds=15)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    add = parser.add_argument
    add("--compile", default="inductor", help="backend of torch.compile; 'none' leaves it out")
    add("--compile-seconds", type=float, default=60.0, help="the limit for one shape and dtype")
    add("--graphs", action="store_true", help="measure CUDA graphs of the same calls, too")
    options = parser.parse_args(arguments)
    if options.graphs and options.device != "cuda":
        parser.error("--graphs needs --device cuda")
    warnings.simplefilter("ignore")  # of peers
    print(f"torch {torch.__version__} on {options.device}, {torch.get_num_threads()} threads")
    print("a call without gradients")
    about = {"machine": machine(options.device)}
    about["calls"] = recorded(overheads(options.device, options.rounds), None, about)
    print("a product and all its gradients")
    how = options.compile, options.compile_seconds, options.graphs
    rows = products(options.device, options.rounds, options.shapes, *how)
    second = recorded(rows, options.json, about, "products")
    ratios = [ratio for row in second if (ratio := best_ratio(row["microseconds"])) is not None]
    if ratios:
        print(f"best peer / ours: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
