# SPDX-License-Identifier: Apache-2.0
"""Arguments, sizes and element types as `.pt2` files write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memc.ir.errors import UnsupportedError
from memc.ir.types import DType

from .graph import Arg, Dim, Graph, Ref
from .sizes import parse_size

_DTYPES = {
    1: DType.U8,
    2: DType.I8,
    3: DType.I16,
    4: DType.I32,
    5: DType.I64,
    6: DType.F16,
    7: DType.F32,
    8: DType.F64,
    12: DType.BOOL,
    13: DType.BF16,
    28: DType.U16,
}
_OTHERS = {
    9: "complex32",
    10: "complex64",
    11: "complex128",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
}

_PLAIN = frozenset({"as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists"})
_LAYOUTS = frozenset({"as_memory_format", "as_layout", "as_device"})


def dtype_of(code: int) -> DType | None:
    """The element type of a `ScalarType`; None for one that memc has not."""
    return _DTYPES.get(int(code))


def kind_of(code: int) -> str:
    """The name of an element type that memc has not."""
    return _OTHERS.get(int(code), f"number {code}")


def dimension(dim: Mapping[str, Any], where: str) -> Dim:
    """A size: an integer or an expression."""
    if "as_int" in dim:
        return int(dim["as_int"])
    return parse_size(str(dim["as_expr"]["expr_str"]), where)


def _float(value: Any) -> float:
    """A float, of which JSON writes some as text."""
    return float(value)


def _symbolic(value: Mapping[str, Any]) -> Arg:
    """A number that may be computed from sizes."""
    ((kind, found),) = value.items()
    return Ref(str(found)) if kind == "as_name" else found


def argument(arg: Mapping[str, Any], graph: Callable[[Mapping[str, Any]], Graph]) -> Arg:
    """An argument. `graph` reads the body of a higher-order op. Raises UnsupportedError for a kind that memc has not."""
    ((kind, value),) = arg.items()
    if kind == "as_none" or kind in _LAYOUTS:
        return None
    if kind == "as_tensor":
        return Ref(str(value["name"]))
    if kind == "as_tensors":
        return [Ref(str(item["name"])) for item in value]
    if kind == "as_optional_tensors":
        return [argument(item, graph) for item in value]
    if kind == "as_optional_tensor":
        return argument(value, graph)
    if kind in _PLAIN:
        return value
    if kind == "as_float":
        return _float(value)
    if kind == "as_floats":
        return [_float(item) for item in value]
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return _symbolic(value)
    if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
        return [_symbolic(item) for item in value]
    if kind == "as_scalar_type":
        found = dtype_of(value)
        return found if found is not None else kind_of(value)
    if kind == "as_graph":
        return graph(value["graph"])
    if kind == "as_complex":
        raise UnsupportedError("unsupported: a complex number as an argument")
    raise UnsupportedError(f"unsupported: an argument of the kind {kind.removeprefix('as_').replace('_', ' ')}")
