# SPDX-License-Identifier: Apache-2.0
"""offload: an order of ops, values copied to the host and back while ops run, and results recomputed, so that the arena keeps a
budget at the least added time.

One search decides for every value and every time that it is not needed whether it is kept, copied or recomputed
(`cpp/solvers/offload/offload.h`); `rematerialize` is the same without copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Optional, Union

from memc.ir.checked_options import Alignment, Amount, ByteCount, Share
from memc.ir.copies import has_copies
from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.ir.target import Kind
from memc.passes.base import Pass, alignment_of
from memc.passes.budget import AsHostBytes, Budget
from memc.passes.offload.follow_policy import Followed, follow_policy
from memc.passes.offload.link_rates import link_of
from memc.passes.offload.state_finding import How, nothing_moved
from memc.passes.offload.states_and_values import StatesAndValues
from memc.passes.offload.stream_choices import Kept
from memc.passes.offload.stream_weights import may_stream, stream_weights
from memc.passes.order.reorder import Search
from memc.passes.pipelines import States
from memc.passes.recompute.choices import Copies, Recomputation
from memc.passes.recompute.rematerialize import costs_of, rematerialize, require_unplaced
from memc.solvers.offload_policies.choose import PolicyName

Policy = Union[Literal["auto"], PolicyName]


@dataclass(frozen=True)
class Offload(Pass):
    """An order of ops of lower peak, and, where that does not keep the budget, copies to the host and back, and recomputation."""

    name: ClassVar[str] = "offload"
    orders: ClassVar[bool] = True
    policy: Policy = "auto"
    """`auto`: the search; or what a published policy does, whether it is quick or not."""
    budget: Budget = Budget(percent=100.0)
    """Bytes, for example `4GiB`, or percent of what it takes without copies and recomputation, of each function's arena."""
    total: bool = False
    """Count weights, states, inputs and outputs of the function too."""
    host_budget: Optional[Union[ByteCount, AsHostBytes]] = None
    """Bytes of copies at one time, also as a share of this machine's memory; any number without one."""
    link: str | None = None
    """How fast values are copied: `h200`, `h200-alone`, `h100`, `a100`, `titanx`, `gh200`, `memory`, or a JSON file of measured rates. Without
    one, the profile's or the target's own link, and where it has none `h200` for CUDA and `memory` for the CPU."""
    states: States = "auto"
    """Which optimizer states may lie on the host between steps, where `total` counts them: those that make a step quicker, none, or
    all that may do."""
    least_copy: ByteCount = Copies.least
    """Bytes that a value or a state must have to be copied."""
    target: Optional[Kind] = None
    """Whose speed the duration of an op is guessed from."""
    profile: str | None = None
    """A JSON file of measured times: seconds by op signature, which count instead, and perhaps a link."""
    slack: Share = 0.0
    work: Amount = Search.work
    """How orders are sought, as in `reorder`."""
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> Recomputation | None:
        costs = costs_of(module, self.target, self.profile)
        link = link_of(self.link, module.target, self.profile)
        copies = Copies(link.name, link.lanes(), self.least_copy, self.host_budget, link.origin)
        search = Search(slack=self.slack, work=self.work)
        alignment = alignment_of(self.alignment, module)
        said = None
        try:
            for function in module.functions:
                require_unplaced(self.name, function)
                if has_copies(function):
                    raise UsageError("offload: expected a function without copies; run it once")
                if self.policy == "auto" and self.total and may_stream(function, self.least_copy):
                    found = stream_weights(module, function, Kept(self.budget, costs, alignment, search, copies))
                elif self.policy == "auto" and self.total:
                    kept_by = (self.budget, costs, alignment, search, copies, self.states)
                    found = StatesAndValues(module, function, *kept_by).keep()
                elif self.policy == "auto":
                    alone = (self.budget, costs, alignment, self.total, search)
                    found = rematerialize(module, function, *alone, copies=copies)
                else:
                    kept = Followed(self.policy, self.budget, self.total, copies, search)
                    found = follow_policy(module, function, kept, costs, alignment)
                if self.states == "all" and found.states is None:
                    how = How(costs, link.name, link.origin, copies.lanes, copies.least, alignment)
                    found = replace(found, states=nothing_moved(function, how))
                said = replace(found, policy=self.policy) if function.name == "main" else said
        finally:  # A later function's budget may be refused.
            if any(map(has_copies, module.functions)):
                module.target = link.target(module.target)
        return said
