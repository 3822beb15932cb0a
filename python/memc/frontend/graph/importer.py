# SPDX-License-Identifier: Apache-2.0
"""A foreign dataflow graph as a module of unregistered ops, on whose order and addresses passes can work.

A value of the IR is one version of a whole storage. An op's operands are the current versions of all storages that it
touches; views thus need no values of their own, and an op that only makes a view has no results. Its results are the
storages that it writes: a new value where the storage begins, otherwise the next version, which aliases the first.

So the contract for an unregistered op is: operands are read, and a result that aliases an older root reads and
overwrites that storage. It may be recomputed, since the same operands give the same results, unless it says `once`, as do ops
that the graph marks so and PyTorch's ops that draw random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import ONCE, Alias, Attr, Function, Op, Role, Value
from memc.ir.module import Module
from memc.ir.types import MAX_RANK, DType, TensorType

from .read import Graph, GraphTensor

_DTYPES = {
    "float64": DType.F64,
    "float32": DType.F32,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "int64": DType.I64,
    "int32": DType.I32,
    "int16": DType.I16,
    "int8": DType.I8,
    "uint64": DType.U64,
    "uint32": DType.U32,
    "uint16": DType.U16,
    "uint8": DType.U8,
    "bool": DType.BOOL,
}

_RANDOM = frozenset(
    {
        *("alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout", "exponential", "feature_alpha_dropout"),
        *("feature_dropout", "geometric", "log_normal", "multinomial", "native_dropout", "normal", "poisson", "rand"),
        *("rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "rrelu", "uniform"),
        *("rrelu_with_noise", "_cudnn_rnn", "_fused_dropout", "_sample_dirichlet", "_standard_gamma"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_flash_attention", "_cudnn_attention_forward", "_efficient_attention_forward"),
        "_flash_attention_forward",
    }
)
"""Names of PyTorch's ops that draw random numbers, without namespace, overload and the `_` of those in place."""


def import_graph(graph: Graph) -> Module:
    """A module whose @main runs the ops in the given order.

    Parameters are the storages of the graph's inputs: of role `state` if an op writes them, otherwise `input`. A value has
    the type of the first tensor that covers its storage, or is u8[n].
    """
    types = _storage_types(graph)
    written = {storage for op in graph.ops for storage in op.writes}
    current: dict[int, Value] = {}
    for storage in dict.fromkeys(graph.tensors[tensor].storage for tensor in graph.inputs):
        role = Role.STATE if storage in written else Role.INPUT
        current[storage] = Value(f"s{graph.storage_names[storage]}", types[storage], role=role)
    function = Function(list(current.values()))
    versions = [0] * len(types)
    for item in graph.ops:
        storages = [graph.tensors[tensor].storage for tensor in item.inputs]
        read = [*storages, *(s for s in graph.touched(item) if s not in storages)]
        operands = [current[storage] for storage in read if storage in current]
        results = []
        for storage in item.writes:
            name = f"s{graph.storage_names[storage]}"
            alias = None
            if storage in current:
                versions[storage] += 1
                name = f"{name}.{versions[storage]}"
                alias = Alias(current[storage].root, 0)
            results.append(Value(name, types[storage], alias=alias))
        attrs: dict[str, Attr] = {ONCE: True} if item.once or _is_random(item.target) else {}
        function.ops.append(Op(item.target, operands, results, attrs, location=item.name))
        current.update(zip(item.writes, results))
    outputs = dict.fromkeys(graph.tensors[tensor].storage for tensor in graph.outputs)
    function.returns = [current[storage] for storage in outputs]
    return Module([function])


def _is_random(target: str) -> bool:
    """Whether an op draws random numbers, by its name such as `aten.bernoulli_.float`."""
    parts = target.split(".")
    return parts[0] == "aten" and len(parts) > 1 and parts[1].removesuffix("_") in _RANDOM


def _storage_types(graph: Graph) -> Sequence[TensorType]:
    types: list[TensorType | None] = [None] * len(graph.storage_bytes)
    for tensor in graph.tensors:
        if types[tensor.storage] is None and tensor.nbytes == graph.storage_bytes[tensor.storage]:
            types[tensor.storage] = _type_of(tensor)
    return [kind or TensorType(DType.U8, (size,)) for kind, size in zip(types, graph.storage_bytes)]


def _type_of(tensor: GraphTensor) -> TensorType | None:
    """The tensor's type if it is dense and of an element type that the IR has."""
    dtype = _DTYPES.get(tensor.dtype or "")
    if (
        dtype is None
        or tensor.shape is None
        or len(tensor.shape) > MAX_RANK
        or math.prod(tensor.shape) * dtype.itemsize != tensor.nbytes
    ):
        return None
    return TensorType(dtype, tensor.shape)
