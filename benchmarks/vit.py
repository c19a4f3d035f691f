"""Section 4 of Gonon, Zheng, Carrivain and Le (2024): ``python -m benchmarks.vit``."""

import copy
import math
import sys
from functools import partial
from itertools import chain, product

import torch
from torch import nn

from batchkron.torch import KroneckerSparseLinear
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.torch_layers import captured, microseconds

PATCH = 16  # pixels of a patch's side
# Models: width, blocks, heads; the feed-forward part is four times as wide. "T/16" is for trying.
SIZES = {"T/16": (48, 2, 3), "S/16": (384, 12, 6), "B/16": (768, 12, 12), "L/16": (1024, 24, 16)}
# Times over dense ones: bmm, the paper's kernel; S/16, float32, A100, 128 images of 224 pixels
PUBLISHED = {
    **{"linear N x N": (0.82, 0.50), "linear N x N, bias": (0.97, 0.66)},
    **{"linear 4N x N": (0.80, 0.78), "linear 4N x N, bias": (0.93, 0.90)},
    **{"linear N x 4N": (0.91, 0.58), "linear N x 4N, bias": (0.94, 0.61)},
    **{"feed-forward": (0.91, 0.77), "attention": (0.87, 0.79), "block": (0.90, 0.78)},
    "ViT": (0.89, 0.78),
}
FEED_FORWARD = "linear 4N x N, bias", "linear N x 4N, bias"
# Share of both feed-forward layers in a forward pass: float16, float32
PUBLISHED_SHARES = {"S/16": (0.31, 0.46), "B/16": (0.42, 0.54), "L/16": (0.46, 0.58)}
TOLERANCE = {"float16": 3e-2, "float32": 1e-4}  # relative to the largest entry, of float32


def patterns(rows, columns):
    """The paper's chains of two for N × N, 4N × N and N × 4N matrices, 24 | N."""
    if rows == columns:
        n = rows
        return [(1, n // 2, n // 8, 2), (2, n // 8, n // 2, 1)]
    n = min(rows, columns)
    wide = [(1, 2 * n, n // 2, 2), (6, n // 6, n // 6, 1)]
    return wide if rows > columns else [(a, c, b, d) for a, b, c, d in reversed(wide)]


class BmmLinear(nn.Module):
    """A chain by algorithm 1 of the paper: permute x, multiply blocks by bmm, permute y."""

    def __init__(self, layer):
        super().__init__()
        self.patterns = layer.patterns
        self.values = nn.ParameterList(  # (a d, c, b): transposed blocks
            nn.Parameter(v.detach().permute(0, 3, 2, 1).flatten(0, 1).contiguous())
            for v in layer.values
        )
        bias = layer.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.gelu = layer.activation is not None

    def forward(self, x):
        leading = x.shape[:-1]
        y = x.flatten(0, -2)
        for (a, b, c, d), blocks in zip(
            reversed(self.patterns), reversed(list(self.values)), strict=True
        ):
            count = y.shape[0]
            inputs = y.reshape(count, a, c, d).permute(1, 3, 0, 2).reshape(a * d, count, c)
            outputs = torch.bmm(inputs, blocks).reshape(a, d, count, b)
            y = outputs.permute(2, 0, 3, 1).reshape(count, a * b * d)
        y = y.reshape(*leading, -1)
        if self.bias is not None:
            y = y + self.bias
        return nn.functional.gelu(y) if self.gelu else y


class GeluLinear(nn.Linear):
    """A dense layer and a GELU."""

    def forward(self, x):
        return nn.functional.gelu(super().forward(x))


def dense_linear(layer):
    bias = layer.bias
    kind = nn.Linear if layer.activation is None else GeluLinear
    dense = kind(layer.in_features, layer.out_features, bias is not None)
    with torch.no_grad():
        dense.weight.copy_(layer.dense_weight())
        if bias is not None:
            dense.bias.copy_(bias)
    return dense


def sparse_linear(columns, rows, bias, gelu=False):
    activation = "gelu" if gelu else None
    return KroneckerSparseLinear(patterns(rows, columns), bias=bias, activation=activation)


class FeedForward(nn.Module):
    """Norm, a layer to four times the width, GELU, and a layer back."""

    def __init__(self, width, linear):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = linear(width, 4 * width, True, gelu=True)
        self.narrow = linear(4 * width, width, True)

    def forward(self, x):
        return self.narrow(self.wide(self.norm(x)))


class Attention(nn.Module):
    """Self-attention; query, key and value are layers of their own, the projection is dense."""

    def __init__(self, width, heads, linear):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.query, self.key, self.value = (linear(width, width, False) for _ in range(3))
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, x):
        normed = self.norm(x)
        parts = [
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        found = nn.functional.scaled_dot_product_attention(*parts)
        return self.project(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and the feed-forward part, added to what they are given."""

    def __init__(self, width, heads, linear):
        super().__init__()
        self.attention = Attention(width, heads, linear)
        self.feed_forward = FeedForward(width, linear)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.feed_forward(x)


class ViT(nn.Module):
    """Patches with fixed positions, blocks, their mean, and a dense head of 1000 classes."""

    def __init__(self, size, pixels, linear):
        super().__init__()
        width, depth, heads = SIZES[size]
        self.embed = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.register_buffer("places", positions((pixels // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, linear) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


def positions(count, width):
    rates = torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2))
    angles = torch.arange(count)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def twin(model, change):
    """A copy of a model in which each Kronecker-sparse layer is another one."""
    if isinstance(model, KroneckerSparseLinear):
        return change(model)
    copied = copy.deepcopy(model)
    for name, child in model.named_children():
        setattr(copied, name, twin(child, change))
    return copied


def models(size, pixels):
    n, _, heads = SIZES[size]
    shapes = {"linear N x N": (n, n), "linear 4N x N": (n, 4 * n), "linear N x 4N": (4 * n, n)}
    return {
        **{name: partial(sparse_linear, *own, False) for name, own in shapes.items()},
        **{f"{name}, bias": partial(sparse_linear, *own, True) for name, own in shapes.items()},
        "feed-forward": lambda: FeedForward(n, sparse_linear),
        "attention": lambda: Attention(n, heads, sparse_linear),
        "block": lambda: Block(n, heads, sparse_linear),
        "ViT": lambda: ViT(size, pixels, sparse_linear),
    }


def inputs(name, options, dtype):
    if name == "ViT":
        shape = (options.images, 3, options.pixels, options.pixels)
    else:
        width = SIZES[options.size][0] * (4 if "N x 4N" in name else 1)
        shape = (options.images, (options.pixels // PATCH) ** 2, width)
    return torch.randn(*shape).to(options.device, dtype)


def forward(model, x):
    with torch.no_grad():
        return model(x)


def backward(model, x, gradient):
    model.zero_grad()
    given = x.detach().requires_grad_()
    model(given).backward(gradient)
    return given.grad


def measured(name, dtype, options):
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    ours = models(options.size, options.pixels)[name]()
    changed = {"dense": twin(ours, dense_linear), "bmm": twin(ours, BmmLinear), "ours": ours}
    x = inputs(name, options, kind)
    wide = {who: model.to(options.device) for who, model in changed.items()}
    exact = forward(wide["dense"], x.float())
    gradient = torch.randn_like(exact) / exact.numel() ** 0.5
    exact_gradient = backward(wide["dense"], x.float(), gradient)
    contenders = {who: model.to(kind) for who, model in wide.items()}
    published = PUBLISHED[name] if options.size == "S/16" and dtype == "float32" else None
    works = {
        "forward": lambda model: forward(model, x),
        "both": lambda model: backward(model, x, gradient.to(kind)),
    }
    for direction, how in product(options.directions, options.how):
        expected = exact if direction == "forward" else exact_gradient
        shown = direction if how == "eager" else f"{direction}, {how}"
        remarks = []
        calls = {}
        for who, model in contenders.items():
            run = partial(works[direction], model)
            try:
                if how == "graph":
                    run = captured(run)
                result = run()
            except (TypeError, RuntimeError) as error:  # no kernels of this dtype, or no memory
                remarks.append(f"{who}: {type(error).__name__}")
                continue
            if not relative_error(result.float(), expected) <= TOLERANCE[dtype]:
                remarks.append(f"{who}: wrong")
                continue
            calls[who] = run
        times = microseconds(calls, options.rounds, options.device)
        found = {who: t / 1e3 for who, t in times.items() if t is not None}
        base, known = found.get("dense"), published if shown == "forward" else None
        row = {"name": name, "dtype": dtype, "direction": shown, "milliseconds": found}
        row["over dense"] = {who: time / base for who, time in found.items() if base}
        yield row | {"published": known, "remarks": remarks}


def shares(rows, size):
    depth, published = SIZES[size][1], PUBLISHED_SHARES.get(size)
    for k, dtype in enumerate(("float16", "float32")):
        times = {
            row["name"]: row["milliseconds"].get("dense")
            for row in rows
            if (row["dtype"], row["direction"]) == (dtype, "forward")
        }
        *both, whole = map(times.get, (*FEED_FORWARD, "ViT"))
        if None not in (*both, whole):
            known = f" (published {published[k]:.2f})" if published else ""
            yield f"feed-forward layers, {dtype}: {depth * sum(both) / whole:.2f}{known}"


def main(arguments=None):
    parser = parser_of(__doc__, "device", "rounds", "json", rounds=15)
    add, both = parser.add_argument, ["forward", "both"]
    add("--size", choices=list(SIZES), default="S/16")
    add("--pixels", type=int, default=224, help="of an image's side")
    add("--parts", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    add("--dtypes", nargs="+", choices=list(TOLERANCE))
    add("--directions", nargs="+", choices=both, default=both)
    how = "calls as they are, or CUDA graphs of them; both on a device"
    add("--how", nargs="+", choices=["eager", "graph"], help=how)
    options = parser.parse_args(arguments)
    on_device = options.device == "cuda"
    options.images = 128 if on_device else 1
    options.dtypes = options.dtypes or (["float32", "float16"] if on_device else ["float32"])
    options.how = options.how or (["eager", "graph"] if on_device else ["eager"])
    if "graph" in options.how and not on_device:
        parser.error("--how graph needs --device cuda")
    print(f"torch {torch.__version__} on {options.device}")
    print(f"ViT-{options.size}, images: {options.images}")
    given = {name: getattr(options, name) for name in ("size", "images", "device")}
    cells = product(options.dtypes, options.parts)
    found = chain.from_iterable(measured(name, dtype, options) for dtype, name in cells)
    rows = recorded(found, options.json, {"machine": machine(options.device), **given}, "rows")
    for line in shares(rows, options.size):
        print(line)
    if any("wrong" in remark for row in rows for remark in row["remarks"]):
        sys.exit("results differ")


if __name__ == "__main__":
    main()
