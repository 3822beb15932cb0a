# SPDX-License-Identifier: Apache-2.0
"""Running an artifact that updates states: a training step's weights, moments and counters, or a counter of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.arrays import plain, type_name
from memc.ir.errors import InvalidError, UsageError
from memc.ir.messages import nearest
from memc.runtime.artifact import safetensors
from memc.runtime.artifact.manifest import StoredWeight
from memc.runtime.cuda.cuda_runtime import synchronize_device
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.load_code import Loaded
from memc.runtime.execute.memory import content_of, copied, write_back
from memc.runtime.execute.tensors import numpy_dtype, typed

Array = npt.NDArray[Any]


class Stateful(Executable):
    """A compiled model that keeps something from run to run, such as the counter by which random ops draw."""

    def __init__(self, loaded: Loaded, shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(loaded, shared)
        manifest = self.manifest
        self.states: dict[str, StoredWeight] = {
            s.spec.name: s for s in manifest.weights if s.spec.name in manifest.states
        }

    def session(self) -> Stateful:
        """Another executable with a state of its own, which is a copy of what this one has now, and an arena of its own."""
        self.require_host()
        with self.running, device_errors(self.manifest, self.device, "making a session"):
            self._wait_for_host()
            kept = {**self.storages_of_weights(), **{name: self.storages[name] for name in self._spaces()}}
            own = {
                name: copied(self.loaded, self.virtual_machine, self.manifest.space(name), storage)
                for name, storage in kept.items()
            }
        other = type(self)(self.loaded, own)
        other.keeps = self.keeps
        return other

    def state(self) -> dict[str, Array]:
        """A copy of every state by name: weights as in the model, and the optimizer's as `WEIGHT.momentum` and such."""
        self.require_host()
        with self.running:
            found = self._contents()
            return {
                name: typed(found[s.spec.space][s.offset : s.offset + s.spec.nbytes].copy(), s.spec.dtype, s.spec.shape)
                for name, s in self.states.items()
            }

    def load_state(self, content: Mapping[str, Array], *, partial: bool = False) -> None:
        """Set all states by name. With `partial`, those not among `content` stay as they are.

        Raises UsageError for an unknown or missing name, or another shape or element type; no state has changed then.
        """
        if not isinstance(content, Mapping):
            raise UsageError(f"state: expected a dict of arrays by name, got {type(content).__name__}")
        unknown = next((name for name in content if name not in self.states), None)
        if unknown is not None:
            near = nearest(str(unknown), self.states)
            raise UsageError(f"no state is called {unknown}; expected one of {', '.join(sorted(self.states))}{near}")
        self.require_host()
        checked = {name: self._checked(name, array) for name, array in content.items()}
        wrong = None if partial else differing(self.states, checked)
        if wrong is not None:
            raise UsageError(f"state: {wrong}; partial=True leaves the others as they are")
        with self.running:
            found = self._contents()
            for name, raw in checked.items():
                weight = self.states[name]
                found[weight.spec.space][weight.offset : weight.offset + raw.size] = raw
            for name, array in found.items():
                space = self.manifest.space(name)
                if space.device.kind == "cuda":  # Else it is the content itself.
                    with device_errors(self.manifest, self.device, "writing the state"):
                        write_back(self.virtual_machine, space, self.storages[name], self._in(name), array)

    def save(self, path: str | Path) -> None:
        """Write the state as a safetensors file, from which `restore` goes on."""
        path, state = path_of(path), self.state()
        entries = []
        for name, weight in self.states.items():
            spec = weight.spec
            entries.append((name, spec.dtype, spec.shape, spec.nbytes, lambda array=state[name]: array))
        try:
            safetensors.write(path, entries)
        except OSError as error:
            raise UsageError(f"{path}: cannot write the state: {error.strerror or error}") from None

    def restore(self, path: str | Path, *, partial: bool = False) -> None:
        """Read what `save` wrote: all states of this step, and no others. With `partial`, states of one side alone are left
        aside: the step keeps its own.

        Raises UsageError for a file that cannot be opened, InvalidError for a damaged one or one of another model or
        optimizer; no state has changed then.
        """
        path = path_of(path)
        try:
            stored, types = safetensors.read(path), safetensors.types(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot read the state: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidError(f"{path}: cannot be read as saved state: {error}") from None
        wrong = None if partial else differing(self.states, stored)
        if wrong is not None:
            raise InvalidError(f"{path}: {wrong}; partial=True leaves states of one side alone aside")
        found = {}
        for name, weight in self.states.items():
            if name not in stored:
                continue
            spec, raw, (dtype, shape) = weight.spec, stored[name], types[name]
            if (dtype, shape) != (safetensors.CODES[spec.dtype], spec.shape) or raw.size != spec.nbytes:
                got = f"{dtype.lower()}[{','.join(map(str, shape))}]"
                raise InvalidError(f"{path}: expected {spec}, got {got} of {raw.size} bytes")
            found[name] = typed(np.array(raw), spec.dtype, spec.shape)
        self.load_state(found, partial=True)

    def _contents(self) -> dict[str, Array]:
        """The bytes of each space that states lie in: themselves in the host's memory, a copy of a device's. No run uses them."""
        with device_errors(self.manifest, self.device, "reading the state"):
            self._wait_for_host()
            return {
                name: content_of(self.virtual_machine, self.manifest.space(name), self.storages[name], self._in(name))
                for name in self._spaces()
            }

    def _in(self, space: str) -> list[StoredWeight]:
        """The states that lie in a space."""
        return [state for state in self.states.values() if state.spec.space == space and state.spec.nbytes]

    def _spaces(self) -> list[str]:
        """The names of the spaces that states lie in."""
        return list(dict.fromkeys(weight.spec.space for weight in self.states.values()))

    def _wait_for_host(self) -> None:
        """Until runs that were launched have copied states to the host, whose memory is read and written by no stream."""
        if any(self.manifest.space(name).is_pinned for name in self._spaces()):
            synchronize_device()

    def _checked(self, name: str, array: Array) -> Array:
        """The bytes of a new content."""
        spec = self.states[name].spec
        array = plain(array, f"state {spec}")
        if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.shape:
            raise UsageError(f"state {spec}: got {type_name(array)}{list(array.shape)}")
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def differing(expected: Iterable[str], given: Iterable[str]) -> str | None:
    """How the names of states differ from those of the step; None if they do not."""
    wanted, there = set(expected), set(given)
    missing, others = sorted(wanted - there), sorted(there - wanted)
    said = []
    if missing:
        said.append(f"expected the state {missing[0]}, but it is not there{_more(missing, 'nor')}")
    if others:
        said.append(f"got the state {others[0]}{_more(others, 'and')}, which this step does not have")
    if not said:
        return None
    return f"{'; '.join(said)}; the step has {_listed(wanted)}; there are {_listed(there)}"


def _more(names: list[str], word: str) -> str:
    return f" ({word} {len(names) - 1} others)" if len(names) > 1 else ""


def _listed(names: set[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "") if found else "none"


def path_of(path: object) -> Path:
    """Raise UsageError for what is no path."""
    if not isinstance(path, (str, PathLike)):
        raise UsageError(f"expected the path of a file, got {path!r}")
    return Path(path)
