# SPDX-License-Identifier: Apache-2.0
"""Planned memory in PyTorch itself, on the phantom device."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.phantom

STEADY = """
import json, torchvision
model = {model}
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
step = lambda: train({batch}, {size})
for _ in range(3):
    step()
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
step()
names = [f"{{what}}.all.peak" for what in ("allocated_bytes", "requested_bytes", "reserved_bytes", "allocation")]
native = [torch.cuda.memory_stats()[name] for name in names]
with memc.torch.planned_memory() as planned:
    steps(planned, 5, step)
    torch.cuda.reset_peak_memory_stats()
    steps(planned, 4, step)
    stats = torch.cuda.memory_stats()
    mine = [stats[name] for name in names]
    for what in ("allocation", "allocated_bytes", "requested_bytes", "reserved_bytes"):
        assert stats[f"{{what}}.all.allocated"] - stats[f"{{what}}.all.freed"] == stats[f"{{what}}.all.current"], what
    segments = torch.cuda.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == stats["reserved_bytes.all.current"]
    assert sum(segment["allocated_size"] for segment in segments) == stats["allocated_bytes.all.current"]
    assert sum(segment["requested_size"] for segment in segments) == stats["requested_bytes.all.current"]
    blocks = [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert len(blocks) == stats["allocation.all.current"]
    assert sum(block["size"] for block in blocks) == stats["allocated_bytes.all.current"]
    print(json.dumps([native, mine, planned.report().to_dict()]))
after = torch.cuda.memory_stats()
model = optimizer = None
gc.collect()
assert torch.cuda.memory_allocated() < after["allocated_bytes.all.current"]
"""


@pytest.mark.parametrize(
    ("model", "batch", "size"), [("net()", 4, 64), ("torchvision.models.resnet18(num_classes=10).cuda()", 4, 224)]
)
def test_steady_steps_are_served_from_the_plan(phantom, model: str, batch: int, size: int) -> None:
    """All requests, without a fall-back; the peaks of live bytes are PyTorch's own, and no more is reserved."""
    printed = phantom.run(STEADY.format(model=model, batch=batch, size=size))
    native, mine, report = json.loads(printed.strip().splitlines()[-1])
    assert report["state"] == "replay" and report["replayed_steps"] == 7 and report["watched_steps"] == 2
    # Those before the gradients of the last watched step are freed, in whose place the arena is made.
    assert report["native"] <= 2
    assert report["requests"] == report["hits"] + report["native"] > 7 * 40 and report["fallbacks"] == {}
    assert report["arena_bytes"] == report["lower_bound"] > 0
    assert mine[0] <= native[0] and mine[1] <= native[1] and mine[2] < native[2] and mine[3] <= native[3]
    assert mine[1] >= 0.97 * native[1] and mine[2] <= 1.06 * mine[0] + 6 * 2**20
    assert report["reserved_after"] <= report["reserved_before"]


def test_an_adaptive_optimizer_whose_states_are_born_in_the_region(phantom) -> None:
    """With gradients accumulated over two batches, dropped late, and mixed precision."""
    printed = phantom.run("""
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler()
        def accumulated():
            for _ in range(2):
                x, y = torch.randn(4, 3, 64, 64, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
                with torch.autocast("cuda", torch.float16):
                    loss = nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        with memc.torch.planned_memory(strict=True) as planned:
            steps(planned, 9, accumulated)
            print(*counts(planned), planned.report().state)
    """)
    requests, hits, fallbacks, state = printed.split()[-4:]
    assert requests == hits and int(hits) > 300 and fallbacks == "0" and state == "replay"


def test_plans_from_a_file(phantom) -> None:
    """Steps follow it from the first one on; a plan for something else is refused."""
    printed = phantom.run("""
        import json
        with memc.torch.planned_memory() as planned:
            print(refusal(lambda: planned.save("step.plan.json")))
            steps(planned, 4)
            planned.save("step.plan.json")
        with memc.torch.planned_memory(plan="step.plan.json", strict=True) as planned:
            with planned.step():
                train()
            assert planned.report().replayed_steps == 1 and counts(planned)[2] == 0
        torch.__version__ = torch.__version__ + "x"
        print(refusal(memc.torch.planned_memory(plan="step.plan.json").__enter__))
        torch.__version__ = torch.__version__[:-1]
        torch.cuda.get_device_name = lambda device=None: "NVIDIA X"
        print(refusal(memc.torch.planned_memory(plan="step.plan.json").__enter__))
        with memc.torch.planned_memory() as planned:  # The refused ones have left nothing behind.
            steps(planned, 1)
    """)
    unplanned, version, device = printed.strip().splitlines()
    assert unplanned.startswith("planned_memory: save: expected a key with a plan")
    assert "torch: expected a plan for 2.11.0+cu130x, got one for 2.11.0+cu130" in version
    assert "device: expected a plan for NVIDIA X, got one for NVIDIA H200" in device


def test_keys_of_unlike_steps(phantom) -> None:
    """A last batch that is smaller, and an evaluation, have plans of their own in one arena, which has no place for gradients that live
    from one key's step through another's."""
    printed = phantom.run("""
        def evaluate():
            with torch.no_grad():
                model(torch.randn(8, 3, 64, 64, device="cuda"))
        with memc.torch.planned_memory() as planned:
            for _ in range(6):
                steps(planned, 2)
                steps(planned, 1, lambda: train(3), key="last")
                steps(planned, 1, evaluate, key="evaluation")
            before = counts(planned)
            for _ in range(2):
                steps(planned, 2)
                steps(planned, 1, lambda: train(3), key="last")
                steps(planned, 1, evaluate, key="evaluation")
            after = counts(planned)
            report = planned.report()
            print(report.plans, *(b - a for a, b in zip(before, after)), report.requests - report.hits - report.native - report.fallback_count)
    """)
    plans, requests, hits, fallbacks, rest = map(int, printed.split()[-5:])
    assert plans == 3 and requests > hits > 0.75 * requests and fallbacks == 0


def test_functions_whose_calls_are_steps(phantom) -> None:
    """In a region that stays open; a call within another is a part of it, and the process ends with it open."""
    printed = phantom.run("""
        inner = memc.torch.planned(lambda: model(torch.randn(4, 3, 64, 64, device="cuda")).sum())

        @memc.torch.planned(key=lambda batch: batch)
        def step(batch):
            optimizer.zero_grad()
            inner().backward()
            train(batch)
        from memc.torch.region import open_region
        for _ in range(8):
            step(4)
            open_region().wait()
        print(*counts(open_region()), open_region().report().steps)
    """)
    requests, hits, fallbacks, steps = map(int, printed.split()[-4:])
    assert steps == 8 and requests == hits > 0 and fallbacks == 0
