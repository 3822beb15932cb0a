# SPDX-License-Identifier: Apache-2.0
"""Random producers with epilogues, compiled and run: prints the seed of each model that crashes or differs.

    python benchmarks/fuzz_epilogues.py --first 0 --count 1000 --save failing

Each model (`random_epilogues.py`) is compiled at the level, with the kernels and in the precision that its seed draws, and
compared with memc's numpy evaluation of the import, and with onnxruntime where that runs the model. A kernel that compiles
only in another form than planned counts as a failure. Failing models are written to the folder that `--save` names. Exit
code 1 if there are any.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from random_epilogues import Case, Tolerances, draw, options

import memc
from memc.ir.core import Array
from memc.ir.errors import MemcError, UnsupportedError
from memc.ir.evaluate import evaluate


def check(seed: int) -> list[str]:
    """What is wrong with the model of a seed, in words; empty if nothing is."""
    case, chosen = draw(seed), options(seed)
    (name,) = [output.name for output in case.model.graph.output]
    try:
        expected = evaluate(memc.import_onnx(case.model), case.inputs)[name]
    except UnsupportedError:
        return []
    largest = magnitude(case)
    if not np.isfinite(largest) or largest > 1e4:
        return []
    with Warnings() as warnings:
        found = memc.compile(case.model, **chosen).load().run_numpy(case.inputs)[name]
    wrong = [*warnings.messages]
    wrong += difference(found, expected, case.tolerances, largest, "numpy")
    theirs = by_onnxruntime(case)
    if theirs is not None:
        wrong += difference(found, theirs, case.tolerances, largest, "onnxruntime")
    return wrong


def magnitude(case: Case) -> float:
    """The largest absolute value of the floats in a model."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    made = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in made)
    values = [*evaluate(memc.import_onnx(model), case.inputs).values(), *case.inputs.values()]
    values += [onnx.numpy_helper.to_array(weight) for weight in model.graph.initializer]
    return max((float(np.abs(v.astype(np.float64)).max()) for v in values if v.size), default=0.0)


def by_onnxruntime(case: Case) -> Array | None:
    """The result, None where onnxruntime has no kernels."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), settings, ["CPUExecutionProvider"])
        return np.asarray(session.run(None, case.inputs)[0])
    except Exception:
        return None


def difference(found: Array, expected: Array, tolerances: Tolerances, largest: float, reference: str) -> list[str]:
    """What differs, in words."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return [f"{reference}: expected {expected.dtype}{expected.shape}, got {found.dtype}{found.shape}"]
    is_float = found.dtype.kind not in "iub"
    allowed = tolerances.relative * max(largest, 1e-3) if is_float else tolerances.integers
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(a - b) <= allowed) | (a == b) | np.isnan(a) & np.isnan(b))
    if not wrong.any():
        return []
    at = tuple(int(n) for n in np.argwhere(wrong)[0])
    return [f"{reference}: {int(wrong.sum())} of {a.size} differ; at {list(at)} expected {b[at]:.6g}, got {a[at]:.6g}"]


class Warnings(logging.Handler):
    """Collects what memc warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self.before = logging.NOTSET

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> Warnings:
        logger = logging.getLogger("memc")
        logger.addHandler(self)
        self.before = logger.level
        logger.setLevel(logging.WARNING)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("memc")
        logger.removeHandler(self)
        logger.setLevel(self.before)


def describe(case: Case, chosen: dict[str, Any]) -> str:
    types = {v.dtype.name for v in case.inputs.values()}
    return f"{' '.join(node.op_type for node in case.model.graph.node)} of {'/'.join(sorted(types))}, {chosen}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--save", type=Path, help="a folder for failing models")
    args = parser.parse_args()
    np.seterr(all="ignore")
    failed = 0
    counts: Counter[str] = Counter()
    for seed in range(args.first, args.first + args.count):
        case = draw(seed)
        counts.update(node.op_type for node in case.model.graph.node)
        try:
            found = check(seed)
        except MemcError as error:
            found = [f"{type(error).__name__}: {error}"]
        except Exception:
            found = [traceback.format_exc(limit=-3)]
        if found:
            failed += 1
            print(f"seed {seed}: {describe(case, options(seed))}: {found[0]}", flush=True)
            if args.save:
                args.save.mkdir(parents=True, exist_ok=True)
                onnx.save(case.model, args.save / f"epilogue_{seed}.onnx")
    print(f"{failed} of {args.count} models fail; {sum(counts.values())} nodes of {len(counts)} op types")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
