# SPDX-License-Identifier: Apache-2.0
"""Evaluating nodes whose inputs are all known at import."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Op, Value
from memc.ir.errors import MemcError, UnsupportedError
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import lookup

from .context import Importer, Known, NodeContext

MAX_ELEMENTS = 1 << 20
"""A folded result may have this many elements, or twice as many as the inputs have if that is more."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Ops whose results are not a function of their inputs alone."""

GROWING = frozenset({"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"})
"""Ops whose results can be far larger than their inputs: never left to the reference evaluator, which allocates
before the size is known here."""


def fold(
    node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[Array | None], importer: Importer | None
) -> list[Known] | None:
    """The results of a node with known inputs, or None where it cannot or should not be folded.

    The node is imported on its own and evaluated with the IR's numpy rules, so that folding and running agree; what
    has no importer goes to onnx's reference evaluator.
    """
    if node.op_type in RANDOM:
        return None
    limit = max(MAX_ELEMENTS, 2 * sum(a.size for a in inputs if a is not None))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if importer is not None:
            try:
                return _by_importer(node, opset, inputs, importer, limit)
            except (UnsupportedError, KeyError):
                pass
            except MemcError:
                # Invalid: the import proper will say so.
                return None
        if node.op_type in GROWING:
            return None
        return _by_reference(node, domain, opset, inputs)


def _by_importer(
    node: onnx.NodeProto, opset: int, inputs: Sequence[Array | None], importer: Importer, limit: int
) -> list[Known] | None:
    function = Function([])
    module = Module([function])
    ops: list[Op] = []
    builder = IRBuilder(module, function, ops, names=map(str, itertools.count()))
    found = importer(NodeContext(node, opset, list(inputs), builder))
    if any(r.type.elements > limit for op in ops for r in op.results):
        return None
    values: dict[Value, Array] = {p: module.weights[p.name] for p in function.params}
    for op in ops:
        definition = lookup(op.name)
        assert definition is not None
        types = [r.type for r in op.results]
        arrays = definition.evaluate([values[v] for v in op.operands], op.attrs, types)
        for result, array in zip(op.results, arrays):
            values[result] = np.asarray(array, result.type.dtype.numpy).reshape(result.type.shape)
    return [values[r] if isinstance(r, Value) else r for r in found]


def _by_reference(node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[Array | None]) -> list[Known] | None:
    named = {name: array for name, array in zip(node.input, inputs) if array is not None}
    if any(a.dtype == object for a in named.values()):
        return None
    try:
        infos = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in named.items()
        ]
        outputs = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in node.output if n]
        graph = onnx.helper.make_graph([node], "fold", infos, outputs)
        imports = [onnx.helper.make_opsetid(domain, opset)]
        if domain:
            imports.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
        model = onnx.helper.make_model(graph, opset_imports=imports)
        results = iter(ReferenceEvaluator(model).run(None, named))
    except Exception:
        # Whatever the reference cannot do is imported as usual, which reports what is wrong with the node.
        return None
    arrays = [next(results) if name else np.empty(0) for name in node.output]
    return arrays if all(isinstance(a, np.ndarray) for a in arrays) else None
