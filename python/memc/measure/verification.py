# SPDX-License-Identifier: Apache-2.0
"""Comparing a compiled model with a reference implementation on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from memc import driver
from memc.compile_options import Keywords, checked_options, with_options
from memc.frontend.sources import ONNX, format_of
from memc.ir.arrays import native
from memc.ir.checked_options import Amount, require, require_one_of
from memc.ir.core import Array, Role, Value
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.ir.op_queries import draws
from memc.measure.compare import Difference, Tolerance
from memc.measure.random_data import random_inputs
from memc.measure.references import run_onnxruntime, run_reference, with_all_outputs
from memc.measure.sensitivity import moved_results
from memc.measure.tolerances import Tolerances, tolerances_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

REFERENCES = ("onnxruntime", "onnx", "numpy")


@dataclass(frozen=True)
class Judgement:
    """What one tensor was found to be."""

    difference: Difference
    against: str
    """The reference that decided: the first one that agrees, or else the one that was asked for."""
    note: str = ""
    """What the other reference found, if that was asked too."""


@dataclass(frozen=True)
class Verification:
    """What was found, by output name."""

    judgements: dict[str, Judgement]
    against: str
    tolerances: Tolerances
    notes: tuple[str, ...] = ()
    """Why references that were asked gave no results."""

    @property
    def differences(self) -> dict[str, Difference]:
        """From the reference that decided, by output name."""
        return {name: found.difference for name, found in self.judgements.items()}

    @property
    def passed(self) -> bool:
        return all(d.matches for d in self.differences.values())


@with_options
def verify(
    model: str | Path,
    *,
    against: str = "onnxruntime",
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    all_tensors: bool = False,
    progress: driver.Progress | None = None,
    **options: Unpack[Keywords],
) -> Verification:
    """Compile `model`, run it, and compare each output with a reference.

    Args:
        model: path to an .onnx file (or .memir, with `against="numpy"`).
        against: `onnxruntime`, with its optimizations off; `onnx` for onnx's reference evaluator; or `numpy` for memc's own
            evaluation of the imported, unoptimized IR. Where a tensor is not what onnxruntime has, or onnxruntime does not
            run the model, onnx's reference is asked too, and a tensor that agrees with either passes. What depends on random
            numbers, which every implementation draws its own way, is compared with `numpy`.
        inputs: data by input name; what is missing is random, from `seed`.
        rtol: relative tolerance per element; None for that of the precision and the model's types (`TOLERANCES`; in half
            precision and for models quantized to 8 bits, where `atol` is not given either, `NORMS`).
        atol: absolute tolerance per element, likewise.
        all_tensors: also compare every floating-point tensor inside the model.
        **options: as for `memc.compile`.

    Raises:
        MemcError: if the model does not compile, or no reference runs it.
    """
    _require_call(model, against, inputs, seed, rtol, atol, all_tensors)
    source: Any = with_all_outputs(Path(model)) if all_tensors else model
    chosen = checked_options(options)
    module = driver.load_module(source, chosen)
    tolerances = tolerances_of(module, chosen.precision, rtol, atol)
    given = complete_inputs(module, inputs or {}, seed)
    asked = _References(source, module, given, {**given, **module.bound}, progress)
    drawn = random_results(module)
    expected = asked.results("numpy") if drawn else {}
    if not drawn.issuperset(_output_names(module)):
        expected = {**asked.results(against), **{name: expected[name] for name in drawn}}
    compilation = driver.compile(module, progress=progress, **options)
    results = compilation.load().run_numpy(given)
    judgements = {
        name: Judgement(tolerances.compare(result, expected[name]), "numpy", "depends on random numbers")
        if name in drawn
        else asked.judgement(name, result, expected[name], tolerances)
        for name, result in results.items()
    }
    notes = tuple(found for found in asked.found.values() if isinstance(found, str))
    return Verification(judgements, against, tolerances, notes)


def _require_call(
    model: object, against: str, inputs: object, seed: int, rtol: object, atol: object, all_tensors: object
) -> None:
    """Raise UsageError for arguments beside the options that are of another kind, or do not go together."""
    require_one_of(against, REFERENCES, f"--against {against}")
    require(seed, Amount, "seed")
    require(all_tensors, bool, "all_tensors")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        require(tolerance, Optional[Tolerance], name)
    if not isinstance(model, (str, Path)):
        raise UsageError(f"model: expected the path of a model, got {shown(model)}")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError(f"inputs: expected a dict of arrays by name, got {type(inputs).__name__}")
    if format_of(model) not in (None, ONNX) and (against != "numpy" or all_tensors):
        raise UsageError(f"{model}: onnxruntime and --all-tensors need an .onnx model; use --against numpy alone")


SECOND = "onnx"
"""The reference that is asked where onnxruntime disagrees, or cannot."""


@dataclass
class _References:
    """What other implementations make of one model and its inputs, each run once."""

    source: str | Path | bytes
    module: Module
    given: Mapping[str, Array]
    all_given: Mapping[str, Array]
    """The inputs, those that became constants too."""
    progress: driver.Progress | None
    found: dict[str, dict[str, Array] | str] = field(default_factory=dict)
    """Results by output, or why there are none, by reference."""
    moved: list[dict[str, Array]] | None = None

    def results(self, against: str) -> dict[str, Array]:
        """What the reference that was asked for finds, or the second one in place of onnxruntime. Raises UnsupportedError."""
        self.against = against
        first = self._of(against)
        if isinstance(first, dict):
            return first
        second = self._of(SECOND) if against == "onnxruntime" else first
        if isinstance(second, dict):
            self.against = SECOND
            return second
        raise UnsupportedError(first if second is first else f"{first}; {second}")

    def judgement(self, name: str, result: Array, expected: Array, tolerances: Tolerances) -> Judgement:
        """A result's difference from what is expected of it, or from the second reference if it agrees with that."""
        difference = tolerances.compare(result, expected)
        if difference.matches or self.against != "onnxruntime":
            return Judgement(difference, self.against)
        second, note = self._of(SECOND), ""
        if isinstance(second, dict):
            other = tolerances.compare(result, second[name])
            if other.matches:
                return Judgement(other, SECOND, f"onnxruntime: {difference}")
            wider = tolerances.widened(expected, second[name])
            if wider is not None and wider.compare(result, expected).matches:
                apart = tolerances.compare(expected, second[name])
                return self._allowed(difference, f"{SECOND} and it differ, too: {apart.relative_norm:.3g}")
            note = f"{SECOND}: {other}"
        for moved in self._moved() if tolerances.norm is not None else ():
            wider = tolerances.widened(expected, moved[name])
            if wider is not None and wider.compare(result, expected).matches:
                apart = tolerances.compare(moved[name], expected)
                return self._allowed(difference, f"one rounding of its weights moves it by {apart.relative_norm:.3g}")
        return Judgement(difference, self.against, note)

    def _allowed(self, difference: Difference, why: str) -> Judgement:
        return Judgement(replace(difference, matches=True), self.against, why)

    def _moved(self) -> list[dict[str, Array]]:
        """What onnxruntime makes of the model where its stored floats are moved by one rounding."""
        if self.moved is None:
            if self.progress is not None:
                self.progress("reference: onnxruntime, weights moved by one rounding")
            self.moved = moved_results(self.source, self.all_given)
        return self.moved

    def _of(self, reference: str) -> dict[str, Array] | str:
        """The results of one reference, or why there are none."""
        if reference not in self.found:
            if self.progress is not None:
                self.progress(f"reference: {reference}")
            try:
                self.found[reference] = self._run(reference)
            except UnsupportedError as error:
                self.found[reference] = str(error)
        return self.found[reference]

    def _run(self, reference: str) -> dict[str, Array]:
        if reference == "onnxruntime":
            return run_onnxruntime(self.source, self.all_given)
        if reference == "onnx":
            return run_reference(self.source, self.all_given)
        from memc.ir.evaluate import evaluate

        return dict(zip(_output_names(self.module), evaluate(self.module, self.given).values()))


def random_results(module: Module) -> set[str]:
    """The names of the results that depend on random numbers; not the counter that these are drawn by."""
    found: set[Value] = set()
    for op in module.main.ops:
        if draws(op) or not found.isdisjoint(op.operands):
            found.update(op.results)
    return {name for name, value in zip(_output_names(module), module.main.returns) if value in found}


def _output_names(module: Module) -> list[str]:
    """The artifact's names of the results, in order, without those of counts."""
    counts = {extent.count for extent in module.main.extents}
    names = module.main.result_names or [f"output.{number}" for number in range(len(module.main.returns))]
    return [name for number, name in enumerate(names) if number not in counts]


def complete_inputs(module: Module, inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """`inputs`, checked, and seeded random data for the rest. Raises UsageError."""
    expected = {p.name: p.type for p in module.main.params_of(Role.INPUT)}
    given: dict[str, Array] = {}
    for name, value in inputs.items():
        if name not in expected:
            raise UsageError(f"input `{name}`: no such input; expected {', '.join(expected) or 'none'}")
        array = given[name] = native(value, f"input `{name}`")
        if array.shape != expected[name].shape or array.dtype != expected[name].dtype.numpy:
            raise UsageError(f"input `{name}`: expected {expected[name]}, got {array.dtype}{list(array.shape)}")
    return random_inputs(expected, given, seed)
