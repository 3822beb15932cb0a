# SPDX-License-Identifier: Apache-2.0
"""Labels of a call: those on the host are checked before it runs, and taken in any type of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.errors import UsageError
from memc.runtime.artifact.manifest import LabelInput, Spec
from memc.runtime.execute.tensors import IR_DTYPE, array_over, numpy_dtype

Array = npt.NDArray[Any]

OUTSIDE = "labels.outside"
"""The output of a step that checks labels on the device: how many of them name no class."""

HOST = (1, 3)
"""DLPack's device types of memory that the CPU reads: its own, and CUDA's pinned."""

HINT = "ignore_index says which label does not count"


def checked(spec: Spec, value: Any, rules: Sequence[LabelInput]) -> Any:
    """What a run takes as the labels `value`: those on the host as an array of the input's type, others as they are.

    Raises UsageError for a label on the host that breaks one of `rules`, and for values that the input's type does not hold.
    """
    array = on_host(value)
    if array is None and not _has_type(value, spec):
        array = from_device(value)
    if array is None:
        return value
    for rule in rules:
        require_classes(spec, array, rule)
    return _converted(spec, array)


def on_host(value: Any) -> Array | None:
    """Labels as an array, if they are on the host: an array, a list, or a tensor that DLPack says is there."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, (list, tuple, int)):
        try:
            found = np.asarray(value)
        except ValueError:  # A ragged list.
            return None
        return found if found.dtype.kind in "biuf" else None
    if not hasattr(value, "__dlpack_device__") or int(value.__dlpack_device__()[0]) not in HOST:
        return None
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        return None


def _has_type(value: Any, spec: Spec) -> bool:
    """Whether a tensor on a device is of the input's type, or no tensor at all, which others will say."""
    import tvm_ffi

    if not hasattr(value, "__dlpack__") and not isinstance(value, tvm_ffi.Tensor):
        return True
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return IR_DTYPE.get(dtype, dtype) in (spec.dtype, "")


def from_device(value: Any) -> Array | None:
    """A copy of a tensor on a device, which waits for it; None if it cannot be read."""
    import tvm
    import tvm_ffi

    try:
        tensor = value if isinstance(value, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(value)
        host = tensor.copyto(tvm.cpu(0))
        return array_over(host, IR_DTYPE[str(tensor.dtype)])
    except (AttributeError, BufferError, KeyError, RuntimeError, TypeError):
        return None


def require_classes(spec: Spec, labels: Array, rule: LabelInput) -> None:
    """Raise UsageError naming the first label that is neither a class nor the ignored one."""
    if rule.classes is None or labels.dtype.kind not in "iu" or labels.size == 0:
        return
    if labels.min() >= 0 and labels.max() < rule.classes:
        return
    bad = (labels < 0) | (labels >= rule.classes)
    if rule.ignore_index is not None:
        bad &= labels != rule.ignore_index
    places = np.argwhere(bad)
    if len(places) == 0:
        return
    place = tuple(int(i) for i in places[0])
    others = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    besides = "" if rule.ignore_index is None else f" or {rule.ignore_index}, which is ignored"
    where = f"{spec.name}[{', '.join(map(str, place))}]" if place else spec.name
    raise UsageError(
        f"input {where}: expected a label from 0 to {rule.classes - 1}{besides}, got {labels[place]}{others}; {HINT}"
    )


def _converted(spec: Spec, labels: Array) -> Array:
    """Integers in the input's type. Raises UsageError for one that it does not hold; other arrays come back as they are."""
    to = numpy_dtype(spec.dtype)
    if labels.dtype == to or labels.dtype.kind not in "biu":
        return labels
    found = labels.astype(to)
    # Compared as integers: in floats 2^53 + 1 would be equal to its neighbour.
    lost = found.astype(labels.dtype) != labels if to.kind in "iu" else _exact(found) != labels
    lost |= (found < 0) != (labels < 0)
    if lost.any():
        raise UsageError(f"input {spec.name}: expected labels that {spec.dtype} holds, got {labels[lost].flat[0]}")
    return found


def _exact(numbers: Array) -> Array:
    """Floats, whole ones, as f64, which the f32 and halves of labels fit in."""
    return numbers.astype(np.float64)
