# SPDX-License-Identifier: Apache-2.0
"""Optimizers of torch.optim in compiled steps: 20 steps as PyTorch's, parameter groups, schedulers, and state in both directions."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

NET = """
base = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16, bias=False), nn.LayerNorm(16), nn.Linear(16, 3))
data = [(torch.randn(5, 6), torch.randint(0, 3, (5,))) for _ in range(20)]
O = torch.optim


def eager(model, optimizer, batch, clip=None):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    if clip:
        clip(model.parameters())
    optimizer.step()
    return float(loss)

def apart(mine, theirs):
    # The largest difference, as a part of the largest magnitude.
    return max(float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-3)) for a, b in zip(mine, theirs))

def states(optimizer):
    return [t for _, each in sorted(optimizer.state_dict()["state"].items()) for _, t in sorted(each.items()) if torch.is_tensor(t)]

def pair(make, **options):
    model, other = copy.deepcopy(base), copy.deepcopy(base)
    mine, theirs = make(model), make(other)
    return memc.torch.compile_step(model, "cross-entropy", mine, example=data[0], **options), other, theirs

def close(step, other, theirs, least=2e-6):
    assert apart(step.model.parameters(), other.parameters()) <= least, apart(step.model.parameters(), other.parameters())
    mine, wanted = step.optimizer.state_dict()["state"], theirs.state_dict()["state"]
    assert mine.keys() == wanted.keys() and all(mine[key].keys() == wanted[key].keys() for key in wanted)
    assert apart(states(step.optimizer), states(theirs)) <= 20 * least, apart(states(step.optimizer), states(theirs))
"""

CASES = """
cases = {
    "rmsprop": lambda m: O.RMSprop(m.parameters(), 1e-3),
    "rmsprop-all": lambda m: O.RMSprop(m.parameters(), 1e-3, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.9, centered=True),
    "adagrad": lambda m: O.Adagrad(m.parameters(), 1e-2, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.1),
    "adadelta": lambda m: O.Adadelta(m.parameters(), 0.5, weight_decay=0.1),
    "adamax": lambda m: O.Adamax(m.parameters(), 1e-3, weight_decay=0.1),
    "nadam": lambda m: O.NAdam(m.parameters(), 1e-3, weight_decay=0.1),
    "nadamw": lambda m: O.NAdam(m.parameters(), 1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda m: O.RAdam(m.parameters(), 1e-3, weight_decay=0.1),
    "radamw": lambda m: O.RAdam(m.parameters(), 1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    "adafactor": lambda m: O.Adafactor(m.parameters(), 1e-2, weight_decay=0.1),
    "amsgrad": lambda m: O.AdamW(m.parameters(), 1e-3, amsgrad=True),
    "maximize": lambda m: O.Adam(m.parameters(), 1e-3, maximize=True, foreach=True),
}
"""


def test_twenty_steps(site) -> None:
    """Losses, weights and all states as PyTorch's, by two parts in a million of the largest: Adam and its like divide small gradients by their own
    size, which rounding decides."""
    found = site.run(
        NET
        + CASES
        + """
for name, make in cases.items():
    step, other, theirs = pair(make)
    for batch in data:
        wanted = eager(other, theirs, batch)
        assert abs(float(step(*batch)) - wanted) <= 1e-6 * abs(wanted) + 1e-6, name
    print(name, apart(step.model.parameters(), other.parameters()), apart(states(step.optimizer), states(theirs)))
    close(step, other, theirs)
"""
    )
    print(found)


def test_element_types(site) -> None:
    """Modules of other types than f32: Adafactor's first eps is that of the type, and rates are f32 in all of them."""
    site.run(
        NET
        + """
makes = {
    "sgd": lambda m: O.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda m: O.AdamW(m.parameters(), 1e-2, eps=1e-3),
    "radam": lambda m: O.RAdam(m.parameters(), 1e-2, betas=(0.9, 0.6), eps=1e-3),
    "adafactor": lambda m: O.Adafactor(m.parameters(), 1e-2, weight_decay=0.1),
}
for dtype, most in ((torch.float64, 1e-7), (torch.bfloat16, 0.03), (torch.float16, 0.03)):
    for name, make in makes.items():
        model = copy.deepcopy(base).to(dtype)
        other = copy.deepcopy(model)
        batches = [(x.to(dtype), y) for x, y in data[:5]]
        theirs = make(other)
        step = memc.torch.compile_step(model, "cross-entropy", make(model), example=batches[0])
        for batch in batches:
            step(*batch)
            eager(other, theirs, batch)
        assert apart(model.parameters(), other.parameters()) <= most, (dtype, name, apart(model.parameters(), other.parameters()))
        assert all(p.dtype == dtype for p in model.parameters())
mixed = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3).double())
assert "without eps" in refusal(lambda: memc.torch.compile_step(mixed, "mse", O.Adafactor(mixed.parameters()), example=data[0]))
"""
    )


def test_state_in_both_directions(site) -> None:
    """Three steps in memc, three in PyTorch from its state, and three in memc from that."""
    site.run(
        NET
        + CASES
        + """
for name, make in cases.items():
    step, other, theirs = pair(make)
    fresh = make(other)
    for batch in data[:3]:
        step(*batch)
    other.load_state_dict(step.model.state_dict())
    fresh.load_state_dict(copy.deepcopy(step.state_dict()))
    reference, own = copy.deepcopy(base), None
    own = make(reference)
    for batch in data[:6]:
        eager(reference, own, batch)
    for batch in data[3:6]:
        eager(other, fresh, batch)
    assert apart(other.parameters(), reference.parameters()) <= 5e-6, (name, apart(other.parameters(), reference.parameters()))
    step.model.load_state_dict(other.state_dict())
    step.load_state_dict(copy.deepcopy(fresh.state_dict()))
    for batch in data[6:9]:
        step(*batch)
        eager(reference, own, batch)
    close(step, reference, own, 5e-6)
"""
    )


def test_groups_and_schedulers(site) -> None:
    """Groups of unlike rates, decays and betas; a scheduler moves each rate, and nothing is compiled again."""
    site.run(
        NET
        + """
def make(m):
    return O.AdamW([
        {"params": [m[0].weight, m[2].weight], "weight_decay": 0.5},
        {"params": [m[0].bias, m[3].bias, m[3].weight], "weight_decay": 0.0, "lr": 3e-3},
        {"params": m[4].parameters(), "betas": (0.8, 0.99), "eps": 1e-6, "lr": 5e-4},
    ], 1e-3)
step, other, theirs = pair(make)
assert step.rates() == {"learning_rate": 1e-3, "learning_rate.1": 3e-3, "learning_rate.2": 5e-4}
turns = [lambda n: 0.9**n, lambda n: 1 / (1 + n), lambda n: 1.0 + n / 10]
schedules = [O.lr_scheduler.LambdaLR(o, turns) for o in (step.optimizer, theirs)]
for batch in data:
    wanted = eager(other, theirs, batch)
    assert abs(float(step(*batch)) - wanted) <= 2e-6
    for schedule in schedules:
        schedule.step()
close(step, other, theirs)

def sgd(m):
    p = list(m.parameters())
    return O.SGD([{"params": p[:3]}, {"params": p[3:5], "momentum": 0.0, "lr": 0.2}, {"params": p[5:], "nesterov": True}], 0.1, momentum=0.9)
step, other, theirs = pair(sgd)
for batch in data[:5]:
    step(*batch)
    eager(other, theirs, batch)
assert apart(step.model.parameters(), other.parameters()) <= 1e-6
"""
    )


def test_clipping(site) -> None:
    site.run(
        NET
        + """
sgd = lambda m: O.SGD(m.parameters(), 0.1)
def both(parameters):
    parameters = list(parameters)
    nn.utils.clip_grad_value_(parameters, 0.05)
    nn.utils.clip_grad_norm_(parameters, 0.04, norm_type=float("inf"))
for how, clip in (
    ({"clip_value": 0.02}, lambda p: nn.utils.clip_grad_value_(p, 0.02)),
    ({"clip_norm": 0.2}, lambda p: nn.utils.clip_grad_norm_(p, 0.2)),
    ({"clip_norm": 0.03, "clip_norm_type": float("inf")}, lambda p: nn.utils.clip_grad_norm_(p, 0.03, norm_type=float("inf"))),
    ({"clip_norm": 0.04, "clip_norm_type": float("inf"), "clip_value": 0.05}, both),
):
    step, other, theirs = pair(sgd, **how)
    for batch in data[:5]:
        step(*batch)
        eager(other, theirs, batch, clip)
    assert apart(step.model.parameters(), other.parameters()) <= 1e-6, how
assert "clip_norm_type: expected 2 or inf, got 1" in refusal(lambda: pair(sgd, clip_norm=1.0, clip_norm_type=1))
"""
    )


def test_by_name_with_options(site) -> None:
    """Lion, and AdamW with 8-bit states, which stays close to AdamW."""
    print(
        site.run(
            NET
            + """
model, other = copy.deepcopy(base), copy.deepcopy(base)
step = memc.torch.compile_step(model, "cross-entropy", "lion", example=data[0], learning_rate=1e-3, optimizer_options={"weight_decay": 0.1})
means = [torch.zeros_like(p) for p in other.parameters()]
for batch in data:
    step(*batch)
    other.zero_grad()
    F.cross_entropy(other(batch[0]), batch[1]).backward()
    with torch.no_grad():
        for p, m in zip(other.parameters(), means):
            p.mul_(1 - 1e-3 * 0.1).sub_(torch.sign(0.9 * m + 0.1 * p.grad), alpha=1e-3)
            m.mul_(0.99).add_(p.grad, alpha=0.01)
assert apart(model.parameters(), other.parameters()) <= 1e-5, apart(model.parameters(), other.parameters())

wide = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
model, other = copy.deepcopy(wide), copy.deepcopy(wide)
x, y = torch.randn(32, 64), torch.randn(32, 64)
step = memc.torch.compile_step(model, "mse", "adamw8bit", example=(x, y), learning_rate=1e-3, optimizer_options={"weight_decay": 0.01})
theirs = O.AdamW(other.parameters(), 1e-3)
for _ in range(20):
    loss = float(step(x, y))
    theirs.zero_grad()
    wanted = F.mse_loss(other(x), y)
    wanted.backward()
    theirs.step()
print("8 bits: loss", loss, "AdamW", float(wanted))
assert abs(loss - float(wanted)) <= 0.01 * float(wanted)
assert step._views["0.weight.exp_avg"].dtype == torch.uint8
assert "no option momentum" in refusal(lambda: memc.torch.compile_step(model, "mse", "lion", example=(x, y), optimizer_options={"momentum": 0.9}))
"""
        )
    )


def test_refusals(site) -> None:
    """One line for what memc has not, and for closures."""
    site.run(
        NET
        + """
compile = lambda o: memc.torch.compile_step(copy.deepcopy(base), "cross-entropy", o, example=data[0])
p = lambda: base.parameters()
assert "optimizer LBFGS: expected SGD, Adam, AdamW" in refusal(lambda: compile(O.LBFGS(p())))
assert "optimizer SparseAdam: expected SGD" in refusal(lambda: compile(O.SparseAdam(p())))
assert "optimizer Muon" in refusal(lambda: compile(O.Muon([base[0].weight])))
class Own(O.AdamW):
    pass
assert "optimizer Own" in refusal(lambda: compile(Own(p())))
assert "the option dampening=0.5" in refusal(lambda: compile(O.SGD(p(), 0.1, momentum=0.9, dampening=0.5)))
assert "the option differentiable=True" in refusal(lambda: compile(O.Adam(p(), differentiable=True)))
step, other, theirs = pair(lambda m: O.SGD(m.parameters(), 0.1))
assert "takes no closure" in refusal(lambda: step(lambda: 0))
"""
    )
