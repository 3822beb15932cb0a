# SPDX-License-Identifier: Apache-2.0
"""Scatters, gradients of embeddings and suppression of boxes: how their time grows with the updates, beside numpy's or PyTorch's.

    python benchmarks/scatters.py [--runs 5] [--seconds 20] [--cpu-time] [--kernels generated --most 10000] [CASE ...]
    python benchmarks/scatters.py --cuda [--runs 20]     beside PyTorch on the first GPU

A row is one op with n and with 2n updates (or boxes): milliseconds of a run of the compiled program, how often the time doubles
when n does ("growth": 1 is linear, 2 quadratic), and the same of numpy in the same process: `np.add.at` and the like, or the
last of all updates by assignment. Results are held to numpy's. On CUDA, milliseconds of a run of the program and of PyTorch's
op with n updates, whose results are compared too, and whether two runs gave the same bits. `few`: nine of ten updates go to one
place.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sorts import milliseconds, milliseconds_on_cuda

import memc
from memc.ir.text.parser import parse

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """`n` updates (rows of them, of a gradient; boxes, of a suppression) for `places(n)` places of `row` elements."""

    name: str
    n: int
    places: Callable[[int], int]
    row: int = 1
    reduction: str = "add"
    spread: str = "many"


CASES = [
    *(Case("scatter", 200_000, lambda n: n, 1, reduction) for reduction in ("none", "add", "mul", "max")),
    Case("scatter", 200_000, lambda n: n, 1, "add", "few"),
    Case("scatter", 200_000, lambda n: 100),
    Case("scatter", 2_000, lambda n: n, 64),
    Case("scatter_nd", 20_000, lambda n: n, 64),
    Case("gather_grad", 4_096, lambda n: 50_257, 768),
    Case("gather_grad", 4_096, lambda n: 12 * n, 64),
    Case("gather_grad", 4_096, lambda n: 50_257, 768, "add", "few"),
    Case("suppression", 5_000, lambda n: n),
]
CUDA_CASES = [
    *(
        Case("scatter", n, lambda n: n, 1, reduction)
        for n in (10_000, 1_000_000)
        for reduction in ("none", "add", "max")
    ),
    Case("scatter", 10_000_000, lambda n: n),
    Case("scatter", 1_000_000, lambda n: 100),
    Case("scatter", 1_000_000, lambda n: n, 1, "add", "few"),
    Case("scatter", 10_000, lambda n: n, 64),
    Case("scatter_nd", 100_000, lambda n: n, 64),
    *(Case("gather_grad", n, lambda n: 50_257, 768) for n in (1_024, 4_096, 16_384)),
    Case("gather_grad", 4_096, lambda n: 50_257, 768, "add", "few"),
    Case("gather_grad", 65_536, lambda n: 1_000, 64),
    *(Case("suppression", n, lambda n: n) for n in (1_000, 10_000, 27_000)),
]


def program(case: Case, n: int) -> str:
    places, row, how = case.places(n), case.row, f'reduction = "{case.reduction}"'
    if case.name == "scatter":
        shape, span = (f"{places},{row}", f"{n},{row}") if row > 1 else (f"{places}", f"{n}")
        inputs = [f"%x: f32[{shape}]", f"%i: i64[{span}]", f"%u: f32[{span}]"]
        result, call = f"f32[{shape}]", f"scatter_elements(%x, %i, %u) {{axis = 0, {how}}}"
    elif case.name == "scatter_nd":
        inputs = [f"%x: f32[{places},{row}]", f"%i: i64[{n},1]", f"%u: f32[{n},{row}]"]
        result, call = f"f32[{places},{row}]", f"scatter_nd(%x, %i, %u) {{{how}}}"
    elif case.name == "gather_grad":
        inputs = [f"%i: i64[{n}]", f"%u: f32[{n},{row}]"]
        result, call = f"f32[{places},{row}]", f"gather_grad(%i, %u) {{axis = 0, extent = {places}}}"
    else:
        inputs = [f"%u: f32[1,{n},4]", f"%i: i64[1,1,{n}]", "%t: f32[]"]
        result, call = f"i64[1,1,{n}]", f"non_max_suppression(%u, %i, %t) {{center = false, count = {n}}}"
    params = ", ".join(f"{each} {{role = input}}" for each in inputs)
    return f"func @main({params}) -> ({result}) {{\n  %y = {call} : {result}\n  return %y\n}}\n"


def data(case: Case, n: int) -> dict[str, Array]:
    rng, places = np.random.default_rng(1), case.places(n)
    if case.name == "suppression":
        low = rng.uniform(0, 30, (n, 2))
        boxes = np.concatenate([low, low + rng.uniform(0.5, 2, (n, 2))], 1).astype(np.float32)
        return {"u": boxes[None], "i": rng.permutation(n)[None, None], "t": np.array(0.5, np.float32)}
    indices = rng.integers(0, places, n)
    if case.spread == "few":
        indices = np.where(rng.random(n) < 0.9, places // 2, indices)
    shape = (n, case.row) if case.row > 1 or case.name != "scatter" else (n,)
    updates = rng.uniform(0.9, 1.1, shape).astype(np.float32)
    if case.name == "gather_grad":
        return {"i": indices, "u": updates}
    whole = np.ones((places, *shape[1:]), np.float32)
    if case.name == "scatter_nd":
        return {"x": whole, "i": indices.reshape(n, 1), "u": updates}
    spread = np.repeat(indices[:, None], case.row, 1) if len(shape) > 1 else indices
    return {"x": whole, "i": spread, "u": updates}


UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum}


def numpy_result(case: Case, n: int, given: dict[str, Array]) -> Array:
    indices, updates = given["i"], given["u"]
    if case.name == "gather_grad":
        found = np.zeros((case.places(n), case.row), np.float32)
        np.add.at(found, indices, updates)
        return found
    found = given["x"].copy()
    at = indices[:, 0] if indices.ndim > 1 else indices
    if case.reduction == "none":
        found[at] = updates
    else:
        UFUNC[case.reduction].at(found, at, updates)
    return found


def numpy_suppression(given: dict[str, Array]) -> Array:
    """One box after another, each compared with all that are left."""
    boxes, order = given["u"][0], given["i"][0, 0]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    chosen: list[int] = []
    while order.size:
        best, order = order[0], order[1:]
        chosen.append(int(best))
        sides = np.minimum(boxes[order, 2:], boxes[best, 2:]) - np.maximum(boxes[order, :2], boxes[best, :2])
        shared = np.where((sides > 0).all(1), sides[:, 0] * sides[:, 1], 0)
        order = order[shared / (areas[order] + areas[best] - shared) <= given["t"]]
    return np.concatenate([chosen, np.full(boxes.shape[0] - len(chosen), -1)]).reshape(1, 1, -1)


def expected(case: Case, n: int, given: dict[str, Array]) -> Array:
    return numpy_suppression(given) if case.name == "suppression" else numpy_result(case, n, given)


def assert_near(found: Array, right: Array, case: Case) -> None:
    if case.name == "suppression":
        np.testing.assert_array_equal(found, right)
    else:
        np.testing.assert_allclose(found, right, rtol=2e-3 if case.spread == "few" or right.shape[0] < 1000 else 1e-5)


def measure(case: Case, n: int, options: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds of memc and of numpy."""
    given = data(case, n)
    executable = memc.compile(parse(program(case, n)), kernels=options.kernels).load()
    (found,) = executable.run_numpy(given).values()
    assert_near(found, expected(case, n, given), case)
    ours = milliseconds(lambda: executable(**given), options)
    return ours, milliseconds(lambda: expected(case, n, given), options)


def torch_call(case: Case, n: int, given: dict[str, Any]) -> Callable[[], Any]:
    import torch

    if case.name == "suppression":
        from torchvision.ops import nms

        boxes, scores = given["u"][0], torch.empty(n, device="cuda")
        scores[given["i"][0, 0]] = torch.arange(n, 0, -1, device="cuda", dtype=torch.float32)
        return lambda: nms(boxes, scores, 0.5)
    if case.name == "gather_grad":
        backward = torch.ops.aten.embedding_dense_backward
        return lambda: backward(given["u"], given["i"], case.places(n), -1, False)
    x, i, u = given["x"], given["i"], given["u"]
    if case.name == "scatter_nd":
        return lambda: x.index_add(0, i[:, 0], u)
    if case.reduction == "none":
        return lambda: x.scatter(0, i, u)
    how = {"add": "sum", "mul": "prod", "max": "amax"}[case.reduction]
    return lambda: x.scatter_reduce(0, i, u, how)


def measure_on_cuda(case: Case, options: argparse.Namespace) -> tuple[float, float | None, bool]:
    """Milliseconds of memc's program and of PyTorch, if it has the op, and whether memc's bits were the same twice."""
    import torch

    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    given = data(case, case.n)
    executable = memc.compile(parse(program(case, case.n)), target="cuda", arch=arch).load()
    there = {name: torch.from_numpy(np.asarray(a)).cuda() for name, a in given.items()}
    results = [torch.from_dlpack(next(iter(executable(**there).values()))).cpu().numpy().copy() for _ in range(2)]
    assert_near(results[0], expected(case, case.n, given), case)
    ours = milliseconds_on_cuda(lambda: executable(**there), options.runs)
    same = results[0].tobytes() == results[1].tobytes()
    try:
        call = torch_call(case, case.n, there)
        return ours, milliseconds_on_cuda(call, options.runs), same
    except ImportError:
        return ours, None, same


def title(case: Case, n: int) -> str:
    reduction = f" {case.reduction}" if case.name.startswith("scatter") else ""
    return f"{case.name}{reduction} | {n:,} | {case.places(n):,} x {case.row} | {case.spread}"


def compare_on_cuda(options: argparse.Namespace) -> None:
    print("| op | updates | places | spread | program ms | torch ms | memc / torch | same bits |")
    print("| --- | --: | --: | --- | --: | --: | --: | --- |")
    for case in CUDA_CASES:
        if case.n > options.most or (options.cases and case.name not in options.cases):
            continue
        ours, theirs, same = measure_on_cuda(case, options)
        ratio = "" if theirs is None else f"{theirs:.4f} | {ours / theirs:.2f}"
        print(f"| {title(case, case.n)} | {ours:.4f} | {ratio or ' | '} | {'yes' if same else 'no'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--kernels", default="library")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--most", type=int, default=10_000_000)
    options = parser.parse_args()
    if options.cuda:
        return compare_on_cuda(options)
    print("| op | updates | places | spread | n ms | 2n ms | growth | numpy n ms | 2n ms | growth | memc / numpy |")
    print("| --- | --: | --: | --- | --: | --: | --: | --: | --: | --: | --: |")
    for case in CASES:
        if case.n > options.most or (options.cases and case.name not in options.cases):
            continue
        ours, theirs = zip(*(measure(case, n, options) for n in (case.n, 2 * case.n)))
        cells = [title(case, case.n)]
        for times in (ours, theirs):
            cells += [f"{times[0]:.3f}", f"{times[1]:.3f}", f"{math.log2(times[1] / times[0]):.2f}"]
        print("| " + " | ".join([*cells, f"{ours[1] / theirs[1]:.2f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
