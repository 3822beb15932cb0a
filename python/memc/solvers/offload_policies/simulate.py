# SPDX-License-Identifier: Apache-2.0
"""The schedule that a policy makes of a training step: ops in their order, with copies and recomputations between them.

One walk along the layers. Where each value is is known at each op, and when each copy ends, since events free bytes at run time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from memc.solvers.lane_clock import LaneClock
from memc.solvers.offload import Schedule, Step, measure_schedule

from .layers import Kind, LayeredProblem
from .policy import AHEAD, LONG, Answer, Fetches, Policy, Waits

MOST_CONVS = 2
"""Layers of `LONG` whose values `Fetches.CONVS` has back at one time, the one that runs counted."""


def simulate(problem: LayeredProblem, policy: Policy, limit: int) -> Schedule:
    """What a policy does within `limit` bytes, which are its pool: copies wait for room, but what an op needs is always there, so
    the peak may be above the limit."""
    walk = _Walk(problem, policy, limit)
    walk.run()
    return measure_schedule(problem.problem, walk.items)


def segments_to_keep(problem: LayeredProblem, answers: Sequence[Answer]) -> frozenset[int]:
    """The recomputed values that stay until they are done with: those of stretches of layers that no checkpoint divides and that take
    no more bytes than the layer that takes most. Others are recomputed for each layer that needs them."""
    sizes, reads, makes = (problem.problem.ops.sizes, problem.problem.ops.reads, problem.problem.ops.makes)

    def taken(ops: Sequence[int]) -> int:
        return sum(sizes[v] for v in {v for op in ops for v in (*reads[op], *makes[op])})

    most = max((taken(layer.ops) for layer in problem.layers), default=0)
    kept: list[int] = []
    segment: list[int] = []
    for layer in (*problem.layers[: problem.forward], None):
        made = [] if layer is None else [v for op in layer.ops for v in makes[op]]
        again = [v for v in made if answers[v] is Answer.RECOMPUTE]
        if layer is None or not again:
            kept += segment if sum(sizes[v] for v in segment) <= most else []
            segment = []
        segment += again
    return frozenset(kept)


class _Walk:
    def __init__(self, problem: LayeredProblem, policy: Policy, limit: int) -> None:
        self.problem, self.policy, self.limit = problem, policy, limit
        self.ops = problem.problem.ops
        self.items: list[tuple[Step, int]] = []
        self.clock = LaneClock(problem.problem.lanes)
        self.answers = [policy.answer(problem, value) for value in range(len(self.ops.sizes))]
        self.unread = [len(readers) for readers in problem.readers]
        """How many of its reads are still to come, of each value."""
        self.here: dict[int, int] = {}
        """Values in the arena, each with the layer that used it last."""
        self.live = 0
        """Bytes of those."""
        self.leaving: deque[tuple[int, int, int]] = deque()
        """Values on their way out, with the numbers of their copies and the layers in which those began."""
        self.coming: dict[int, int] = {}
        """Values on their way in, with the numbers of their copies."""
        self.copied: set[int] = set()
        """Values of which there is a copy, or will be."""
        self.again: list[int] = []
        """What has been recomputed for this layer alone."""
        self.layer = 0
        self.leaves = self._leaves()
        self.dropped = self._dropped()
        self.kept_again = segments_to_keep(problem, self.answers)

    def _leaves(self) -> dict[int, list[int]]:
        """The values that leave or are dropped by the last op of the forward pass that reads them, by that op."""
        found: dict[int, list[int]] = {}
        for value, answer in enumerate(self.answers):
            drops = answer is Answer.RECOMPUTE or (answer is Answer.OFFLOAD and not self.policy.evicts)
            if drops:
                found.setdefault(self.problem.last_forward(value), []).append(value)
        return found

    def _dropped(self) -> dict[int, int]:
        """Of each op that will run again, how many of its values are not done with. Until then its operands count as unread."""
        found: dict[int, int] = {}
        for value, answer in enumerate(self.answers):
            if answer is Answer.RECOMPUTE and self.unread[value]:
                maker = self.problem.maker[value]
                found[maker] = found.get(maker, 0) + 1
        for op in found:
            for value in self.ops.reads[op]:
                self.unread[value] += 1
        return found

    def run(self) -> None:
        for number, layer in enumerate(self.problem.layers):
            self.layer = number
            if self.layer == self.problem.forward:
                self._await_copies_out(self.leaving[-1][1] if self.leaving else -1)
            if self.layer >= self.problem.forward:
                self._fetch_early(layer.kind)
            self._start_copies(layer.ops)
            for op in layer.ops:
                self._run(op)
            self._end_layer()
        while self.leaving:
            self._await_copies_out(self.leaving[-1][1])
        self._await_copies_in(list(self.coming))

    # --- Ops.
    def _run(self, op: int) -> None:
        reads = self.ops.reads[op]
        for value in reads:
            self._require(value, reads)
        self._compute(op, reads)
        for value in reads:
            self._read(value)
        for value in self.ops.makes[op]:
            if self.unread[value] == 0:
                self._free(value)
        for value in self.leaves.get(op, ()):
            if self.answers[value] is Answer.RECOMPUTE:
                self._free(value)
            elif value not in self.copied:
                self._start_copy(value)
                if self.policy.waits is Waits.COPY:
                    self._await_copies_out(self.leaving[-1][1])

    def _read(self, value: int) -> None:
        """One read less to come."""
        self.unread[value] -= 1
        if self.unread[value]:
            return
        self._free(value)
        maker = self.problem.maker[value]
        if self.answers[value] is Answer.RECOMPUTE:
            self.dropped[maker] -= 1
            if self.dropped[maker] == 0:
                for operand in self.ops.reads[maker]:
                    self._read(operand)

    def _compute(self, op: int, keep: Iterable[int]) -> None:
        makes = self.ops.makes[op]
        taken = next((self.ops.sizes[v] for v in self.ops.over[op] if self.unread[v] == 1 and v in self.here), 0)
        self._make_room(sum(self.ops.sizes[v] for v in makes) + self.ops.scratch[op] - taken, keep, op)
        self.items.append((Step.RUN, op))
        self.clock.run(self.ops.costs[op])
        for value in makes:
            self._hold(value)
        for value in self.ops.reads[op]:
            if value in self.here:
                self.here[value] = self.layer
        while self.leaving and self.clock.ended["out"] > self.leaving[0][1] and self._may_leave(op + 1):
            self._leave()

    def _hold(self, value: int) -> None:
        if value not in self.here:
            self.live += self.ops.sizes[value]
        self.here[value] = self.layer

    def _free(self, value: int) -> None:
        """A value that is not read any more, or dropped."""
        if value in self.here and not any(value == other for other, *_ in self.leaving):
            del self.here[value]
            self.live -= self.ops.sizes[value]

    # --- What an op needs.
    def _require(self, value: int, keep: Iterable[int]) -> None:
        """Have a value in the arena: by waiting for its copy, by a copy, or by recomputation."""
        if value in self.coming:
            self._await_copies_in([value])
        if value in self.here or self.answers[value] is Answer.SAVE:
            return
        if value in self.copied:
            self._fetch(value, keep)
            self._await_copies_in([value])
            return
        self._recompute(value, keep)

    def _recompute(self, value: int, keep: Iterable[int]) -> None:
        """Run the op that makes a value again, after what it needs."""
        op = self.problem.maker[value]
        for operand in self.ops.reads[op]:
            self._require(operand, (*keep, *self.ops.reads[op]))
        self._compute(op, (*keep, *self.ops.reads[op]))
        self.again += [made for made in self.ops.makes[op] if made not in self.kept_again]

    # --- Copies.
    def _start_copies(self, ops: Iterable[int]) -> None:
        """Of values made before this layer, whose last reader of the forward pass it is: they are only read, so copies run beside
        the layer."""
        if self.policy.waits is Waits.COPY:
            return
        for op in ops:
            for value in self.leaves.get(op, ()):
                there = value in self.here and self.problem.layer_of[self.problem.maker[value]] < self.layer
                if self.answers[value] is Answer.OFFLOAD and there and value not in self.copied:
                    self._start_copy(value)

    def _start_copy(self, value: int) -> None:
        self.items.append((Step.OUT_START, value))
        self.leaving.append((value, self.clock.issue("out", self.ops.sizes[value]), self.layer))
        self.copied.add(value)

    def _await_copies_out(self, copy: int) -> None:
        while self.leaving and self.leaving[0][1] <= copy:
            self._leave()

    def _leave(self) -> None:
        """Wait for the end of the first copy of those that leave."""
        value, copy, _ = self.leaving.popleft()
        self.clock.wait("out", copy)
        self.items.append((Step.OUT_DONE, value))
        if self.here.pop(value, None) is not None:
            self.live -= self.ops.sizes[value]

    def _fetch(self, value: int, keep: Iterable[int]) -> None:
        self._make_room(self.ops.sizes[value], keep, self.problem.layers[self.layer].ops[0])
        self.items.append((Step.IN_START, value))
        self.coming[value] = self.clock.issue("in", self.ops.sizes[value])
        self._hold(value)

    def _await_copies_in(self, values: Iterable[int]) -> None:
        for value in values:
            self.clock.wait("in", self.coming.pop(value))
            self.items.append((Step.IN_DONE, value))

    def _may_leave(self, op: int) -> bool:
        """Whether no op of the forward pass from `op` on reads the value whose copy out ends next."""
        return self.problem.last_forward(self.leaving[0][0]) < op

    def _make_room(self, nbytes: int, keep: Iterable[int], op: int) -> None:
        """Have so many bytes free before an op, if waiting and evicting can."""
        while self.leaving and self.live + nbytes > self.limit and self._may_leave(op):
            self._await_copies_out(self.leaving[0][1])
        while self.policy.evicts and self.live + nbytes > self.limit:
            kept = set(keep)
            may_go = [v for v in self.here if self.answers[v] is Answer.OFFLOAD and v not in kept | self.coming.keys()]
            value = min(may_go, key=lambda v: (self.here[v], v), default=None)
            if value is None:
                return
            if value in self.copied:
                self.items.append((Step.DROP, value))
                self._free(value)
            else:
                self._start_copy(value)
                self._await_copies_out(self.leaving[-1][1])

    def _end_layer(self) -> None:
        """Wait as the policy says, and drop what was recomputed for this layer."""
        if self.policy.waits is Waits.LAYER:
            self._await_copies_out(self.leaving[-1][1] if self.leaving else -1)
            self._await_copies_in(list(self.coming))
        if self.policy.waits is Waits.LATER:
            self._await_copies_out(max((copy for _, copy, at in self.leaving if at <= self.layer - AHEAD), default=-1))
        for value in self.again:
            self._free(value)
        self.again.clear()

    # --- What comes back early.
    def _fetch_early(self, kind: Kind) -> None:
        fetches, ahead = self.policy.fetches, range(self.layer + 1, len(self.problem.layers))
        if fetches is not Fetches.NOTHING:
            missing = self._missing(self.layer)
            for value in missing:
                self._fetch(value, missing)
        if fetches is Fetches.NEXT:
            self._fetch_next(ahead)
        elif fetches is Fetches.NEXT_CONV and kind is Kind.CONV:
            convs = (index for index in ahead if self.problem.layers[index].kind is Kind.CONV)
            self._fetch_for(next(convs, self.layer))
        elif fetches is Fetches.CONVS:
            self._fetch_convs(kind, ahead)
        elif fetches is Fetches.EARLY and self.layer + AHEAD in ahead:
            self._fetch_for(self.layer + AHEAD)

    def _fetch_next(self, ahead: Iterable[int]) -> None:
        for index in ahead:
            missing = self._missing(index)
            if missing or self.problem.layers[index].kind in LONG:
                for value in missing:
                    self._fetch(value, missing)
                return

    def _fetch_convs(self, kind: Kind, ahead: Iterable[int]) -> None:
        convs = int(kind in LONG)
        for index in ahead:
            convs += self.problem.layers[index].kind in LONG
            if convs > MOST_CONVS or not self._fetch_for(index):
                return

    def _fetch_for(self, index: int) -> bool:
        """Start what a layer needs, as far as there is room beside what this layer makes. Returns whether there was."""
        makes = sum(self.ops.sizes[v] for op in self.problem.layers[self.layer].ops for v in self.ops.makes[op])
        for value in self._missing(index):
            if self.live + makes + self.ops.sizes[value] > self.limit:
                return False
            self._fetch(value, ())
        return True

    def _missing(self, index: int) -> list[int]:
        """What a layer reads that is copied and not here or coming."""
        reads = dict.fromkeys(value for op in self.problem.layers[index].ops for value in self.ops.reads[op])
        return [value for value in reads if value in self.copied and value not in self.here]
