# SPDX-License-Identifier: Apache-2.0
"""The partitioner: what is saved between forward and backward, so that the bytes live in both keep a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files
from torch.fx import GraphModule, Node

from memc.ir.cost_model import DEVICES, Device
from memc.ir.errors import BudgetError, UsageError
from memc.ir.sizes import format_size
from memc.passes.budget import Budget
from memc.passes.recompute.bound import least_possible
from memc.solvers.recompute import recompute_ladder

from . import fx_values as fx
from .emit import split
from .joint_graph import JointGraph, is_mutation
from .live_bytes import LiveBytes, live_bytes

ALIGNMENTS = {"cuda": 512}
"""Bytes that PyTorch's allocators round sizes to, by device; 1 for others."""
COPIED = 1 << 16
"""Bytes of an input up to which its value from before it is written to is kept in a copy, for recomputation."""


@dataclass(frozen=True)
class Partition:
    """What the partitioner did to one graph. Bytes are those that forward and backward allocate."""

    live: LiveBytes
    without: int
    """The peak without recomputation."""
    budget: int
    recomputed: int
    """Ops that run once more, each time counted."""
    added: float
    """By how much longer forward and backward take, in the cost model, as a share of one run of every op."""
    by: str = "memc"
    """Whose choice it is: `pytorch` where PyTorch's own partition keeps the budget."""


class Partitioner(CustomPartitionerFn):  # type: ignore[misc]
    """A partition function of AOT autograd, and a custom partitioner of Inductor. See `partitioner`."""

    def __init__(self, budget: Budget, holds_inputs: bool = False) -> None:
        self.budget = budget
        self.holds_inputs = holds_inputs
        self.partitions: list[Partition] = []
        """One for each graph that was split, in order; none for those that come from Inductor's cache."""

    def __repr__(self) -> str:
        return f"memc.torch.partitioner(memory_budget={str(self.budget)!r})"

    def __call__(
        self,
        gm: GraphModule,
        joint_inputs: Sequence[object],
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        compiler: str = "",
        **given: Any,
    ) -> tuple[GraphModule, GraphModule]:
        """Forward and backward. `compiler`: `inductor`, which runs pointwise ops within others.

        Raises BudgetError if no partition that was found keeps the budget, with the least that is reached.
        """
        from torch._functorch import config
        from torch._functorch.compile_utils import fx_graph_cse
        from torch._functorch.partitioners import default_partition

        how = {"num_fwd_outputs": num_fwd_outputs, "static_lifetime_input_indices": static_lifetime_input_indices}
        gm.graph.eliminate_dead_code()
        if config.cse:
            gm.graph = fx_graph_cse(gm.graph)
        device, alignment = _device(gm)
        joint = JointGraph(gm.graph, num_fwd_outputs, device, alignment)
        if not joint.late:
            halves: tuple[GraphModule, GraphModule] = default_partition(gm, joint_inputs, **how)
            return halves
        first = split(gm, joint, range(len(joint.units)))
        without = live_bytes(*first, num_fwd_outputs, alignment, self.holds_inputs)
        budget = self.budget.of(without.peak)
        if compiler == "inductor":
            own = _pytorchs(gm, joint_inputs, how)
            live = live_bytes(*own, num_fwd_outputs, alignment)
            if live.peak <= budget:
                self.partitions.append(Partition(live, without.peak, budget, *_repeats(own, joint), "pytorch"))
                return own
        if without.peak <= budget:
            self.partitions.append(Partition(without, without.peak, budget, 0, 0.0))
            return first
        return self._within(gm, num_fwd_outputs, device, alignment, without.peak, budget)

    def _within(
        self, gm: GraphModule, num_fwd_outputs: int, device: Device, alignment: int, without: int, budget: int
    ) -> tuple[GraphModule, GraphModule]:
        """The cheapest plan of the search that keeps the budget, in the bytes that its graphs then have."""
        _keep_inputs(gm)
        joint = JointGraph(gm.graph, num_fwd_outputs, device, alignment)
        problem = joint.problem()
        # What was saved and stays until the backward ends is not in the search's peaks: it goes on below the budget.
        lowest = budget * 3 // 4 if self.holds_inputs else budget
        plans = recompute_ladder(problem, lowest, least_possible(problem))
        keeping = [p for p in plans if p.peak <= budget] or [min(plans, key=lambda p: p.peak)]
        least = without
        for plan in sorted(keeping, key=lambda p: (p.added_cost, p.peak)):
            made = split(gm, joint, plan.sequence)
            live = live_bytes(*made, num_fwd_outputs, alignment, self.holds_inputs)
            least = min(least, live.peak)
            if live.peak <= budget:
                share = plan.added_cost / max(1, joint.total_cost())
                repeats = len(plan.sequence) - len(joint.units)
                self.partitions.append(Partition(live, without, budget, repeats, share))
                return made
        error = BudgetError(
            f"memory budget of {budget} bytes ({format_size(budget)}) cannot be met: the least reachable peak of forward and "
            f"backward is {least} bytes ({format_size(least)}), of {without} bytes without recomputation"
        )
        error.least = least
        raise error

    def uuid(self) -> Any:
        """What Inductor's cache knows it by."""
        folder = Path(__file__).parent
        return f"{self!r} {get_hash_for_files(tuple(str(p) for p in sorted(folder.glob('*.py')))).hex()}"


def partitioner(memory_budget: str | int = "100%", *, holds_inputs: bool = False) -> Partitioner:
    """A partitioner that keeps a budget of bytes, for AOT autograd and for Inductor.

    >>> torch.compile(model, options={"custom_partitioner_fn": memc.torch.partitioner("8GiB")})  # doctest: +SKIP
    >>> aot_autograd(fw_compiler=f, bw_compiler=b, partition_fn=memc.torch.partitioner("50%"))  # doctest: +SKIP

    Args:
        holds_inputs: whether the backward's code keeps what was saved until it ends, instead of freeing it after its last use.
        memory_budget: bytes, as a number or text such as `8GiB`, or a share such as `50%` of what forward and backward of a graph
            allocate without recomputation. It counts for each graph by itself: saved values, temporaries, results and
            gradients, and not parameters, inputs and gradients from outside, which are there before.

    Raises:
        UsageError: for a budget that is none. When a graph is split, BudgetError names the least that can be reached.
    """
    if isinstance(memory_budget, bool) or not isinstance(memory_budget, (str, int)):
        raise UsageError(f"memory_budget: expected bytes, or text such as 8GiB or 50%, got {memory_budget!r}")
    if isinstance(memory_budget, int):
        if memory_budget < 0:
            raise UsageError(f"memory_budget: expected at least 0 bytes, got {memory_budget}")
        return Partitioner(Budget(memory_budget), holds_inputs)
    try:
        return Partitioner(Budget.parse(memory_budget), holds_inputs)
    except ValueError as error:
        raise UsageError(f"memory_budget: expected {error}, got {memory_budget!r}") from None


def _device(gm: GraphModule) -> tuple[Device, int]:
    """What ops cost where the graph runs, and what its allocator rounds sizes to."""
    kinds = {t.device.type for node in gm.graph.nodes for t in fx.tensors(node)}
    kind = "cuda" if "cuda" in kinds else "cpu"
    return DEVICES["cuda" if kind == "cuda" else "llvm"], ALIGNMENTS.get(kind, 1)


def _pytorchs(gm: GraphModule, joint_inputs: Sequence[object], how: dict[str, Any]) -> tuple[GraphModule, GraphModule]:
    """PyTorch's partition for the least time, which recomputes what Inductor fuses."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with config.patch(activation_memory_budget=1.0):
        found: tuple[GraphModule, GraphModule] = min_cut_rematerialization_partition(gm, joint_inputs, **how)
        return found


def _repeats(parts: tuple[GraphModule, GraphModule], joint: JointGraph) -> tuple[int, float]:
    """How many ops run in both parts, and what that adds."""
    names = [{n.name for n in part.graph.nodes if n.op == "call_function"} for part in parts]
    again = [u.nodes[0] for u in joint.units if u.nodes and all(u.nodes[0].name in part for part in names)]
    return len(again), sum(fx.cost(n, joint.device) for n in again) / max(1, joint.total_cost())


def _keep_inputs(gm: GraphModule) -> None:
    """Have ops read a copy of what is written to after the forward, so that they may be recomputed: running statistics."""
    (output,) = gm.graph.find_nodes(op="output")
    told = [d for d in output.meta.get("desc") or [] if is_mutation(d)]
    written = {id_of(d.mutated_input) for d in told}
    for placeholder in gm.graph.find_nodes(op="placeholder"):
        if id_of(placeholder.meta.get("desc")) not in written or not fx.is_tensor(placeholder):
            continue
        if fx.storage_bytes(placeholder.meta["val"]) > COPIED or not placeholder.users:
            continue
        with gm.graph.inserting_before(_first_user(gm, placeholder)):
            copy = gm.graph.call_function(torch.ops.aten.clone.default, (placeholder,))
        copy.meta = {k: v for k, v in placeholder.meta.items() if k not in ("desc", "val", "tensor_meta")}
        copy.meta["val"] = torch.empty_like(placeholder.meta["val"])
        placeholder.replace_all_uses_with(copy, delete_user_cb=partial(_is_other, {copy, output}))


def _is_other(nodes: set[Node], node: Node) -> bool:
    return node not in nodes


def _first_user(gm: GraphModule, node: Node) -> Node:
    return next(n for n in gm.graph.nodes if n in node.users)


def id_of(description: object) -> str:
    """An input's description as text, equal for equal ones."""
    return repr(description)
