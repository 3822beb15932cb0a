# SPDX-License-Identifier: Apache-2.0
"""What is done to an optimizer between compiled steps: its own steps, states that are loaded or emptied, options that move."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

PAIR = """
base = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
data = [(torch.randn(5, 6), torch.randint(0, 3, (5,))) for _ in range(8)]
adamw = lambda p: torch.optim.AdamW(p, 1e-2)

def eager(model, optimizer, batch):
    optimizer.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()

def pair(make=adamw):
    model, other = copy.deepcopy(base), copy.deepcopy(base)
    mine, theirs = make(model.parameters()), make(other.parameters())
    return memc.torch.compile_step(model, "cross-entropy", mine, example=data[0]), mine, other, theirs

def both(step, other, theirs, batches):
    for batch in batches:
        step(*batch)
        eager(other, theirs, batch)

def close(step, other, theirs):
    assert furthest(step.model.parameters(), other.parameters()) <= 1e-6
    mine = step.optimizer
    for kept, wanted in zip(mine.state_dict()["state"].values(), theirs.state_dict()["state"].values()):
        assert kept.keys() == wanted.keys() and furthest(kept.values(), wanted.values()) <= 1e-6

def counts(optimizer):
    return [float(kept["step"]) for kept in optimizer.state.values()]
"""


def test_eager_steps_between(site) -> None:
    """Each parameter counts its own steps, once, and the artifact goes on from them; unlike counts are refused."""
    site.run(
        PAIR
        + """
step, mine, other, theirs = pair()
both(step, other, theirs, data[:3])
for number in (3, 5):
    eager(step.model, mine, data[number])
    eager(other, theirs, data[number])
    assert counts(mine) == [number + 1.0] * 4, counts(mine)
    both(step, other, theirs, data[number + 1 : number + 2])
    assert counts(mine) == [number + 2.0] * 4 and int(step._views["step"]) == number + 2
    close(step, other, theirs)
mine.state[step.model[0].bias]["step"].fill_(3)
before = copy.deepcopy(step.model)
said = refusal(lambda: step(*data[0]))
assert "`0.weight` has taken 7 steps and `0.bias` 3" in said, said
assert furthest(step.model.parameters(), before.parameters()) == 0 and counts(mine) == [7, 3, 7, 7]
mine.state[step.model[0].bias]["step"].fill_(7)
both(step, other, theirs, data[:1])
close(step, other, theirs)
"""
    )


def test_states_that_are_loaded_or_emptied(site) -> None:
    """The step takes them over, and they lie in its memory again; the checkpoint stays as it was."""
    site.run(
        PAIR
        + """
step, mine, other, theirs = pair()
for batch in data[:3]:
    eager(other, theirs, batch)
step.model.load_state_dict(other.state_dict())
checkpoint = copy.deepcopy(theirs.state_dict())
kept = copy.deepcopy(checkpoint)
mine.load_state_dict(checkpoint)
both(step, other, theirs, data[3:5])
close(step, other, theirs)
assert counts(mine) == [5.0] * 4
assert mine.state[step.model[0].weight]["exp_avg"] is step._views["0.weight.exp_avg"]
assert all(torch.equal(kept["state"][p][n], t) for p, s in checkpoint["state"].items() for n, t in s.items())
for optimizer in (mine, theirs):
    optimizer.state.clear()
both(step, other, theirs, data[5:7])
close(step, other, theirs)
assert counts(mine) == [2.0] * 4
del mine.state[step.model[0].weight]
said = refusal(lambda: step(*data[0]))
assert "`0.weight` has taken 0 steps and `0.bias` 2" in said, said
checkpoint["state"][1]["exp_avg"] = torch.zeros(3)
mine.load_state_dict(checkpoint)
said = refusal(lambda: step(*data[0]))
assert "`exp_avg` of `0.bias`: expected shape [8], got [3]" in said, said
step, mine, other, theirs = pair(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))
for batch in data[:3]:
    eager(other, theirs, batch)
step.model.load_state_dict(other.state_dict())
mine.load_state_dict(copy.deepcopy(theirs.state_dict()))
both(step, other, theirs, data[3:5])
close(step, other, theirs)
"""
    )


def test_options_that_move(site) -> None:
    """A learning rate may, of each group; what was compiled into the step is refused by name, with both values."""
    site.run(
        PAIR
        + """
step, mine, other, theirs = pair()
cycles = lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=8, cycle_momentum=False)
schedules = [cycles(o) for o in (mine, theirs)]
for batch in data[:5]:
    both(step, other, theirs, [batch])
    for schedule in schedules:
        schedule.step()
close(step, other, theirs)
before = copy.deepcopy(step.model)
torch.optim.lr_scheduler.OneCycleLR(mine, 0.05, total_steps=8)
said = refusal(lambda: step(*data[0]))
assert said == ("optimizer: betas of parameter group 0 was (0.9, 0.999) when the step was compiled and is (0.95, 0.999) now:"
                " compile again, or give the scheduler cycle_momentum=False"), said
mine.param_groups[0]["betas"] = [0.9, 0.999]
mine.param_groups[0]["weight_decay"] = 0.5
said = refusal(lambda: step(*data[0]))
assert "weight_decay of parameter group 0 was 0.01" in said and said.endswith("is 0.5 now: compile again"), said
mine.param_groups[0]["weight_decay"] = 0.01
assert furthest(step.model.parameters(), before.parameters()) == 0 and counts(mine) == [5.0] * 4
step(*data[0])
assert counts(mine) == [6.0] * 4
mine.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
assert "had [4] parameters" in refusal(lambda: step(*data[0]))

halves = lambda p: (lambda p: torch.optim.SGD([{"params": p[:2]}, {"params": p[2:]}], 0.1, momentum=0.9))(list(p))
step, mine, other, theirs = pair(halves)
both(step, other, theirs, data[:2])
for optimizer in (mine, theirs):
    optimizer.param_groups[1]["lr"] = 0.2
both(step, other, theirs, data[2:4])
close(step, other, theirs)
mine.param_groups[1]["momentum"] = 0.8
said = refusal(lambda: step(*data[0]))
assert "momentum of parameter group 1 was 0.9" in said and "cycle_momentum=False" in said, said
"""
    )


def test_the_check_takes_microseconds(site) -> None:
    """Of an optimizer that nothing was done to: nothing is copied."""
    site.run(
        PAIR
        + """
import timeit
step, mine, other, theirs = pair()
step(*data[0])
step._moments.adopt = lambda: 1 / 0
assert step._moments.enter() == {"learning_rate": 0.01}
assert min(timeit.repeat(step._moments.enter, number=100, repeat=5)) / 100 < 1e-3
print(min(timeit.repeat(step._moments.enter, number=100, repeat=5)) / 100)
"""
    )
