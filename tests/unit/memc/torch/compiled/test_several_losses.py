# SPDX-License-Identifier: Apache-2.0
"""Several losses in one step, and metrics beside them, against PyTorch."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

TWO = """
class Two(nn.Module):
    def __init__(self, named):
        super().__init__()
        self.named, self.trunk = named, nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.kind, self.place = nn.Linear(16, 5), nn.Linear(16, 4)
    def forward(self, x):
        h = self.trunk(x)
        return {"place": self.place(h), "kind": self.kind(h)} if self.named else (self.kind(h), self.place(h))

def accuracy(result, kind, place):
    scores = result["kind"] if isinstance(result, dict) else result[0]
    return (scores.argmax(1) == kind).float().mean()

data = [(torch.randn(6, 8), torch.randint(0, 5, (6,)), torch.randn(6, 4)) for _ in range(4)]
losses = {"kind": nn.CrossEntropyLoss(label_smoothing=0.1), "place": ("smooth-l1", 0.5)}
"""


@pytest.mark.parametrize("named", [True, False])
def test_losses_are_added_up(site, named: bool) -> None:
    """By the names of results, or in order; each loss and a metric are of the weights before the update."""
    site.run(
        TWO
        + f"model = Two({named})"
        + """
other = copy.deepcopy(model)
mine, theirs = (torch.optim.Adam(m.parameters(), 1e-2, eps=1e-3) for m in (model, other))
step = memc.torch.compile_step(model, losses, mine, example=data[0], outputs=True, metrics={"accuracy": accuracy})
for x, kind, place in data:
    result = other(x)
    scores, places = (result["kind"], result["place"]) if model.named else result
    parts = F.cross_entropy(scores, kind, label_smoothing=0.1), F.smooth_l1_loss(places, place)
    theirs.zero_grad()
    (parts[0] + 0.5 * parts[1]).backward()
    theirs.step()
    loss = step(x, kind, place)
    assert abs(float(loss) - float(parts[0] + 0.5 * parts[1])) <= 1e-6
    assert set(step.outputs) == {"kind", "place", "accuracy"}
    assert abs(float(step.outputs["kind"]) - float(parts[0])) <= 1e-6
    assert abs(float(step.outputs["place"]) - float(parts[1])) <= 1e-6
    assert abs(float(step.outputs["accuracy"]) - float(accuracy(result, kind, place))) <= 1e-6
assert furthest(model.parameters(), other.parameters()) <= 1e-5
"""
    )


def test_metrics_alone(site) -> None:
    """Of each micro-batch, beside one loss; a state of the optimizer does not depend on them."""
    site.run(
        """
x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
model = nn.Linear(6, 3)
start = copy.deepcopy(model)
metrics = {"right": lambda s, y: (s.argmax(1) == y).sum(), "most": lambda s, y: s.amax(1)}
step = memc.torch.compile_step(model, "cross-entropy", "sgd", example=(x[:4], y[:4]), accumulate=2, metrics=metrics)
loss = step(x, y)
scores = start(x)
assert abs(float(loss) - float(F.cross_entropy(scores, y))) <= 1e-6
assert set(step.outputs) == {"right", "most"}
right = (scores.argmax(1) == y).reshape(2, 4).sum(1)
assert step.outputs["right"].tolist() == right.tolist()
assert furthest([step.outputs["most"]], [scores.amax(1)]) <= 1e-6
"""
    )
