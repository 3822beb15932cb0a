# SPDX-License-Identifier: Apache-2.0
"""What the tests of importers share: a model of one node, imported and evaluated, and onnxruntime's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from memc.frontend.onnx import import_onnx
from memc.ir.core import Array
from memc.ir.evaluate import evaluate
from memc.measure.references import saturates_int8

INT8_PRODUCTS = {
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "QAttention",
    "QGemm",
    "QLinearConv",
}
"""Ops whose results onnxruntime has by products of u8 and s8 matrices."""


def one_node_model(
    op_type: str,
    inputs: Sequence[Array | None],
    outputs: int | Sequence[str],
    opset: int,
    domain: str,
    known: Sequence[int],
    attrs: dict[str, Any],
) -> onnx.ModelProto:
    """Inputs x0, x1 ... (None: omitted; those in `known` as initializers), outputs y0, y1 ... or the names given."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    wanted = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op_type, names, wanted, name="node", domain=domain, **attrs)
    infos, data = [], []
    for i, array in enumerate(inputs):
        if array is None:
            continue
        if i in known:
            data.append(numpy_helper.from_array(array, f"x{i}"))
        else:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(f"x{i}", element, array.shape))
    results = [helper.make_empty_tensor_value_info(n) for n in wanted if n]
    graph = helper.make_graph([node], "g", infos, results, data)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture
def run_node() -> Callable[..., list[Array]]:
    """`run(op_type, inputs, outputs=1, opset=18, domain="", known=(), **attrs)`: the outputs, evaluated from the IR.

    `more` has attributes of these names.
    """

    def run(
        op_type: str,
        inputs: Sequence[Array | None],
        outputs: int | Sequence[str] = 1,
        opset: int = 18,
        domain: str = "",
        known: Sequence[int] = (),
        more: dict[str, Any] | None = None,
        **attrs: Any,
    ) -> list[Array]:
        attrs.update(more or {})
        shapes = {f"x{i}": a.shape for i, a in enumerate(inputs) if a is not None and i not in known}
        model = one_node_model(op_type, inputs, outputs, opset, domain, known, attrs)
        module = import_onnx(model, input_shapes=shapes)  # a size of 0 counts as open
        given = {f"x{i}": a for i, a in enumerate(inputs) if a is not None}
        taken = {p.name for p in module.main.params if p.role is not None and p.role.value == "input"}
        return list(evaluate(module, {n: a for n, a in given.items() if n in taken}).values())

    return run


@pytest.fixture
def same_as_ort(run_node: Callable[..., list[Array]]) -> Callable[..., None]:
    """As `run_node`, but holds the outputs to onnxruntime's, its graph optimizations off.

    `rtol` and `atol` are the tolerances. Integers may differ by one in a share `rounded` of the elements: where sums in
    another order end at the other side of a half.
    """

    def same(
        op_type: str,
        inputs: Sequence[Array | None],
        outputs: int | Sequence[str] = 1,
        opset: int = 18,
        known: Sequence[int] = (),
        rtol: float = 1e-5,
        atol: float = 1e-6,
        domain: str = "",
        rounded: float = 0.0,
        more: dict[str, Any] | None = None,
        **attrs: Any,
    ) -> None:
        every = {**attrs, **(more or {})}
        model = one_node_model(op_type, inputs, outputs, opset, domain, known, every)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        given = {f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in known}
        expected = session.run(None, given)
        found = run_node(op_type, inputs, outputs, opset, domain, known, more, **attrs)
        assert len(found) == len(expected)
        for value, wanted in zip(found, expected):
            assert value.dtype == wanted.dtype and value.shape == wanted.shape
        if op_type in INT8_PRODUCTS and any(a is not None and a.dtype == np.int8 for a in inputs) and saturates_int8():
            pytest.skip("onnxruntime's products of u8 and s8 saturate on this processor")
        for value, wanted in zip(found, expected):
            a, b = value.astype(np.float64), wanted.astype(np.float64)
            if rounded and value.dtype.kind in "iu":
                assert np.abs(a - b).max(initial=0) <= 1 and np.count_nonzero(a != b) <= rounded * a.size, op_type
                continue
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=op_type)

    return same
