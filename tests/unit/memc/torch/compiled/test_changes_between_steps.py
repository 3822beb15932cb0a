# SPDX-License-Identifier: Apache-2.0
"""What is done to a module between compiled steps: other values, other bytes, other modes; and artifacts of other optimizers."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

NORMED = """
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))

data = [(torch.randn(5, 6), torch.randint(0, 3, (5,))) for _ in range(8)]
sgd = lambda m: torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.1, momentum=0.9)

def pair(make=sgd, net=net, example=data[0], **options):
    model, other = net(), net()
    return memc.torch.compile_step(model, "cross-entropy", make(model), example=example, **options), other, make(other)

def both(step, other, theirs, batches):
    for batch in batches:
        theirs.zero_grad()
        wanted = F.cross_entropy(other(batch[0]), batch[1])
        wanted.backward()
        theirs.step()
        assert abs(float(step(*batch)) - float(wanted)) <= 1e-5
    assert furthest(step.model.state_dict().values(), other.state_dict().values()) <= 1e-5
"""


def test_parameters_with_other_bytes(site) -> None:
    """However a parameter or a statistic is replaced, the step goes on from its value, and moves what the module has."""
    site.run(
        NORMED
        + """
def data_of_each(m):
    torch.manual_seed(3)
    for p in m.parameters():
        p.data = torch.randn_like(p)
def from_vector(m):
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(m.parameters()) * 1.5, m.parameters())
def other_statistics(m):
    m[1].running_mean, m[1].running_var = torch.ones(8), torch.full((8,), 2.0)
def assigned_statistics(m):
    m[1].load_state_dict({**m[1].state_dict(), "running_mean": torch.ones(8)})
def there_and_back(m):
    m.double().float()

step, other, theirs = pair()
both(step, other, theirs, data[:2])
for change in (data_of_each, from_vector, other_statistics, assigned_statistics, there_and_back):
    for m in (step.model, other):
        change(m)
    both(step, other, theirs, data[2:4])
    slab = {view.data_ptr() for view in step._views.values()}
    shared = [*step.model.parameters(), step.model[1].running_mean, step.model[1].running_var]
    assert all(t.data_ptr() in slab for t in shared), change
step.save("there.safetensors")
kept = [t.clone() for t in step.model.state_dict().values()]
data_of_each(step.model)
step.restore("there.safetensors")
assert furthest([p for n, p in step.model.state_dict().items() if "tracked" not in n], [t for n, t in zip(step.model.state_dict(), kept) if "tracked" not in n]) == 0
data_of_each(step.model)
wanted = [p.clone() for p in step.model.parameters()]
step.save("there.safetensors")
step.restore("there.safetensors")
assert furthest(step.model.parameters(), wanted) == 0
"""
    )


def test_two_steps_of_a_module(site) -> None:
    """One for whole batches and one for the last: each goes on from the other's weights, momenta and count of steps."""
    site.run(
        NORMED
        + """
for make in (sgd, lambda m: torch.optim.AdamW(m.parameters(), 1e-2, eps=1e-3)):
    step, other, theirs = pair(make)
    last = memc.torch.compile_step(step.model, "cross-entropy", step.optimizer, example=[t[:3] for t in data[0]])
    for batch in data[:4]:
        both(step, other, theirs, [batch])
        both(last, other, theirs, [[t[:3] for t in batch]])
    for kept, wanted in zip(step.optimizer.state_dict()["state"].values(), theirs.state_dict()["state"].values()):
        assert furthest(kept.values(), wanted.values()) <= 1e-5
    step.save("first.safetensors")
    before = [p.clone() for p in step.model.parameters()]
    last(*[t[:3] for t in data[5]])
    step.restore("first.safetensors")
    step.model[1].num_batches_tracked.sub_(1)  # Which is no state of the step.
    assert furthest(step.model.parameters(), before) == 0
    both(step, other, theirs, data[6:7])
"""
    )


def test_what_a_step_cannot_follow(site) -> None:
    """Parameters that are others, of other types, frozen since; modes; and tensors that are not trained: one line each, and
    nothing changes. Values that are only written again are no change."""
    site.run(
        NORMED
        + """
step, other, theirs = pair()
m = step.model
before = [p.clone() for p in m.parameters()]
m.double()
assert "`0.weight`: expected torch.float32 [8, 6] on cpu" in refusal(lambda: step(*data[0]))
m.float()
m.eval()
assert "the module was in training mode when the step was compiled and is in evaluation mode now" in refusal(lambda: step(*data[0]))
m.train()
m[1].eval()
assert "module `1` was in training mode" in refusal(lambda: step(*data[0]))
m.train()
m[3].bias.requires_grad_(False)
assert "`3.bias`: requires_grad was True when the step was compiled and is False now" in refusal(lambda: step(*data[0]))
m[3].bias.requires_grad_(True)
old = m[3].bias
m[3].load_state_dict(m[3].state_dict(), assign=True)
assert "`3.weight` is another parameter" in refusal(lambda: step(*data[0]))
step, other, theirs = pair()
assert furthest(before, step.model.parameters()) == 0

class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.norm, self.b, self.spare = nn.Linear(6, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 3), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.rand(8), requires_grad=False)
        self.register_buffer("table", torch.rand(8))
        self.a.requires_grad_(False)
    def forward(self, x):
        return self.b(self.norm(self.a(x)) * torch.exp(self.scale) + self.table)
step, other, theirs = pair(net=Fixed, output="fixed.memc")
both(step, other, theirs, data[:2])
step.model.load_state_dict(copy.deepcopy(step.model.state_dict()))
with torch.no_grad():
    for m in (step.model, other):
        m.spare.weight.add_(1)
        m.table.data = m.table.clone()
both(step, other, theirs, data[2:4])
for name in ("a.weight", "a.bias", "norm.running_mean", "norm.running_var", "scale", "table"):
    tensor = step.model.state_dict(keep_vars=True)[name]
    with torch.no_grad():
        was = tensor.clone()
        tensor.mul_(2).add_(1)
        assert f"`{name}` is not trained, and is another now" in refusal(lambda: step(*data[0])), name
        tensor.copy_(was)
both(step, other, theirs, data[4:5])
same = Fixed()
memc.torch.load_step("fixed.memc", same, sgd(same))(*data[0])
same.a.weight.data.add_(1)
assert "`a.weight` is not trained, and is another now" in refusal(lambda: memc.torch.load_step("fixed.memc", same, sgd(same)))
assert "frozen: 'c.*' fits no parameter" in refusal(lambda: pair(frozen=["0.*", "c.*"]))
"""
    )


def test_artifacts_of_other_optimizers(site) -> None:
    """An artifact has its optimizer's options compiled in: those of another are one line with both values."""
    site.run(
        NORMED
        + """
adamw = lambda m, **k: torch.optim.AdamW(m.parameters(), **{"lr": 1e-2, **k})
step, _, _ = pair(adamw, output="adamw.memc")
def loaded(make):
    model = net()
    return memc.torch.load_step("adamw.memc", model, make(model))
assert "compiled for optimizer adamw, and the optimizer has sgd" in refusal(lambda: loaded(sgd))
assert "`0.weight`: the step was compiled for beta1 0.9, and the optimizer has 0.5" in refusal(lambda: loaded(lambda m: adamw(m, betas=(0.5, 0.999))))
halves = lambda m, **k: torch.optim.AdamW([{"params": [*m[0].parameters(), *m[1].parameters()]}, {"params": m[3].parameters(), **k}], 1e-2)
assert "`3.weight`: the step was compiled for weight_decay 0.01, and the optimizer has 0.5" in refusal(lambda: loaded(lambda m: halves(m, weight_decay=0.5)))
assert "`3.weight` is in another parameter group" in refusal(lambda: loaded(halves))
assert "trains `3.weight`, which the optimizer has not" in refusal(lambda: loaded(lambda m: torch.optim.AdamW(m[:2].parameters(), 1e-2)))
losses = [float(step(*batch)) for batch in data[:3]]
again = loaded(lambda m: adamw(m, lr=1e-2, foreach=True))
assert [float(again(*batch)) for batch in data[:3]] == losses
betas = (torch.tensor(0.9), torch.tensor(0.999))
step, _, _ = pair(lambda m: torch.optim.Adam(m.parameters(), 1e-2, betas=betas, foreach=False))
step(*data[0])
betas[0].fill_(0.5)
assert "betas of parameter group 0 was (0.8999" in refusal(lambda: step(*data[0]))
"""
    )


def test_groups_of_unused_parameters(site) -> None:
    """Groups whose parameters no result depends on are left out, and each rate goes to its own group."""
    site.run(
        NORMED
        + """
class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.unused, self.b, self.lone = nn.Linear(6, 8), nn.Linear(4, 4), nn.Linear(8, 3), nn.Parameter(torch.ones(3))
        self.detached = nn.Linear(6, 8)
    def forward(self, x):
        return self.b(self.a(x).tanh() + self.detached(x).detach())
def groups(order):
    def make(m):
        found = {
            "a": {"params": m.a.parameters(), "lr": 1e-2},
            "unused": {"params": [*m.unused.parameters(), m.lone], "lr": 0.5},
            "detached": {"params": m.detached.parameters(), "lr": 0.7},
            "b": {"params": m.b.parameters(), "lr": 3e-2, "weight_decay": 0.3},
        }
        return torch.optim.AdamW([found[name] for name in order], 1e-3, eps=1e-3)
    return make
for order in (("a", "unused", "detached", "b"), ("unused", "detached", "a", "b"), ("detached", "b", "a", "unused")):
    step, other, theirs = pair(groups(order), Partly)
    both(step, other, theirs, data[:4])
    assert step.optimizer.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()
    for optimizer in (step.optimizer, theirs):
        for group in optimizer.param_groups:
            group["lr"] /= 2
    both(step, other, theirs, data[4:])
"""
    )


def test_schedulers_see_the_steps(site) -> None:
    """A scheduler's first step after a compiled one does not warn that the optimizer has taken none."""
    site.run(
        NORMED
        + """
step, _, _ = pair()
scheduler = torch.optim.lr_scheduler.StepLR(step.optimizer, 1, 0.5)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    step(*data[0])
    scheduler.step()
"""
    )
