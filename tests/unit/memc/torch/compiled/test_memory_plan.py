# SPDX-License-Identifier: Apache-2.0
"""memc.torch.plan: graphs of PyTorch calls, and memc's placement as ExecuTorch calls it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

RUN = """
def run_in(found, module, inputs):
    # The graph's calls in the planned order, each result copied to its address in one arena, from which readers take it.
    arena = torch.empty(found.peak, dtype=torch.uint8)
    def placed(value, at):
        size = value.numel() * value.element_size()
        home = arena[at:at + size].view(value.dtype).view(value.shape)
        home.copy_(value)
        return home
    nodes = {n.name: n for n in module.graph.nodes}
    known = dict(zip([n.name for n in module.graph.nodes if n.op == "placeholder"], inputs))
    held = {}
    for name in found.order:
        node = nodes[name]
        take = lambda n: known[n.name] if n.name in known else getattr(module, n.target)
        args, kwargs = torch.fx.map_arg(node.args, take), torch.fx.map_arg(node.kwargs, take)
        result = node.target(*args, **kwargs)
        at = found.offsets.get(name)
        shares = not isinstance(result, torch.Tensor) or result.untyped_storage().data_ptr() in {
            leaf.untyped_storage().data_ptr() for leaf in torch.utils._pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)
        }
        known[name] = result if shares or at is None else placed(result.contiguous(), at)
    (output,) = [n for n in module.graph.nodes if n.op == "output"]
    return [known[n.name] for n in output.args[0]]
"""


def test_values_lie_apart_while_they_are_read(site) -> None:
    """A graph that runs in an arena of the planned size, at the planned addresses, gives its results."""
    site.run(
        RUN
        + """
class Net(nn.Module):
    def forward(self, x, w):
        a = F.relu(x @ w)
        b = torch.cat([a, a * 2], 1)
        b[:, 1:3].mul_(3)
        c, d = (b + 1).split(4, 1)
        return torch.exp(-(c * d)).sum(1), a.t() + 1, b.view(-1)[::2] * 2

from torch.fx.experimental.proxy_tensor import make_fx
x, w = torch.randn(4, 3), torch.randn(3, 4)
module = make_fx(Net())(x, w)
wanted = Net()(x, w)
for reorder in (False, True):
    found = memc.torch.plan(module, reorder=reorder)
    assert sorted(found.order) == sorted(n.name for n in module.graph.nodes if n.op == "call_function")
    assert found.lower_bound <= found.peak < 64 * len(found.offsets) * 4
    assert furthest(run_in(found, module, [x, w]), wanted) <= 1e-6
"""
    )


def test_what_is_planned_and_what_is_not(site) -> None:
    site.run(
        """
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 8)).eval()
program = torch.export.export(net, (torch.randn(2, 3, 8, 8),), strict=False)
found = memc.torch.plan(program)
conv, relu, flat, line = found.order
assert found.offsets[conv] == found.offsets[relu] == found.offsets[flat]
assert set(found.offsets) == {conv, relu, flat, line}    # Neither parameters nor inputs.
assert found.peak == found.lower_bound == 2048 + 64 and found.proven_optimal
assert memc.torch.plan(program, alignment=1).peak == 2048 + 64
assert memc.torch.plan(program, capacity=3000).peak <= 3000
assert "capacity" in refusal(lambda: memc.torch.plan(program, capacity=2000))

# A view into the middle, a copy where strides ask for one, and several results.
class Parts(nn.Module):
    def forward(self, x):
        y = x * 2
        return y[1:], y.t().reshape(-1), y.topk(2)
parts = memc.torch.plan(torch.export.export(Parts(), (torch.randn(4, 8),), strict=False))
by = {name.split("_")[0]: at for name, at in parts.offsets.items()}
assert by["slice"] == by["mul"] + 32
assert by["reshape"] != by["mul"]
assert len(by["topk"]) == 2

# Sizes that vary have the values of the export, or of the inputs that are given.
n = torch.export.Dim("n", min=2, max=64)
program = torch.export.export(nn.ReLU(), (torch.randn(4, 16),), dynamic_shapes=({0: n},), strict=False)
assert memc.torch.plan(program).peak == 256
assert memc.torch.plan(program, [torch.empty(32, 16)]).peak == 2048

traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
assert memc.torch.plan(traced, [torch.zeros(3, 4)]).peak == 256
assert "give example_inputs" in refusal(lambda: memc.torch.plan(traced))
assert "expected 1 example inputs, got 2" in refusal(lambda: memc.torch.plan(traced, [1, 2]))
assert "got Linear" in refusal(lambda: memc.torch.plan(nn.Linear(2, 2)))
assert "without data" in refusal(lambda: memc.torch.plan(traced, [torch.zeros(3, 5)]))
"""
    )


def test_orders_with_less_memory(site) -> None:
    """Two large values of which each is read by one sum: with `reorder`, one lives at a time."""
    site.run(
        """
class Net(nn.Module):
    def forward(self, x):
        a, b = x.expand(64, 64) * 2, x.expand(64, 64) * 3
        return a.sum() + b.sum()
program = torch.export.export(Net(), (torch.randn(64),), strict=False)
assert memc.torch.plan(program).peak == 2 * 16384 + 64
assert memc.torch.plan(program, reorder=True).peak == 16384 + 2 * 64
"""
    )


def test_the_algorithm_of_executorch(site) -> None:
    """ExecuTorch gives specs with lifetimes, whose last step is in, and takes places; its own package is not needed."""
    site.run(
        """
import types
from dataclasses import dataclass
@dataclass
class SpecAllocResult:
    mem_id: int
    mem_obj_id: int
    mem_offset: int
@dataclass
class MemoryAlgoResult:
    spec_dict: dict
    bufsizes: list
module = types.ModuleType("executorch.exir.memory_planning")
module.SpecAllocResult, module.MemoryAlgoResult = SpecAllocResult, MemoryAlgoResult
for name in ("executorch", "executorch.exir"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["executorch.exir.memory_planning"] = module

class Spec:
    def __init__(self, first, last, size, mem_id=None, base=None, at=0):
        self.lifetime, self.size, self.mem_id = [first, last], size, mem_id
        self.storage_base, self.storage_base_offset = base, at
    def realign(self, alignment):
        self.allocated_memory = -(-self.size // alignment) * alignment
        return self.allocated_memory

a, b, c, d, other = Spec(0, 1, 60), Spec(1, 2, 32), Spec(2, 3, 64), Spec(3, 4, 16), Spec(0, 9, 40, mem_id=2)
inside = Spec(2, 4, 16, base=a, at=16)
algo = memc.torch.executorch.memory_planning
specs = {a, b, c, d, other}
found = algo(16, specs, object(), None)
assert found.bufsizes == [0, 96, 48] and set(found.spec_dict) == specs
def bounds(spec):
    place = found.spec_dict[spec]
    return place.mem_offset, place.mem_offset + spec.allocated_memory
for left, right in ((a, b), (b, c), (c, d)):    # Each lives at a step with the next.
    (x, stop), (y, end) = bounds(left), bounds(right)
    assert stop <= y or end <= x
assert all(found.spec_dict[s].mem_offset % 16 == 0 for s in specs)
assert found.spec_dict[other].mem_id == 2

# What lies in another's storage lies there, and keeps it.
found = algo(16, {a, b, c, inside}, object(), None)
assert found.spec_dict[inside].mem_offset == found.spec_dict[a].mem_offset + 16
assert found.bufsizes == [0, 160] or found.bufsizes == [0, 64 + 32 + 64]

# A part of a program: after the bytes that are taken; with padding.
part = types.SimpleNamespace(input_mem_buffer_sizes=[0, 100])
found = algo(16, {a}, part, None, 8)
assert found.spec_dict[a].mem_offset == 112 and found.bufsizes == [0, 112 + 64 + 8]
assert algo(16, set(), object(), None).bufsizes == [0, 0]
"""
    )
