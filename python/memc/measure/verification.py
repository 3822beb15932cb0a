# SPDX-License-Identifier: Apache-2.0
"""Comparing a compiled model with a reference implementation on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import onnx

from memc import driver
from memc.frontend.sources import ONNX, format_of
from memc.ir.arrays import native
from memc.ir.checked import Amount, require, require_one_of
from memc.ir.core import Array, Role
from memc.ir.errors import DeviceMemoryError, UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.ir.types import DType, TensorType
from memc.measure.compare import Difference, Tolerance, compare
from memc.options import Keywords, checked_options, with_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

REFERENCES = ("onnxruntime", "numpy")

TOLERANCES = {"f32": (1e-3, 1e-5), "tf32": (2e-2, 2e-3)}
"""Relative and absolute, per element. TF32 keeps 10 bits of a factor's mantissa: an error of 3e-4 in one product."""

NORMS = {"f16": 1e-2, "bf16": 5e-2}
"""The relative error of an output as a whole that half precision may have. It keeps 10 and 7 bits of mantissa of every
value: errors of 5e-4 and 4e-3, which add up layer by layer. Models that have values in half precision are allowed the same."""


@dataclass(frozen=True)
class Verification:
    """Differences by output name."""

    differences: dict[str, Difference]
    against: str

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
        against: `onnxruntime`, or `numpy` for memc's own evaluation of the imported, unoptimized IR.
        inputs: data by input name; what is missing is random, from `seed`.
        rtol, atol: tolerances per element; None for those of the precision (`TOLERANCES`; in half precision, where neither
            is given, `NORMS`).
        all_tensors: also compare every floating-point tensor inside the model.
        **options: as for `memc.compile`.

    Raises:
        MemcError: if the model does not compile, or the reference does not run it.
    """
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
    source: Any = with_all_outputs(Path(model)) if all_tensors else model
    chosen = checked_options(options)
    usual = TOLERANCES.get(chosen.precision, TOLERANCES["tf32"])
    module = driver.load_module(source, chosen)
    norm = NORMS.get(half_of(module) or chosen.precision) if rtol is None and atol is None else None
    rtol, atol = (usual[0] if rtol is None else rtol), (usual[1] if atol is None else atol)
    given = complete_inputs(module, inputs or {}, seed)
    if against == "numpy":
        from memc.ir.evaluate import evaluate

        reference = dict(zip(_output_names(module), evaluate(module, given).values()))
    else:
        reference = run_onnxruntime(source, given, chosen.bind)
    compilation = driver.compile(module, progress=progress, **options)
    results = compilation.load().run_numpy(given)
    differences = {name: compare(results[name], reference[name], rtol=rtol, atol=atol, norm=norm) for name in results}
    return Verification(differences, against)


def half_of(module: Module) -> str | None:
    """The coarser half precision among the values of a module, None if there are none."""
    types = {value.type.dtype for value in module.main.values()}
    return next((dtype.value for dtype in (DType.BF16, DType.F16) if dtype in types), None)


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


def random_inputs(types: Mapping[str, TensorType], given: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """`given`, and seeded random data for the other inputs, in the order of `types`. Raises DeviceMemoryError if this
    machine's memory cannot hold them."""
    needed = sum(type.nbytes for type in types.values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise DeviceMemoryError(
            f"inputs: expected at most the {format_size(memory)} of this machine's memory, got {format_size(needed)}"
        )
    generator = np.random.default_rng(seed)
    return {name: given[name] if name in given else random_array(type, generator) for name, type in types.items()}


def random_array(type: TensorType, generator: np.random.Generator) -> Array:
    """Standard normal floats; integers and booleans of 0 and 1, which are valid as ids, masks and bytes alike."""
    if type.dtype.is_float:
        return generator.standard_normal(type.shape).astype(type.dtype.numpy)
    if type.dtype is DType.BOOL:
        return generator.integers(0, 2, type.shape).astype(np.bool_)
    return generator.integers(0, 2, type.shape).astype(type.dtype.numpy)


def run_onnxruntime(
    source: str | Path | bytes, inputs: Mapping[str, Array], bind: Mapping[str, Any]
) -> dict[str, Array]:
    """All outputs of the model on onnxruntime's CPU provider, as it is written: what onnxruntime makes of a quantized model
    to run it faster rounds apart. Raises UnsupportedError if it cannot run it."""
    try:
        import onnxruntime
    except ImportError:
        raise UsageError("--against onnxruntime: onnxruntime is not installed (pip install onnxruntime)") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"]
        )
        feeds = dict(inputs)
        for spec in session.get_inputs():
            if spec.name in bind:
                dtype = onnx.helper.tensor_dtype_to_np_dtype(_ORT_TYPES[spec.type])
                feeds[spec.name] = np.asarray(bind[spec.name], dtype=dtype)
        names = [output.name for output in session.get_outputs()]
        return {name: np.asarray(value) for name, value in zip(names, session.run(None, feeds))}
    except Exception as error:
        raise UnsupportedError(f"onnxruntime cannot run the model: {' '.join(str(error).split())}") from None


_ORT_TYPES = {
    "tensor(float)": onnx.TensorProto.FLOAT,
    "tensor(float16)": onnx.TensorProto.FLOAT16,
    "tensor(double)": onnx.TensorProto.DOUBLE,
    "tensor(int64)": onnx.TensorProto.INT64,
    "tensor(int32)": onnx.TensorProto.INT32,
    "tensor(int16)": onnx.TensorProto.INT16,
    "tensor(int8)": onnx.TensorProto.INT8,
    "tensor(uint64)": onnx.TensorProto.UINT64,
    "tensor(uint32)": onnx.TensorProto.UINT32,
    "tensor(uint16)": onnx.TensorProto.UINT16,
    "tensor(uint8)": onnx.TensorProto.UINT8,
    "tensor(bool)": onnx.TensorProto.BOOL,
}


def with_all_outputs(path: Path) -> bytes:
    """The model with every floating-point tensor computed in it as an output. Raises UsageError."""
    try:
        model = onnx.load(path)
        model = onnx.shape_inference.infer_shapes(model)
    except Exception as error:
        raise UsageError(f"{path}: cannot mark all tensors: {' '.join(str(error).split())}") from None
    graph = model.graph
    known = {output.name for output in graph.output}
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    for info in graph.value_info:
        if info.name not in known and info.type.tensor_type.elem_type in floats:
            graph.output.append(info)
    return bytes(model.SerializeToString())
