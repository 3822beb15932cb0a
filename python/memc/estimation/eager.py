# SPDX-License-Identifier: Apache-2.0
"""A framework that runs op by op, with reference counts and a tape: which blocks a step allocates and frees, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .events import EventList, Origin

Dims = tuple[int, ...]


@dataclass(eq=False)
class Storage:
    """A tensor's block, freed with the last reference to it; or a view of another tensor's."""

    block: int
    nbytes: int
    references: int = 1
    strides: Dims | None = None
    """Of the tensor, in elements; None for rows one after another."""
    base: Storage | None = None
    """Whose block it is, for a view, and who counts the references."""
    parts: tuple[int, ...] = ()
    """Further blocks, of a tensor that is a list of them."""

    @property
    def shared(self) -> bool:
        """Whether another holds the block, too."""
        return (self.base or self).references > 1


Backward = Callable[[Storage], Sequence[Storage | None]]
"""From the gradient of the output to those of the inputs, each with a reference of its own."""


@dataclass(eq=False)
class Entry:
    """An op on the tape."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    saved: list[Storage]
    backward: Backward
    origin: Origin


@dataclass
class Machine:
    """The state of a job: its events so far, live tensors by name, and the tape."""

    nbytes_of: Callable[[str], int]
    """Bytes of a tensor by its name."""
    events: EventList = field(default_factory=EventList)
    tensors: dict[str, Storage] = field(default_factory=dict)
    gradients: dict[str, Storage] = field(default_factory=dict)
    """Of tensors, while a backward pass adds them up."""
    kept: dict[str, Storage] = field(default_factory=dict)
    """Of parameters, until they are dropped."""
    uses: Counter[str] = field(default_factory=Counter)
    """Of each parameter, by ops on the tape that is unwound."""
    tape: list[Entry] = field(default_factory=list)
    origin: Origin = field(default_factory=Origin)
    given: dict[str, Storage | None] = field(default_factory=dict)
    """Gradients of the outputs of the op whose backward pass runs."""
    wanted: frozenset[str] = frozenset()
    applies_at_once: bool = False
    """Whether a parameter's gradient is given up once it is there."""
    _known_of: Origin | None = None
    _known: dict[str, int] = field(default_factory=dict)
    """Numbers of `_known_of` with each category, as most ops make several blocks."""

    def new(self, nbytes: int, category: str) -> Storage:
        """A new block with one reference."""
        if self.origin is not self._known_of:
            self._known_of, self._known = self.origin, {}
        number = self._known.get(category)
        if number is None:
            of = self.origin
            number = self._known[category] = self.events.origin(Origin(of.op, of.module, of.phase, of.step, category))
        return Storage(self.events.allocate_from(nbytes, number), nbytes)

    def hold(self, storage: Storage) -> Storage:
        """The storage with one more reference."""
        (storage.base or storage).references += 1
        return storage

    def view(self, storage: Storage, strides: Dims | None, nbytes: int | None = None) -> Storage:
        """Another tensor in the block of this one, which holds a reference of its own."""
        base = storage.base or storage
        base.references += 1
        return Storage(base.block, storage.nbytes if nbytes is None else nbytes, 0, strides, base)

    def release(self, storage: Storage) -> None:
        """One reference less."""
        owner = storage.base or storage
        owner.references -= 1
        if owner.references == 0:
            for block in (owner.block, *owner.parts):
                self.events.free(block)

    def listed(self, nbytes: int, count: int, category: str) -> Storage:
        """A new tensor that is a list of `count` blocks of equal size."""
        blocks = [self.new(nbytes // count, category).block for _ in range(count)]
        return Storage(blocks[0], nbytes, parts=tuple(blocks[1:]))

    def scratch(self, nbytes: int, category: str = "workspaces") -> None:
        """Bytes that the op at hand needs for itself."""
        if nbytes > 0:
            self.release(self.new(nbytes, category))

    def bind(self, name: str, storage: Storage) -> None:
        """Gives the tensor of that name its storage, with its reference."""
        if name in self.tensors:
            raise ValueError(f"tensor {name} is bound twice")
        self.tensors[name] = storage

    def drop(self, name: str) -> None:
        """The tensor's name goes out of scope."""
        if name in self.tensors:
            self.release(self.tensors.pop(name))

    def record(
        self, outputs: Sequence[str], inputs: Sequence[str], saved: Sequence[Storage], backward: Backward
    ) -> None:
        """Puts the op at hand on the tape, which keeps what it saves."""
        held = [self.hold(storage) for storage in saved]
        self.tape.append(Entry(tuple(outputs), tuple(inputs), held, backward, self.origin))

    def run_backward(self, loss: str, wanted: frozenset[str]) -> None:
        """Runs the tape backwards from the gradient of `loss`, of one element. Gradients of `wanted` stay; others are passed on."""
        one = self.new(4, "temporaries")
        self.gradients[loss] = self.hold(one)
        self.wanted = wanted
        self.unwind()
        self.release(one)

    def unwind(self) -> None:
        """The tape, from its end."""
        wanted = self.wanted
        for entry in self.tape:
            for name in entry.inputs:
                if name in wanted:
                    self.uses[name] += 1
        while self.tape:
            entry = self.tape.pop()
            self.given = {name: self.gradients.pop(name, None) for name in entry.outputs}
            given = [gradient for gradient in self.given.values() if gradient is not None]
            before = entry.origin
            self.origin = Origin(before.op, before.module, "backward", before.step)
            found = entry.backward(given[0]) if given else ()
            for storage in (*given, *entry.saved):
                self.release(storage)
            for name, gradient in zip(entry.inputs, found):
                if gradient is not None:
                    self._add(name, gradient)
            for name in entry.inputs:
                if name in wanted:
                    self.uses[name] -= 1
                    if not self.uses[name] and name in self.gradients:
                        self._keep(name, self.gradients.pop(name))

    def _add(self, name: str, found: Storage) -> None:
        """Adds a gradient to what there is: in place where nobody else holds it, and it is no view, which holds what it is a view of."""
        there = self.gradients.get(name)
        nbytes = self.nbytes_of(name)
        if there is None:
            self.gradients[name] = found
        elif not there.shared and there.base is None and there.nbytes == nbytes:
            self.release(found)
        else:
            self.gradients[name] = self.new(nbytes, "gradients" if name in self.wanted else "temporaries")
            self.release(there)
            self.release(found)

    def _keep(self, name: str, found: Storage) -> None:
        """The whole gradient of a parameter, added in place to that of the batches before. What others hold too is copied."""
        if self.applies_at_once or name in self.kept:
            self.release(found)
        elif found.base is None and found.shared:  # As AccumulateGrad does.
            self.kept[name] = self.new(self.nbytes_of(name), "gradients")
            self.release(found)
        else:
            self.kept[name] = found
