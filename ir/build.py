# SPDX-License-Identifier: Apache-2.0
"""Making ops with inferred types: what the importer and the decompositions write with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .arrays import native
from .core import UNPLANNED, Array, Attr, Function, Op, OpPlan, Role, Value, fresh_names, is_small
from .errors import OpError
from .module import Module
from .type_inference import infer_types
from .types import DType, TensorType


class IRBuilder:
    """Appends ops to `ops`, with types inferred and fresh names.

    `module` and `function` take the weights that `constant` makes of large arrays.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        ops: list[Op],
        names: Iterator[str] | None = None,
        location: str | None = None,
    ) -> None:
        self.module = module
        self.function = function
        self.ops = ops
        self.names = names if names is not None else fresh_names(v.name for v in function.values())
        self.location = location

    def op(self, name: str, operands: Sequence[Value], plan: OpPlan = UNPLANNED, /, **attrs: Attr) -> Value:
        """Append an op with one result and return that. Raises OpError if its contract is broken."""
        return self.multi(name, operands, plan, **attrs).result

    def multi(self, name: str, operands: Sequence[Value], plan: OpPlan = UNPLANNED, /, **attrs: Attr) -> Op:
        """Append an op with any number of results and return it."""
        try:
            types = infer_types(name, [v.type for v in operands], attrs)
        except OpError as error:
            where = f" ({self.location})" if self.location else ""
            raise OpError(f"{name}{where}: {error}") from None
        results = [Value(next(self.names), t) for t in types]
        op = Op(name, list(operands), results, dict(attrs), plan, location=self.location)
        self.ops.append(op)
        return op

    def constant(self, array: Array, name: str | None = None) -> Value:
        """A small array as an inline `constant` op, a larger one as a weight of the function."""
        array = native(array, name or "constant")
        if is_small(array):
            return self.op("constant", [], value=array)
        stem = name or next(self.names)
        taken = {p.name for p in self.function.params} | set(self.module.weights)
        chosen = stem if stem not in taken else next(fresh_names(taken, stem))
        value = Value(chosen, TensorType(DType.from_numpy(array.dtype), array.shape), role=Role.WEIGHT)
        self.function.params.append(value)
        self.module.weights[chosen] = array
        return value

    def scalar(self, value: float | int | bool, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.constant(np.asarray(value, dtype=dtype.numpy))
