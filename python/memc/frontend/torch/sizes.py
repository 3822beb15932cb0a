# SPDX-License-Identifier: Apache-2.0
"""Sizes of exported programs: symbols, what they are bound to, and expressions of them."""

from __future__ import annotations

import ast
import logging
import math
from collections.abc import Callable, Mapping, Sequence

from memc.ir.errors import InvalidError, UnsupportedError, UsageError

from .graph import Dim, Graph, Size

_log = logging.getLogger("memc")


def _power(base: int, exponent: int) -> int:
    return int(base**exponent)


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "Add": lambda *args: sum(args),
    "Mul": lambda *args: math.prod(args),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "IntTrueDiv": lambda a, b: a // b,
    "PythonMod": lambda a, b: a % b,
    "Mod": lambda a, b: a % b,
    "Max": max,
    "Min": min,
}


def parse_size(text: str, where: str) -> Dim:
    """A size as sympy's `srepr` writes it. Raises InvalidError."""
    try:
        return _read(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InvalidError(f"invalid: {where}: expected a size, got `{text[:80]}` ({error})") from None


def _read(node: ast.expr) -> Dim:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return Size("Mul", (-1, _read(node.operand)))
    if not isinstance(node, ast.Call):
        raise ValueError(f"{type(node).__name__} in it")
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "Symbol":
        symbol = node.args[0]
        if not isinstance(symbol, ast.Constant) or not isinstance(symbol.value, str):
            raise ValueError("a symbol without a name")
        return Size("symbol", (symbol.value,))
    if name == "Integer":
        return _read(node.args[0])
    if name not in _FUNCTIONS:
        raise ValueError(f"the function {name}")
    return Size(name, tuple(_read(arg) for arg in node.args))


def symbol_of(dim: Dim) -> str | None:
    """The symbol that a size is; None for others."""
    return str(dim.args[0]) if isinstance(dim, Size) and dim.op == "symbol" else None


def symbols_in(dim: Dim) -> list[str]:
    """The symbols that a size depends on."""
    if not isinstance(dim, Size):
        return []
    if dim.op == "symbol":
        return [str(dim.args[0])]
    return [symbol for arg in dim.args for symbol in symbols_in(arg)]


def evaluated(dim: Dim, symbols: Mapping[str, int]) -> int:
    """The size with its symbols' values. Raises InvalidError for a symbol without one."""
    if not isinstance(dim, Size):
        return dim
    if dim.op == "symbol":
        if dim.args[0] not in symbols:
            raise InvalidError(f"invalid: the size {dim.args[0]} is that of no input")
        return symbols[dim.args[0]]
    return _FUNCTIONS[dim.op](*(evaluated(arg, symbols) for arg in dim.args))


def text_of(dim: Dim) -> str:
    """A size for messages."""
    if not isinstance(dim, Size):
        return str(dim)
    if dim.op == "symbol":
        return str(dim.args[0])
    sign = {"Add": "+", "Mul": "*", "FloorDiv": "//"}.get(dim.op)
    parts = [text_of(arg) for arg in dim.args]
    return sign.join(parts) if sign else f"{dim.op}({', '.join(parts)})"


def bound_symbols(
    graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Sequence[int]], known: set[str]
) -> dict[str, int]:
    """The value of every symbol of the inputs: given in `dims`, or by a whole shape, else the export's own, with a warning.

    `known`: the names of the inputs. Raises UsageError for unknown names, contradictions, and values out of a symbol's range.
    """
    shapes = {i.name: graph.metas[i.name].shape for i in graph.inputs if i.kind == "input" and i.name in graph.metas}
    there = sorted({symbol for shape in shapes.values() for dim in shape for symbol in symbols_in(dim)})
    for name in dims:
        if name not in there:
            raise UsageError(f"dims: the model has no `{name}`; there are: {_listed(there)}")
    for name in input_shapes:
        if name not in known:
            raise UsageError(f"input_shapes: the model has no `{name}`; there are: {_listed(sorted(known))}")
    symbols = {name: int(size) for name, size in dims.items()}
    for name, given in input_shapes.items():
        _unify(name, shapes.get(name, ()), tuple(int(n) for n in given), symbols)
    for symbol in there:
        if symbol not in symbols:
            if symbol not in graph.hints:
                raise UnsupportedError(f"unsupported: open dim {symbol}; bind it with --dim {symbol}=N")
            symbols[symbol] = graph.hints[symbol]
            if not graph.quiet:
                _log.warning("dim `%s` is open: using %d, the export's; bind it with --dim", symbol, symbols[symbol])
        _require_in_range(symbol, symbols[symbol], graph.ranges.get(symbol, (None, None)))
    for name, given in input_shapes.items():
        wanted = tuple(evaluated(dim, symbols) for dim in shapes.get(name, ()))
        if wanted != tuple(given):
            raise UsageError(f"input `{name}`: expected shape {list(wanted)}, got {list(given)}")
    return symbols


def _unify(name: str, shape: Sequence[Dim], given: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Learn the sizes of symbols from a whole shape."""
    wanted = f"input `{name}`: expected shape [{','.join(map(text_of, shape))}], got {list(given)}"
    if len(shape) != len(given):
        raise UsageError(f"{wanted}: the ranks differ")
    for dim, size in zip(shape, given):
        symbol = symbol_of(dim)
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"{wanted}: {dim} is fixed in the model")
        if symbol is not None and symbols.setdefault(symbol, size) != size:
            raise UsageError(f"{wanted}: dim `{symbol}` is already {symbols[symbol]}")


def _require_in_range(symbol: str, size: int, bounds: tuple[int | None, int | None]) -> None:
    low, high = bounds
    if size < (low or 0) or (high is not None and size > high):
        most = "" if high is None else f" to {high}"
        raise UsageError(
            f"dim `{symbol}`: expected a size from {low or 0}{most}, as the program was exported for, got {size}"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
