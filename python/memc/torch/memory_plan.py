# SPDX-License-Identifier: Apache-2.0
"""`memc.torch.plan`: where the values of a graph of PyTorch calls would lie, and in which order its calls need the least memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from memc import planning
from memc.frontend.graph import Graph, GraphOp, GraphTensor
from memc.ir.errors import MemcError, UnsupportedError


@dataclass(frozen=True)
class TorchPlan:
    """Addresses of the values of a graph, in bytes."""

    offsets: Mapping[str, int | tuple[int, ...]]
    """Of each value by the name of its node, from the start of the arena, views at their places in their storages; a tuple for a node of
    several tensors. Values in parameters, buffers, constants and inputs are not among them: those have memory of their own."""
    order: Sequence[str]
    """The calls in the order that was planned, by node."""
    plan: planning.Plan
    """By storage."""

    @property
    def peak(self) -> int:
        """What the arena takes."""
        return self.plan.peak

    @property
    def lower_bound(self) -> int:
        """No plan has a lower peak; with `reorder`, no order either."""
        return self.plan.lower_bound

    @property
    def proven_optimal(self) -> bool:
        return self.plan.proven_optimal


def plan(
    program: Any, example_inputs: Sequence[Any] | None = None, *, reorder: bool = False, **options: Any
) -> TorchPlan:
    """Plan the memory of an `fx.GraphModule` or `ExportedProgram`; nothing is compiled or run.

    Each call's result is live from the call through its last reader, results of the graph to the end. What shares a storage (views, writes in
    place) is found by running the graph on tensors without data. Memory that a kernel takes within a call is not counted.

    Args:
        program: a graph of PyTorch calls on tensors, or an export. Its modules' parameters are not planned.
        example_inputs: the graph's inputs, of which only sizes, strides and types count; by default as at the export, symbolic sizes with the
            values that they had there.
        reorder: also choose the order of calls.
        options: of `memc.plan`: `alignment` (64 by default), `capacity`, `solver`, `time_limit`, `threads`.

    Raises:
        UnsupportedError: for calls that cannot run without data, naming the node.
        BudgetError: where no plan was found that keeps `capacity`.
    """
    module = getattr(program, "graph_module", program)
    if not isinstance(module, torch.fx.GraphModule):
        raise UnsupportedError(
            f"memc.torch.plan: expected an fx.GraphModule or ExportedProgram, got {type(program).__name__}"
        )
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    recorder = _Recorder(module, mode)
    with mode, torch.no_grad():
        recorder.run(*_inputs(module, example_inputs, mode))
    planned = planning.plan(recorder.problem(), reorder=reorder, **{"alignment": 64, **options})
    start = dict(zip((int(t.id) for t in planned.tensors), planned.offsets))
    order = planned.order if planned.order is not None else range(len(recorder.ops))
    return TorchPlan(recorder.offsets(start), [recorder.ops[n].name for n in order], planned)


def _inputs(module: torch.fx.GraphModule, given: Sequence[Any] | None, mode: FakeTensorMode) -> list[Any]:
    """Tensors without data for the graph's inputs."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    if given is None:
        given = [node.meta.get("val", node.meta.get("example_value")) for node in placeholders]
    if len(given) != len(placeholders):
        raise UnsupportedError(f"memc.torch.plan: expected {len(placeholders)} example inputs, got {len(given)}")
    found = []
    for node, value in zip(placeholders, given):
        if value is None and node.users:
            raise UnsupportedError(f"memc.torch.plan: the sizes of `{node.name}` are not known; give example_inputs")
        found.append(_without_data(value, mode))
    return found


def _without_data(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = ([_hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    with mode:
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _hint(size: Any) -> int:
    """A size as a number: a symbolic one has the value that it had at the export."""
    return size if isinstance(size, int) else int(size.node.hint)


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]  # Types are checked without PyTorch.
    """Runs a graph without data and notes which storages each node reads, makes and writes."""

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.extra_traceback = False  # Which would make messages many lines.
        self.mode = mode
        self.tensors: list[GraphTensor] = []
        self.ops: list[GraphOp] = []
        self.held: list[Any] = []
        """Storages, so that no other one gets a freed one's identity."""
        self.storages: dict[int, int] = {}
        self.of_node: dict[torch.fx.Node, list[int]] = {}
        self.places: dict[str, list[tuple[int, int]]] = {}
        """Storage and offset in it of each tensor of a node."""
        self.results: list[int] = []
        self.persistent: list[int] = []

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except MemcError:
            raise
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnsupportedError(f"memc.torch.plan: `{n.name}` ({n.target}) without data: {said[:200]}") from error
        read = list(dict.fromkeys(t for node in n.all_input_nodes for t in self.of_node[node]))
        if n.op == "output":
            self.results = read
            return result
        known = len(self.storages)
        made = [self._tensor(n, value) for value in _tensors(result)]
        self.of_node[n] = made
        if n.op in ("placeholder", "get_attr"):
            self.persistent += made
        else:
            fresh = [s for s in range(known, len(self.storages))]
            writes = dict.fromkeys([*fresh, *self._written(n)])
            once = "rand" in str(n.target) or torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
            self.ops.append(GraphOp(n.name, str(n.target), tuple(read), tuple(made), tuple(writes), once))
        return result

    def fetch_attr(self, target: str) -> Any:
        """What the module holds: a graph of its own as it is, a tensor without data, the same one at each use."""
        held = super().fetch_attr(target)
        return self.mode.from_tensor(held, static_shapes=True) if isinstance(held, torch.Tensor) else held

    def _tensor(self, node: torch.fx.Node, value: torch.Tensor) -> int:
        """The number of a node's tensor, in the storage that it has."""
        storage = value.untyped_storage()
        if storage._cdata not in self.storages:
            self.held.append(storage)
        number = self.storages.setdefault(storage._cdata, len(self.storages))
        at = int(value.storage_offset()) * value.element_size()
        self.places.setdefault(node.name, []).append((number, at))
        nbytes = value.numel() * value.element_size()
        kind = str(value.dtype).removeprefix("torch.")
        self.tensors.append(GraphTensor(nbytes, number, tuple(int(n) for n in value.shape), kind))
        return len(self.tensors) - 1

    def _written(self, node: torch.fx.Node) -> Iterator[int]:
        """Storages of arguments that the call's schema says it writes."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            # A function of Python, or a method, says nothing of its writes but by its name.
            name = str(getattr(node.target, "__name__", node.target))
            written = [node.args[0]] if node.args and name.endswith("_") and not name.endswith("__") else []
        else:
            names = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
            given = {a.name: value for a, value in zip(schema.arguments, node.args)} | dict(node.kwargs)
            written = [given[name] for name in names if given.get(name) is not None]
        for leaf in torch.utils._pytree.tree_leaves(written):
            if isinstance(leaf, torch.fx.Node):
                yield from (self.tensors[t].storage for t in self.of_node[leaf])

    def problem(self) -> Graph:
        """The graph for the planner."""
        sizes = [int(storage.nbytes()) for storage in self.held]
        names = [str(n) for n in range(len(sizes))]
        return Graph(self.tensors, self.ops, self.persistent, self.results, sizes, names)

    def offsets(self, start: Mapping[int, int]) -> dict[str, int | tuple[int, ...]]:
        """Addresses by node, where each storage's start is known."""
        found: dict[str, int | tuple[int, ...]] = {}
        for op in self.ops:
            places = [start[s] + at for s, at in self.places.get(op.name, ()) if s in start]
            if places:
                found[op.name] = places[0] if len(places) == 1 else tuple(places)
        return found
