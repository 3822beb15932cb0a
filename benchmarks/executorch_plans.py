# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's arenas as its greedy algorithm plans them and as memc's does, for models of torchvision.

    python benchmarks/executorch_plans.py [NAME ...]      # where PyTorch, torchvision, ExecuTorch and memc are installed

Each model is exported and lowered to ExecuTorch's operators, without delegates, and its memory is planned by each algorithm, with
graph inputs and outputs outside the arena. ExecuTorch's pass checks both plans for overlaps. The programs are not run. Beside them:
what `memc.torch.plan` says of the export, in its order and in one of its own. Prints the page of results.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from dataclasses import dataclass
from typing import Any

MODELS = ("resnet18", "squeezenet1_1", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_large")


@dataclass(frozen=True)
class Row:
    """Bytes of a model's arena."""

    name: str
    greedy: int
    memc: int
    lower_bound: int
    exported: int
    reordered: int


def arena(program: Any, algorithm: Any) -> int:
    """What a planned program's memories take together."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass

    suite = MemoryPlanningAlgorithmSuite([algorithm])
    planning = MemoryPlanningPass(memory_planning_algo=suite, alloc_graph_input=False, alloc_graph_output=False)
    # What is lowered is changed by it.
    made = copy.deepcopy(program).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    return sum(made.executorch_program.execution_plan[0].non_const_buffer_sizes)


def measure(name: str) -> Row:
    """Plan one model's memory in all ways."""
    import torch
    import torchvision.models as models
    from executorch.exir import to_edge
    from executorch.exir.memory_planning import greedy

    import memc.torch

    torch.manual_seed(0)
    net = getattr(models, name)(weights=None).eval()
    exported = torch.export.export(net, (torch.randn(1, 3, 224, 224),), strict=False)
    edge = to_edge(exported)
    bounds = []

    def ours(alignment: int, specs: Any, *rest: Any) -> Any:
        found = memc.torch.executorch.memory_planning(alignment, specs, *rest)
        bounds.append(most_live(specs))  # Of sizes as they are aligned by then.
        return found

    ours_bytes = arena(edge, ours)
    plans = [memc.torch.plan(exported, reorder=reorder).peak for reorder in (False, True)]
    return Row(name, arena(edge, greedy), ours_bytes, max(bounds), *plans)


def most_live(specs: Any) -> int:
    """The most bytes live at one step, which no plan of these lifetimes has less than; of specs with storages of their own."""
    own = [s for s in specs if s.storage_base is None]
    steps = {s.lifetime[0] for s in own}
    return max((sum(s.allocated_memory for s in own if s.lifetime[0] <= n <= s.lifetime[1]) for n in steps), default=0)


def page(rows: list[Row]) -> str:
    """The page of results."""
    better = [r for r in rows if r.memc < r.greedy]
    most = max(rows, key=lambda r: 1 - r.memc / r.greedy)
    optimal = sum(r.memc == r.lower_bound for r in rows)
    lines = [
        "# ExecuTorch's arenas, planned by its greedy algorithm and by memc",
        "",
        "<!-- headline -->",
        f"- {len(rows)} models of torchvision in ExecuTorch: memc's arenas are smaller for {len(better)}, by up to {1 - most.memc / most.greedy:.1%}",
        f"  ({most.name}), and never larger; {optimal} are at the lower bound.",
        "<!-- end of headline -->",
        "",
        "From",
        "",
        "    python benchmarks/executorch_plans.py",
        "",
        "Batch 1, f32, 224 x 224, portable operators without delegates, inputs and outputs outside the arena; bytes. The last two columns are",
        "`memc.torch.plan` of the export itself, results included, in the export's order and with `reorder`.",
        "",
        "| model | greedy | memc | saved | lower bound | export | reordered |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        lines.append(
            f"| {r.name} | {r.greedy:,} | {r.memc:,} | {1 - r.memc / r.greedy:.1%} | {r.lower_bound:,} | {r.exported:,} | {r.reordered:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the page."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for name in sys.argv[1:] or MODELS:
        rows.append(measure(name))
        print(rows[-1], file=sys.stderr, flush=True)
    print(page(rows))


if __name__ == "__main__":
    main()
