# SPDX-License-Identifier: Apache-2.0
"""The states and weights of a compiled step as PyTorch's tensors, over the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from memc.ir.spaces import HOST
from memc.runtime.artifact.manifest import StoredWeight
from memc.runtime.execute.stateful import Stateful

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def state_views(executable: Stateful) -> dict[str, torch.Tensor]:
    """A tensor over the bytes of each state that lies in the device's memory; states on the host are left out."""
    return _views(executable, executable.states.values())


def fixed_views(executable: Stateful) -> dict[str, torch.Tensor]:
    """The same of each weight that is no state and lies there as in the model."""
    weights = executable.manifest.weights
    return _views(executable, (w for w in weights if w.spec.name not in executable.states and w.layout == "row-major"))


def _views(executable: Stateful, weights: Iterable[StoredWeight]) -> dict[str, torch.Tensor]:
    spaces: dict[str, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for weight in weights:
        spec = weight.spec
        if spec.space == HOST or str(spec.dtype) not in DTYPES:
            continue
        if spec.space not in spaces:
            spaces[spec.space] = _bytes_of(executable, spec.space)
        part = spaces[spec.space][weight.offset : weight.offset + spec.nbytes]
        # By DLPack each has a storage of its own: a saved tensor is written with the whole of its storage.
        found[spec.name] = torch.from_dlpack(part.view(DTYPES[str(spec.dtype)]).view(tuple(spec.shape)))
    return found


def _bytes_of(executable: Stateful, space: str) -> torch.Tensor:
    """The bytes of a space."""
    viewer = executable.virtual_machine[executable.manifest.space(space).viewer]
    tensor: Any = viewer(executable.storages[space])
    return torch.from_dlpack(tensor)
