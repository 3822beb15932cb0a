# SPDX-License-Identifier: Apache-2.0
"""The states of a compiled step as PyTorch's tensors, over the same bytes."""

from __future__ import annotations

from typing import Any

import torch

from memc.ir.spaces import HOST
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
    spaces: dict[str, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for name, state in executable.states.items():
        spec = state.spec
        if spec.space == HOST:
            continue
        if spec.space not in spaces:
            spaces[spec.space] = _bytes_of(executable, spec.space)
        part = spaces[spec.space][state.offset : state.offset + spec.nbytes]
        found[name] = part.view(DTYPES[str(spec.dtype)]).view(tuple(spec.shape))
    return found


def _bytes_of(executable: Stateful, space: str) -> torch.Tensor:
    """The bytes of a space."""
    viewer = executable.virtual_machine[executable.manifest.space(space).viewer]
    tensor: Any = viewer(executable.storages[space])
    return torch.from_dlpack(tensor)
