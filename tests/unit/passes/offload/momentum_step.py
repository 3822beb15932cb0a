# SPDX-License-Identifier: Apache-2.0
"""A training step in text, whose states may lie on the host."""

from __future__ import annotations

from memc.ir.module import Module
from memc.ir.text.parser import parse

ROWS, WIDTH = 256, 32


def step(first: int, last: int, layers: int = 8) -> Module:
    """A training step of products with momentum, of so many columns before the first one and after the last."""
    widths = [first, *[WIDTH] * (layers - 1), last]
    sizes = [f"f32[{a},{b}]" for a, b in zip(widths, widths[1:])]
    rows = [f"f32[{ROWS},{width}]" for width in widths]
    params = [f"%w{n}: {size} {{role = state}}, %m{n}: {size} {{role = state}}" for n, size in enumerate(sizes)]
    returns = [f'{size} {{name = "{kind}{n}"}}' for n, size in enumerate(sizes) for kind in "wm"]
    lines = []
    for n in range(layers):
        lines.append(f"%t{n + 1} = matmul(%t{n}, %w{n}) {{transpose_a = false, transpose_b = false}} : {rows[n + 1]}")
    error = f"t{layers}"
    for n in reversed(range(layers)):
        lines.append(f"%g{n} = matmul(%t{n}, %{error}) {{transpose_a = true, transpose_b = false}} : {sizes[n]}")
        if n:
            lines.append(f"%e{n} = matmul(%{error}, %w{n}) {{transpose_a = false, transpose_b = true}} : {rows[n]}")
            error = f"e{n}"
    for n, size in enumerate(sizes):
        lines += [f"%sum{n} = add(%m{n}, %g{n}) : {size}", f"%m{n}a = assign(%m{n}, %sum{n}) : {size}"]
        lines += [f"%moved{n} = sub(%w{n}, %m{n}a) : {size}", f"%w{n}a = assign(%w{n}, %moved{n}) : {size}"]
    given = ", ".join([f"%t0: {rows[0]} {{role = input}}", *params])
    made = ", ".join(f"%{kind}{n}a" for n in range(layers) for kind in "wm")
    body = "\n  ".join(lines)
    return parse(
        f'target {{kind = "cuda"}}\nfunc @main({given}) -> ({", ".join(returns)}) {{\n  {body}\n  return {made}\n}}\n'
    )
