# SPDX-License-Identifier: Apache-2.0
"""A module's tensors in a compiled step: those that lie in its memory, and those that it was compiled with as they were.

PyTorch programs may change any of them between steps. What is written in place to a trained parameter or a running statistic is the step's
own state already. The rest is seen before a step: a parameter that was given other bytes (`p.data = ...`, `vector_to_parameters`,
a second step of the module) has them copied into the step's memory, and what a step cannot follow is an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from memc.frontend.torch.exported import array_of
from memc.ir.errors import UsageError

COUNTER = "num_batches_tracked"
"""The buffer of a batch normalization that counts steps, which is the host's business."""

MEAN = "running_mean"

AGAIN = "compile again"


@dataclass
class _Place:
    """Where a module holds a tensor."""

    name: str
    owner: dict[str, Any]
    key: str
    tensor: torch.Tensor
    requires_grad: bool
    address: int = 0

    @property
    def held(self) -> Any:
        """What the module holds there now."""
        return self.owner.get(self.key)


@dataclass
class _Shared(_Place):
    """A tensor over the bytes of a state."""

    view: torch.Tensor | None = None


@dataclass
class _Fixed(_Place):
    """A tensor that the step has a copy of, as it was, or numbers made of it."""

    version: int = 0
    kept: torch.Tensor | None = None
    """The step's copy; None where it has others made of it, or in another order."""
    checksum: int | None = None
    """Of the bytes as they were; None where `kept` has them."""


class SharedTensors:
    """The tensors of a module, before and after each step."""

    def __init__(
        self,
        model: nn.Module,
        views: Mapping[str, torch.Tensor],
        kept: Mapping[str, torch.Tensor],
        constants: Collection[str],
    ) -> None:
        """`views`: the step's states by name; `kept`: its other weights; `constants`: names of the tensors that it was compiled with as
        they were. Raises UsageError where one of `kept` is another in the module."""
        places = list(_places(model))
        of_state = {id(p.tensor): views[p.name] for p in places if p.name in views}
        self._shared = [
            _Shared(p.name, p.owner, p.key, p.tensor, p.requires_grad, view=of_state[id(p.tensor)])
            for p in places
            if id(p.tensor) in of_state
        ]
        for place in self._shared:
            self._put(place)
        self._fixed = [_fixed(p, kept.get(p.name)) for p in places if p.name in constants and p.name not in views]
        self._marked: list[_Place] = [p for p in (*self._shared, *self._fixed) if isinstance(p.tensor, nn.Parameter)]
        self._modes = [(name, module, module.training) for name, module in model.named_modules()]
        self._counters = [p for p in places if p.key == COUNTER and p.name.removesuffix(COUNTER) + MEAN in views]

    def enter(self) -> None:
        """Have the module's tensors as they are now in the step's memory. Raises UsageError, having changed nothing, for what the step
        cannot follow."""
        moved = self._moved()
        self._require_marks()
        for fixed in self._fixed:
            held = fixed.held
            if held is not fixed.tensor or _version(held) != fixed.version or held.data_ptr() != fixed.address:
                _require_same(fixed)
        for place in moved:
            self._put(place)

    def follow(self) -> None:
        """Of `enter`, what brings tensors into the step's memory."""
        for place in self._moved():
            self._put(place)

    def reread(self) -> None:
        """Have the module's tensors lie in the step's memory, and hold what that does."""
        for place in self._moved():
            place.held.data = place.view
            self._put(place)

    def _moved(self) -> list[_Shared]:
        """Those that are no longer in the step's memory. Raises UsageError for what cannot be brought there."""
        found = [p for p in self._shared if p.held is not p.tensor or p.tensor.data_ptr() != p.address]
        for place in found:
            _require_alike(place)
        return found

    def _require_marks(self) -> None:
        """Raise UsageError unless modes and what needs a gradient are as when the step was compiled."""
        for place in self._marked:
            if place.tensor.requires_grad != place.requires_grad:
                raise UsageError(
                    f"`{place.name}`: requires_grad was {place.requires_grad} when the step was compiled and is"
                    f" {place.tensor.requires_grad} now: {AGAIN}"
                )
        for name, module, training in self._modes:
            if module.training != training:
                was, now = ("training" if mode else "evaluation" for mode in (training, module.training))
                called = f"module `{name}`" if name else "the module"
                raise UsageError(
                    f"{called} was in {was} mode when the step was compiled and is in {now} mode now: set it back, or {AGAIN}"
                )

    def leave(self, batches: int = 1) -> None:
        """Count a step of so many micro-batches, as batch normalizations do."""
        with torch.no_grad():
            for place in self._counters:
                held = place.held
                if held is not None:
                    held.add_(batches)

    def _put(self, place: _Shared) -> None:
        """Let a tensor lie in the step's memory."""
        assert place.view is not None
        tensor = place.held
        with torch.no_grad():
            if tensor.data_ptr() != place.view.data_ptr():
                place.view.copy_(tensor)
            tensor.data = place.view
        place.tensor, place.address = tensor, tensor.data_ptr()


def _places(model: nn.Module) -> Iterator[_Place]:
    """All parameters and buffers, under all their names."""
    for prefix, module in model.named_modules():
        for owner in (module._parameters, module._buffers):
            for key, tensor in owner.items():
                if tensor is not None:
                    yield _Place(f"{prefix}.{key}" if prefix else key, owner, key, tensor, tensor.requires_grad)


def _fixed(place: _Place, kept: torch.Tensor | None) -> _Fixed:
    """A tensor as it is now."""
    tensor = place.tensor
    if kept is not None and (kept.shape != tensor.shape or kept.dtype != tensor.dtype or kept.device != tensor.device):
        kept = None
    checksum = None if kept is not None else _checksum(tensor)
    found = _Fixed(
        place.name,
        place.owner,
        place.key,
        tensor,
        place.requires_grad,
        tensor.data_ptr(),
        _version(tensor),
        kept,
        checksum,
    )
    if kept is not None:
        _require_same(found)
    return found


def _require_alike(place: _Shared) -> None:
    """Raise UsageError unless what the module holds is the parameter that it was, or a buffer, of the state's type."""
    held, view = place.held, place.view
    assert view is not None
    if held is not place.tensor and isinstance(place.tensor, nn.Parameter):
        raise UsageError(
            f"`{place.name}` is another parameter than when the step was compiled, as load_state_dict(assign=True) makes them:"
            f" {AGAIN}, with an optimizer that has it"
        )
    if held is None or (held.shape, held.dtype, held.device) != (view.shape, view.dtype, view.device):
        got = "gone" if held is None else f"{held.dtype} {list(held.shape)} on {held.device}"
        raise UsageError(
            f"`{place.name}`: expected {view.dtype} {list(view.shape)} on {view.device}, as when the step was compiled, got {got}:"
            f" {AGAIN}"
        )


def _require_same(place: _Fixed) -> None:
    """Raise UsageError where a tensor has other bytes than the step was compiled with."""
    held = place.held
    same = held is not None and (held.shape, held.dtype, held.device) == (
        place.tensor.shape,
        place.tensor.dtype,
        place.tensor.device,
    )
    if same and place.kept is not None:
        same = torch.equal(_bytes(held), _bytes(place.kept))
    elif same:
        same = _checksum(held) == place.checksum
    if not same:
        raise UsageError(
            f"`{place.name}` is not trained, and is another now than when the step was compiled, with its value: {AGAIN}"
        )
    place.tensor, place.version, place.address = held, _version(held), held.data_ptr()


def _version(tensor: torch.Tensor) -> int:
    """A number that every write in place moves; tensors of inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(array_of(tensor).reshape(-1).view("u1").data)
