# SPDX-License-Identifier: Apache-2.0
"""Programs written by hand: arithmetic of sizes, random draws of training, refusals, and files that are damaged."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.frontend.torch.archive import read_archive
from memc.frontend.torch.graph import Graph, Input, Location, Meta, Node, Output, Ref, Weight
from memc.frontend.torch.importer import import_torch
from memc.ir.core import Role
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.ir.types import DType

DATA = Path(__file__).parent / "data"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def graph(*nodes: Node, result: str, **weights: Any) -> Graph:
    """A program of an input x f32[2,3]."""
    metas = {"x": Meta(DType.F32, (2, 3), (3, 1))}
    inputs = [Input("x", "input"), *(Input(name, "parameter", name) for name in weights)]
    stored = {name: Weight(lambda a=array: a, name, True) for name, array in weights.items()}
    return Graph(inputs, list(nodes), [Output(Ref(result))], metas, stored)


def call(name: str, target: str, *args: Any, **named: Any) -> Node:
    given = {**{str(n): arg for n, arg in enumerate(args)}, **named}
    return Node(name, target, given, [name], Location("net.layer", "net.py:7"))


SIZES = {
    "operator.add": (lambda a, b: a + b),
    "operator.sub": (lambda a, b: a - b),
    "operator.mul": (lambda a, b: a * b),
    "operator.floordiv": (lambda a, b: a // b),
    "operator.truediv": (lambda a, b: a / b),
    "operator.mod": (lambda a, b: a % b),
    "operator.pow": (lambda a, b: a**b),
    "operator.eq": (lambda a, b: a == b),
    "operator.ne": (lambda a, b: a != b),
    "operator.lt": (lambda a, b: a < b),
    "operator.le": (lambda a, b: a <= b),
    "operator.gt": (lambda a, b: a > b),
    "operator.ge": (lambda a, b: a >= b),
    "operator.and_": (lambda a, b: a & b),
    "operator.or_": (lambda a, b: a | b),
    "torch.sym_max": max,
    "torch.sym_min": min,
}

SINGLE = {
    "operator.neg": (lambda a: -a),
    "operator.not_": (lambda a: not a),
    "torch.sym_not": (lambda a: not a),
    "torch.sym_float": float,
    "torch.sym_int": int,
    "math.trunc": int,
}


@pytest.mark.parametrize("target", [*SIZES, *SINGLE])
def test_arithmetic_of_sizes(target: str) -> None:
    nodes = [
        call("n", "aten.sym_numel.default", self=Ref("x")),
        call("k", "aten.sym_size.int", self=Ref("x"), dim=-1),
        call("s", target, Ref("n"), *([Ref("k")] if target in SIZES else [])),
        call("y", "aten.mul.Tensor", self=Ref("x"), other=Ref("s")),
    ]
    wanted = SIZES[target](6, 3) if target in SIZES else SINGLE[target](6)
    result = evaluate(import_torch(graph(*nodes, result="y")), {"x": X})["output"]
    np.testing.assert_array_equal(result, X * np.float32(wanted))


DRAWS = {
    "aten.dropout.default": ({"input": Ref("w"), "p": 0.5, "train": True}, {0.0, 2.0}),
    "aten.feature_dropout.default": ({"input": Ref("w"), "p": 0.5, "train": True}, {0.0, 2.0}),
    "aten.native_dropout.default": ({"input": Ref("w"), "p": 0.5, "train": True}, {0.0, 2.0}),
    "aten.bernoulli.p": ({"self": Ref("w"), "p": 0.5}, {0.0, 1.0}),
    "aten.bernoulli.float": ({"self": Ref("w"), "p": 0.5}, {0.0, 1.0}),
    "aten.bernoulli.default": ({"self": Ref("half")}, {0.0, 1.0}),
}


@pytest.mark.parametrize("target", DRAWS)
def test_masks_of_training(target: str) -> None:
    args, found = DRAWS[target]
    packed = "native" in target
    node = Node("d", target, args, ["d", "mask"] if packed else ["d"])
    half = call("half", "aten.mul.Tensor", self=Ref("w"), other=0.5)
    module = import_torch(graph(half, node, result="d", w=np.ones((8, 16, 2), np.float32)), trainable=True)
    values = evaluate(module, {"x": X})["output"]
    assert set(np.unique(values)) == found
    assert 0.3 < np.mean(values == 0) < 0.7
    if "feature" in target:
        assert (values[..., :1] == values).all()
    with pytest.raises(UnsupportedError, match=r"net|d`.*training steps only"):
        import_torch(graph(half, node, result="d", w=np.ones((8, 16, 2), np.float32)))


NUMBERS = {
    "aten.rand.default": ({"size": [50, 40]}, (0.5, 1 / 12)),
    "aten.rand_like.default": ({"self": Ref("w")}, (0.5, 1 / 12)),
    "aten.randn.default": ({"size": [50, 40]}, (0.0, 1.0)),
    "aten.randn_like.default": ({"self": Ref("w")}, (0.0, 1.0)),
    "aten.uniform.default": ({"self": Ref("w"), "from": -1.0, "to": 3.0}, (1.0, 16 / 12)),
}


@pytest.mark.parametrize("target", NUMBERS)
def test_random_numbers_of_training(target: str) -> None:
    args, (mean, variance) = NUMBERS[target]
    program = graph(Node("d", target, args, ["d"]), result="d", w=np.ones((50, 40), np.float32))
    values = evaluate(import_torch(program, trainable=True), {"x": X})["output"]
    assert values.shape == (50, 40) and abs(values.mean() - mean) < 0.1 and abs(values.var() - variance) < 0.1


@pytest.mark.parametrize("target", ["aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"])
def test_products_by_groups(target: str) -> None:
    random = np.random.default_rng(0)
    w, ends = random.normal(size=(3, 3, 4)).astype(np.float32), np.array([1, 1, 2], np.int32)
    node = call("y", target, Ref("x"), Ref("w"), Ref("ends"))
    result = evaluate(import_torch(graph(node, result="y", w=w, ends=ends)), {"x": X})["output"]
    np.testing.assert_allclose(result, np.stack([X[0] @ w[0], X[1] @ w[2]]), rtol=1e-5)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("aten.nonzero.default", "depends on data"),
        ("aten.item.default", "depends on data"),
        ("higher_order.cond", "control flow that depends on data"),
        ("aten.view_as_complex.default", "complex numbers"),
        ("aten.to_sparse.default", "sparse tensors"),
        ("mylib.my_op.default", "memc has no converter of this overload"),
    ],
)
def test_refusals_name_overload_module_and_line(target: str, why: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(graph(call("y", target, self=Ref("x")), result="y"))
    text = str(caught.value)
    assert text.startswith(f"unsupported: {target} `y` (net.layer, net.py:7): ") and why in text and "\n" not in text


def test_an_input_that_is_written_to() -> None:
    with pytest.raises(UnsupportedError, match="writes to its input `x` in place"):
        import_torch(graph(call("y", "aten.add_.Tensor", self=Ref("x"), other=1), result="y"))


def test_dims_are_bound_and_held_to_their_ranges() -> None:
    path = DATA / "sizes.pt2"
    module = import_torch(path, input_shapes={"x": [7, 6]})
    assert [p.type.shape for p in module.main.params_of(Role.INPUT)] == [(7, 6), (8, 6)]
    (symbol,) = read_archive(path).hints
    module = import_torch(path, dims={symbol: 9})
    assert [p.type.shape for p in module.main.params_of(Role.INPUT)] == [(9, 6), (10, 6)]
    for given, why in (
        ({"dims": {"nothing": 3}}, "the model has no `nothing`"),
        ({"dims": {symbol: 99}}, "expected a size from 4 to 64"),
        ({"input_shapes": {"x": [7, 5]}}, "6 is fixed in the model"),
        ({"input_shapes": {"x": [7, 6], "y": [7, 6]}}, r"expected shape \[8, 6\], got \[7, 6\]"),
        ({"bind": {"nothing": 1}}, "bind: the model has no `nothing`"),
    ):
        with pytest.raises(UsageError, match=why):
            import_torch(path, **given)  # type: ignore[arg-type]


def test_an_input_becomes_a_constant() -> None:
    module = import_torch(DATA / "in_place.pt2", bind={"row": np.zeros(3)})
    assert [p.name for p in module.main.params_of(Role.INPUT)] == ["x"]


def test_buffers_that_are_written_to_are_states() -> None:
    executable = memc.compile(DATA / "in_place.pt2").load()
    x, row = np.zeros((2, 3), np.float32), np.ones(3, np.float32)
    for wanted in ([0, 6, 6, 0], [0, 24, 24, 0]):
        executable(x, row)
        np.testing.assert_array_equal(executable.state()["count"], wanted)


def test_tied_weights_are_one() -> None:
    module = import_torch(DATA / "in_place.pt2")
    assert [w for w in module.weights if "weight" in w] == ["linear.weight"]


@pytest.mark.parametrize(
    ("change", "turn"),
    [({"strides": [{"as_int": 1}, {"as_int": 4}]}, True), ({"dtype": 4}, False)],
)
def test_weights_of_the_same_bytes_seen_differently_are_two(tmp_path: Path, change: Any, turn: bool) -> None:
    path = tmp_path / "tied.pt2"
    with zipfile.ZipFile(DATA / "in_place.pt2") as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("model_weights_config.json"):
                config = json.loads(data)
                config["config"]["tied.weight"]["tensor_meta"].update(change)
                data = json.dumps(config).encode()
            target.writestr(name, data)
    weights = read_archive(path).weights
    first, second = weights["linear.weight"], weights["tied.weight"]
    assert first.key != second.key
    plain = first.read().reshape(-1)
    wanted = plain.reshape(3, 4).T if turn else plain.view(np.int32).reshape(4, 3)
    np.testing.assert_array_equal(second.read(), wanted)


def _rewritten(tmp_path: Path, change: Any) -> Path:
    """A file with its program changed."""
    path = tmp_path / "changed.pt2"
    with zipfile.ZipFile(DATA / "sorting.pt2") as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            target.writestr(name, data)
    return path


def _no_nodes(program: Any) -> None:
    program["graph_module"]["graph"]["nodes"] = []


def _no_graph(program: Any) -> None:
    del program["graph_module"]["graph"]


def _complex_input(program: Any) -> None:
    for meta in program["graph_module"]["graph"]["tensor_values"].values():
        meta["dtype"] = 10


@pytest.mark.parametrize(
    ("change", "why"), [(_no_nodes, "is not defined"), (_no_graph, "damaged"), (_complex_input, "complex64")]
)
def test_damaged_programs(tmp_path: Path, change: Any, why: str) -> None:
    with pytest.raises(MemcError, match=why) as caught:
        import_torch(_rewritten(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.pt2", tmp_path / "empty.pt2"
    text.write_text("no zip file")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/b", "c")
    empty.write_bytes(buffer.getvalue())
    with pytest.raises(InvalidError, match="expected a .pt2 file"):
        import_torch(text)
    with pytest.raises(InvalidError, match="without one"):
        import_torch(empty)
    with pytest.raises(UsageError, match="no such file"):
        import_torch(tmp_path / "missing.pt2")


@pytest.mark.parametrize(
    "kind", ["_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu"]
)
def test_attention_adds_what_its_overload_calls_a_mask(kind: str) -> None:
    q, bias = X.reshape(1, 1, 2, 3), np.array([[[[0, 3], [-2, 0]]]], np.float32)
    name = "attn_bias" if "efficient" in kind else "attn_mask"
    args = {**{n: Ref("q") for n in ("query", "key", "value")}, name: Ref("bias")}
    node = Node("y", f"aten.{kind}.default", args, ["y", None])
    found = evaluate(import_torch(graph(node, result="y", q=q, bias=bias)), {"x": X})["output"]
    scores = X @ X.T / np.sqrt(3) + bias[0, 0]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found[0, 0], weights / weights.sum(axis=1, keepdims=True) @ X, rtol=1e-5)


def test_a_tensor_that_a_converter_passes_over_is_refused() -> None:
    node = call("y", "aten.relu.default", self=Ref("x"), scales=Ref("x"))
    with pytest.raises(UnsupportedError, match="has no meaning for its argument `scales`"):
        import_torch(graph(node, result="y"))


def test_an_addend_times_nothing() -> None:
    node = call("y", "aten.addmm.default", self=Ref("w"), mat1=Ref("x"), mat2=Ref("w"), beta=0)
    found = evaluate(import_torch(graph(node, result="y", w=np.eye(3, dtype=np.float32))), {"x": X})["output"]
    np.testing.assert_array_equal(found, X)
