"""The benchmark of the vision transformer: right on a small one, and wrong results are found."""

import json

import pytest
import source_benchmarks

torch = pytest.importorskip("torch")

SMALL = ["--size", "T/16", "--pixels", "32", "--rounds", "1"]


@pytest.fixture(scope="module")
def vit():
    return source_benchmarks.module("vit")


@pytest.fixture
def short(monkeypatch):
    """A call is a turn."""
    monkeypatch.setattr(source_benchmarks.module("torch_layers"), "ROUND_SECONDS", 1e-6)


def test_a_run(vit, short, tmp_path, capsys):
    file = tmp_path / "times.json"
    vit.main([*SMALL, "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows[::2]] == list(vit.PUBLISHED)
    for row in rows:
        assert set(row["milliseconds"]) == {"dense", "bmm", "ours"}
        assert not row["remarks"]
    assert "feed-forward layers, float32: " in capsys.readouterr().out


@pytest.mark.parametrize("n", [24, 48, 384])
def test_patterns_are_those_of_the_paper(vit, n):
    for rows, columns in ((n, n), (4 * n, n), (n, 4 * n)):
        layer = vit.sparse_linear(columns, rows, bias=False)
        assert (layer.out_features, layer.in_features) == (rows, columns)
    if n == 384:
        assert vit.patterns(n, n) == [(1, 192, 48, 2), (2, 48, 192, 1)]
        assert vit.patterns(4 * n, n) == [(1, 768, 192, 2), (6, 64, 64, 1)]
        assert vit.patterns(n, 4 * n) == [(6, 64, 64, 1), (1, 192, 768, 2)]


def test_twins_have_the_same_gradients(vit):
    torch.manual_seed(1)
    ours = vit.FeedForward(24, vit.sparse_linear)
    x = torch.randn(2, 5, 24)
    gradient = torch.randn(2, 5, 24)
    found = vit.backward(ours, x, gradient)
    for change in (vit.dense_linear, vit.BmmLinear):
        other = vit.twin(ours, change)
        assert not any(isinstance(m, type(ours.wide)) for m in other.modules())
        own = vit.backward(other, x, gradient)
        assert vit.relative_error(own, found) <= vit.TOLERANCE["float32"]
        assert torch.allclose(other.wide.bias.grad, ours.wide.bias.grad, atol=1e-5)


def test_the_gelu_is_in_the_layer(vit):
    ours = vit.FeedForward(24, vit.sparse_linear)
    assert (ours.wide.activation, ours.narrow.activation) == ("gelu", None)
    x = torch.randn(3, 24)
    y = ours.narrow(torch.nn.functional.gelu(vit.dense_linear(ours.wide)(ours.norm(x))))
    assert not torch.allclose(y, ours(x), atol=1e-3)  # twice is not once
    plain = torch.nn.functional.linear(ours.norm(x), ours.wide.dense_weight(), ours.wide.bias)
    assert torch.allclose(ours.narrow(torch.nn.functional.gelu(plain)), ours(x), atol=1e-4)


def test_graphs_need_a_device(vit, capsys):
    with pytest.raises(SystemExit):
        vit.main([*SMALL, "--how", "graph"])
    assert "--how graph needs --device cuda" in capsys.readouterr().err


def test_wrong_results_are_found(vit, short, monkeypatch):
    monkeypatch.setattr(vit.BmmLinear, "forward", lambda self, x: 2 * x)
    with pytest.raises(SystemExit, match="results differ"):
        vit.main([*SMALL, "--parts", "linear N x N", "--directions", "forward"])


def test_what_cannot_run_is_named(vit, short, capsys, monkeypatch):
    def refuse(layer, x):
        raise TypeError("no kernels of this dtype")

    monkeypatch.setattr(vit.BmmLinear, "forward", refuse)
    vit.main([*SMALL, "--parts", "linear N x N"])
    shown = capsys.readouterr().out
    assert "bmm: TypeError" in shown
    assert "over dense (dense 1, ours " in shown
