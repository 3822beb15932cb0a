# SPDX-License-Identifier: Apache-2.0
"""autocast and GradScaler as options of a compiled step, and scores beside the loss."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

NET = """
base = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(4)]

def compiled(model, **options):
    return memc.torch.compile_step(model, "cross-entropy", torch.optim.AdamW(model.parameters(), 1e-3), example=data[0], **options)
"""


def test_autocast_and_a_scaler(site) -> None:
    """Weights stay f32; a step that overflows halves the scale and leaves them."""
    site.run(
        NET
        + """
from memc.torch.mixed import precision_of
assert precision_of(torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)) == "f32"
assert precision_of(torch.float16) == "f16" and precision_of("bf16") == "bf16"
assert "precision torch.float64" in refusal(lambda: precision_of(torch.float64))
model, other = copy.deepcopy(base), copy.deepcopy(base)
step = compiled(model, precision=torch.autocast("cpu", dtype=torch.bfloat16))
theirs = torch.optim.AdamW(other.parameters(), 1e-3)
for x, y in data:
    theirs.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = F.cross_entropy(other(x), y)
    wanted.backward()
    theirs.step()
    assert abs(float(step(x, y)) - float(wanted)) <= 0.02
assert all(p.dtype == torch.float32 for p in model.parameters())

def scaled(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return float(loss)

# Two of these steps overflow: the batch itself, and gradients that are too large once scaled.
batches = [data[0], (data[1][0] * float("inf"), data[1][1]), (data[2][0] * 1e3, data[2][1]), data[3], data[0]]
model, other = copy.deepcopy(base), copy.deepcopy(base)
theirs, scaler = torch.optim.AdamW(other.parameters(), 1e-3, eps=1e-4), torch.amp.GradScaler("cpu", init_scale=4096.0)
mine = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-4)
step = memc.torch.compile_step(model, "cross-entropy", mine, example=data[0], precision=torch.autocast("cpu", dtype=torch.float16), scaler=scaler)
for x, y in batches:
    wanted, got = scaled(other, theirs, scaler, x, y), float(step(x, y))
    assert abs(got - wanted) <= 0.02 * max(1, abs(wanted)) or got != got and wanted != wanted, (got, wanted)
    assert float(step._views["loss_scale"]) == scaler.get_scale()
    assert int(step._views["loss_scale.good_steps"]) == scaler.state_dict()["_growth_tracker"]
    assert furthest(model.parameters(), other.parameters()) <= 2e-4
assert scaler.get_scale() < 4096 and float(mine.state_dict()["state"][0]["step"]) == float(theirs.state_dict()["state"][0]["step"])

scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": 7})
model = copy.deepcopy(base)
step = compiled(model, precision=torch.autocast("cpu", dtype=torch.float16), scaler=scaler)
assert float(step._views["loss_scale"]) == 1024 and int(step._views["loss_scale.good_steps"]) == 7
step(*data[0])
before = copy.deepcopy(model.state_dict())
step(data[1][0] * float("inf"), data[1][1])
assert float(step._views["loss_scale"]) == 512 and int(step._views["loss_scale.good_steps"]) == 0
assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())
assert float(step.state_dict()["state"][0]["step"]) == 1
assert "growth_interval=100: expected 2000" in refusal(lambda: compiled(copy.deepcopy(base), scaler=torch.amp.GradScaler("cpu", growth_interval=100)))
assert "expected a torch.amp.GradScaler, got 3" in refusal(lambda: compiled(copy.deepcopy(base), scaler=3))
"""
    )


def test_micro_batches_with_a_schedule_and_clipping(site) -> None:
    """Each step as PyTorch's loop of micro-batches: backward passes that add up, one clipping, one update, one move of the rate."""
    site.run(
        NET
        + """
model, other = copy.deepcopy(base), copy.deepcopy(base)
mine, theirs = (torch.optim.AdamW(m.parameters(), 1e-2, eps=1e-3) for m in (model, other))
moved = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 5) for o in (mine, theirs)]
step = memc.torch.compile_step(model, "cross-entropy", mine, example=data[0], accumulate=3, clip_norm=0.5, outputs=True)
for number in range(5):
    parts = [data[(number + k) % 4] for k in range(3)]
    theirs.zero_grad()
    scores = [other(x) for x, _ in parts]
    losses = [F.cross_entropy(s, y) for s, (_, y) in zip(scores, parts)]
    for loss in losses:
        (loss / 3).backward()
    nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    theirs.step()
    got = float(step(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])))
    assert abs(got - float(sum(losses)) / 3) <= 1e-6
    assert furthest([step.outputs["scores"]], [torch.cat(scores)]) <= 1e-5
    assert furthest(model.parameters(), other.parameters()) <= 1e-5
    for scheduler in moved:
        scheduler.step()
assert mine.param_groups[0]["lr"] < 1e-3
"""
    )


def test_scores_on_request(site) -> None:
    """Those that the loss was of, before the update; of a model that returns its loss, its logits."""
    site.run(
        NET
        + """
model = copy.deepcopy(base)
step = compiled(model, outputs=True)
for x, y in data:
    with torch.no_grad():
        wanted = model(x)
    loss = step(x, y)
    assert furthest([step.outputs["scores"]], [wanted]) <= 1e-6
    assert abs(float(loss) - float(F.cross_entropy(wanted, y))) <= 1e-6
assert compiled(copy.deepcopy(base)).outputs == {}

class Own(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.net, self.name = copy.deepcopy(base), name
    def forward(self, x, labels):
        scores = self.net(x)
        return {"loss": F.cross_entropy(scores, labels), self.name: scores}
batch = {"x": data[0][0], "labels": data[0][1]}
own = Own("logits")
wanted = own(**batch)["logits"].detach()
step = memc.torch.compile_step(own, "output", "sgd", example=batch, outputs=True)
step(**batch)
assert furthest([step.outputs["scores"]], [wanted]) <= 1e-6
said = refusal(lambda: memc.torch.compile_step(Own("other"), "output", "sgd", example=batch, outputs=True))
assert "expected a model that returns `logits`" in said, said
"""
    )
