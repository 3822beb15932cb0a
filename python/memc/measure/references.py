# SPDX-License-Identifier: Apache-2.0
"""Other implementations of ONNX, which compiled models are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from memc.ir.core import Array
from memc.ir.errors import UnsupportedError, UsageError


def run_onnxruntime(source: str | Path | bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of the model on onnxruntime's CPU provider, as it is written: what onnxruntime makes of a quantized model
    to run it faster rounds apart. Raises UnsupportedError if it cannot run it, UsageError if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise UsageError("--against onnxruntime: onnxruntime is not installed (pip install onnxruntime)") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"]
        )
        known = {spec.name for spec in session.get_inputs()}
        names = [output.name for output in session.get_outputs()]
        results = session.run(None, {name: array for name, array in inputs.items() if name in known})
        return {name: np.asarray(value) for name, value in zip(names, results)}
    except Exception as error:
        raise UnsupportedError(f"onnxruntime cannot run the model: {' '.join(str(error).split())}") from None


@cache
def saturates_int8() -> bool:
    """Whether onnxruntime's products of u8 and s8 matrices lose what does not fit into 16 bits: pairs of products are added in 16
    bits on x86 processors without VNNI instructions, so that large weights give other results there. It must be installed."""
    from onnx import TensorProto, helper

    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    infos = [
        helper.make_tensor_value_info(name, element, shape)
        for name, element, shape in (
            ("a", TensorProto.UINT8, (4, 16)),
            ("b", TensorProto.INT8, (16, 8)),
            ("y", TensorProto.INT32, (4, 8)),
        )
    ]
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph([node], "g", infos[:2], infos[2:]), opset_imports=opsets, ir_version=8)
    given = {"a": np.full((4, 16), 255, np.uint8), "b": np.full((16, 8), 127, np.int8)}
    return bool((run_onnxruntime(model.SerializeToString(), given)["y"] != 16 * 255 * 127).any())


def run_reference(source: str | Path | bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of the model by onnx's reference evaluator, which is slow. Raises UnsupportedError if it cannot run it."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops._op_list import load_op

    # The evaluator has these for the latest operator sets alone, of which earlier ones are parts.
    latest = [
        type(name, (load_op("", name, None),), {"op_domain": ""}) for name in ("QuantizeLinear", "DequantizeLinear")
    ]
    try:
        model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(source)
        opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(model, new_ops=latest if opset < 19 else None)
            results = evaluator.run(None, dict(inputs))
        return {output.name: np.asarray(value) for output, value in zip(model.graph.output, results)}
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedError(f"onnx's reference cannot run the model: {said}") from None


def with_all_outputs(path: Path) -> bytes:
    """The model with every floating-point tensor computed in it as an output. Raises UsageError."""
    try:
        model = onnx.load(path)
        model = onnx.shape_inference.infer_shapes(model)
    except Exception as error:
        raise UsageError(f"{path}: cannot mark all tensors: {' '.join(str(error).split())}") from None
    graph = model.graph
    known = {output.name for output in graph.output}
    # Quantizers leave types of tensors behind that there no longer are.
    made = {name for node in graph.node for name in node.output}
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    for info in graph.value_info:
        if info.name in made and info.name not in known and info.type.tensor_type.elem_type in floats:
            graph.output.append(info)
    return bytes(model.SerializeToString())
