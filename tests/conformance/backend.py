# SPDX-License-Identifier: Apache-2.0
"""Runs the node tests that onnx generates through memc, evaluated with numpy or compiled.

Selected are the tests whose graph inputs and outputs are tensors of static shape with elements f32, i64, i32 or bool,
at least one of them f32: 1,267 of the 1,884 in onnx 1.23. Inputs that must be known at compile time (shapes, axes,
sizes) are bound to the test's data when the import asks for it.
"""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from memc.frontend.onnx import import_onnx
from memc.ir.errors import MemcError, UnsupportedError
from memc.ir.module import Module

Array = npt.NDArray[Any]

ELEMENTS = frozenset({TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})

ATOL = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
"""Absolute tolerances where the expected values hold rounding errors: these were made by an FFT in f32, which leaves
1.9e-7 where the transform is zero."""

RTOL = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
"""Least relative tolerances by element type: two units in the last place (of a number just above a power of two). The
expected values of longer tests were rounded to that type after each step, and are further from what f64 gives than
results rounded once. onnx's own runner does the same for bfloat16."""

VERDICTS = ("match", "unsupported", "wrong", "rejected", "crash", "hang")
"""`rejected`: an error other than "unsupported" for a valid model."""


@dataclass(frozen=True)
class Case:
    """One generated test: a model, its inputs and the expected outputs, in the graph's order."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    expected: dict[str, Array]
    rtol: float
    atol: float

    @property
    def ops(self) -> str:
        """The op types in the graph, for grouping."""
        return "+".join(sorted({node.op_type for node in self.model.graph.node}))


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    name: str
    ops: str
    verdict: str
    detail: str = ""
    bound: tuple[str, ...] = ()


@functools.cache
def collect() -> dict[str, Any]:
    """All generated node tests by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def _static_tensor(info: onnx.ValueInfoProto) -> bool:
    if info.type.WhichOneof("value") != "tensor_type":
        return False
    tensor = info.type.tensor_type
    return tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)


def _array(given: Any) -> Array:
    """A test's data, which is an array, a number or, where numpy has no such elements, a stored tensor."""
    return onnx.numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)


@functools.cache
def static() -> dict[str, Case]:
    """All tests whose inputs and outputs are tensors of static shape, of whatever elements, by name."""
    cases = {}
    for name, test in collect().items():
        inputs, outputs = list(test.model.graph.input), list(test.model.graph.output)
        if not all(_static_tensor(i) for i in inputs + outputs):
            continue
        given, wanted = test.data_sets[0]
        cases[name] = Case(
            name,
            test.model,
            {i.name: _array(a) for i, a in zip(inputs, given)},
            {o.name: _array(a) for o, a in zip(outputs, wanted)},
            test.rtol,
            ATOL.get(name, test.atol),
        )
    return cases


@functools.cache
def selected() -> dict[str, Case]:
    """The tests a static compiler with f32 and integer tensors is asked to pass, by name."""
    cases = {}
    for name, case in static().items():
        elements = {i.type.tensor_type.elem_type for i in (*case.model.graph.input, *case.model.graph.output)}
        if elements <= ELEMENTS and TensorProto.FLOAT in elements:
            cases[name] = case
    return cases


def import_case(case: Case) -> tuple[Module, tuple[str, ...]]:
    """Import the model, binding inputs to the test's data where the import says that they must be known.

    Returns the module and the names of the inputs bound. Raises what the import raises.
    """
    bound: dict[str, Array] = {}
    shapes = {i.name: case.inputs[i.name].shape for i in case.model.graph.input if i.name in case.inputs}
    while True:
        try:
            free = {n: s for n, s in shapes.items() if n not in bound}
            return import_onnx(case.model, input_shapes=free, bind=bound), tuple(bound)
        except UnsupportedError as error:
            asked = re.search(r"--bind ([^\s=]+)=", str(error))
            if asked is None:
                raise
            names = [asked[1]] if asked[1] in case.inputs else _shape_like(case)
            names = [n for n in names if n not in bound]
            if not names:
                raise
            bound.update({n: case.inputs[n] for n in names})


def _shape_like(case: Case) -> list[str]:
    """What may decide a value inside that must be known: integer and boolean inputs, or else single numbers."""
    found = [name for name, array in case.inputs.items() if array.dtype.kind in "iub"]
    return found or [name for name, array in case.inputs.items() if array.size == 1]


def run_evaluated(case: Case) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Import and evaluate with numpy; returns outputs by name and the inputs bound."""
    from memc.ir.evaluate import evaluate
    from memc.ir.verify.structure import verify

    module, bound = import_case(case)
    verify(module)
    given = {n: a for n, a in case.inputs.items() if n not in bound}
    with np.errstate(all="ignore"):
        return dict(evaluate(module, given)), bound


def run_compiled(case: Case) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Import, compile at -O2 for this machine's CPU, load the artifact and run it."""
    import memc

    module, bound = import_case(case)
    given = {n: a for n, a in case.inputs.items() if n not in bound}
    with tempfile.TemporaryDirectory() as folder:
        results = memc.compile(module, Path(folder) / "case.memc", target="llvm", opt_level=2).load()(**given)
        return {name: np.array(results[name]) for name in case.expected}, bound


MODES = {"evaluate": run_evaluated, "compiled": run_compiled}


def run_case(case: Case, mode: str) -> Outcome:
    """Run one case in this process. Exceptions become verdicts; crashes and hangs of the process do not."""
    try:
        results, bound = MODES[mode](case)
    except UnsupportedError as error:
        return Outcome(case.name, case.ops, "unsupported", _one_line(error))
    except MemcError as error:
        return Outcome(case.name, case.ops, "rejected", _one_line(error))
    except Exception as error:
        return Outcome(case.name, case.ops, "crash", f"{type(error).__name__}: {_one_line(error)}")
    difference = compare(results, case)
    return Outcome(case.name, case.ops, "wrong" if difference else "match", difference, bound)


def _one_line(error: BaseException) -> str:
    return " | ".join(str(error).strip().splitlines())[:400]


def drawn_difference(results: Mapping[str, Array], case: Case) -> str | None:
    """How the outputs differ from what the standard says of a random op's; None for tests of other ops.

    The numbers that the tests expect are those of numpy's generator, which the standard does not ask for, and onnx's own
    runner leaves these tests out. What it does ask for is checked: types, values, and how often each is there."""
    nodes, names = list(case.model.graph.node), [i.name for i in case.model.graph.input]
    if any(node.op_type in ("Bernoulli", "RandomUniformLike") for node in nodes):
        x = case.inputs[names[0]].astype(np.float64)
        y = results[case.model.graph.output[0].name].astype(np.float64)
        if not np.isin(y, (0, 1)).all() or (y[x == 0] != 0).any() or (y[x == 1] != 1).any():
            return "expected 1 and 0, never by the probabilities 0 and 1"
        return _share(y.mean(), x.mean(), y.size)
    if len(nodes) != 1 or nodes[0].op_type != "Dropout" or len(names) < 3 or not case.inputs[names[2]]:
        return None
    x = case.inputs[names[0]].astype(np.float64)
    ratio = float(case.inputs[nodes[0].input[1]])
    kept = results[nodes[0].output[1]] if len(nodes[0].output) > 1 else results[nodes[0].output[0]] != 0
    if not np.allclose(results[nodes[0].output[0]], np.where(kept, x / (1 - ratio), 0), rtol=case.rtol, atol=case.atol):
        return f"expected 0 and x / {1 - ratio:g}, as the mask says"
    return _share(float(kept.mean()), 1 - ratio, kept.size)


def _share(found: float, expected: float, count: int) -> str:
    """What is wrong with a share of `count` independent draws; empty if it is within five standard deviations."""
    if abs(found - expected) <= 5 * (expected * (1 - expected) / count) ** 0.5:
        return ""
    return f"expected a share of about {expected:.3g}, got {found:.3g}"


def compare(results: Mapping[str, Array], case: Case) -> str:
    """The first difference to the expected outputs, judged as onnx's own runner does; empty if there is none."""
    for name, expected in case.expected.items():
        got = results.get(name)
        if got is None:
            return f"output `{name}` is missing"
        if got.dtype != expected.dtype or got.shape != expected.shape:
            return f"output `{name}`: expected {expected.dtype}{expected.shape}, got {got.dtype}{got.shape}"
    drawn = drawn_difference(results, case)
    if drawn is not None:
        return drawn
    for name, expected in case.expected.items():
        got = results[name]
        if expected.dtype.kind in "OUST":
            if not np.array_equal(got, expected):
                return f"output `{name}`: texts differ"
            continue
        # In f64: numpy would round the tolerance itself to f16.
        a, b = (x if x.dtype.kind in "iubc" else x.astype(np.float64) for x in (got, expected))
        rtol = max(case.rtol, RTOL.get(expected.dtype.name, 0.0))
        close = np.isclose(a, b, rtol=rtol, atol=case.atol, equal_nan=True)
        if not close.all():
            both = np.isfinite(a) & np.isfinite(b)
            gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
            worst = float(gap[both].max()) if both.any() else float("nan")
            return f"output `{name}`: {int((~close).sum())} of {expected.size} elements differ, at most by {worst:.3g}"
    return ""
