# SPDX-License-Identifier: Apache-2.0
"""Losses of torch.nn in compiled steps: values, and gradients by an update with a learning rate of 1, against PyTorch."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

TOGETHER = """
N, C = 6, 4
flat, image = (N, C), (N, C, 3, 2)
weights, signs = torch.tensor([0.2, 0.5, 0.3, 1.5]), torch.tensor([1.0, -1, 1, -1, 1, -1])
classes, pixels = torch.tensor([0, 3, -100, 1, 2, 1]), torch.randint(0, C, (N, 3, 2))
unit, real = torch.rand(N, C), torch.randn(N, C)
shares, some = unit.softmax(1), (unit > 0.5).float()

def of_logs(loss):
    return lambda x, y: loss(x.log_softmax(1), y)

class Each(nn.Module):
    # A loss of parameters of its own; elements of one without reduction count unlike.
    def __init__(self, loss, shape):
        super().__init__()
        self.loss, self.scores = loss, nn.Parameter(torch.randn(shape))
    def forward(self, target):
        found = self.loss(self.scores, target)
        return (found * torch.arange(1, found.numel() + 1).reshape(found.shape)).sum()

def compare_all(cases):
    mine = nn.ModuleList([Each(loss, shape) for loss, shape, _ in cases.values()])
    theirs, targets = copy.deepcopy(mine), tuple(target for *_, target in cases.values())
    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = mine
        def forward(self, *targets):
            return torch.stack([part(t) for part, t in zip(self.parts, targets)])
    step = memc.torch.compile_step(All(), lambda v, _: v.sum(), "sgd", example=(*targets, torch.zeros(1)), learning_rate=1.0, outputs=True)
    step(*targets, torch.zeros(1))
    for name, got, part, other, target in zip(cases, step.outputs["scores"], mine, theirs, targets):
        wanted = other(target)
        wanted.backward()
        assert float((got - wanted).abs()) <= 2e-6 * max(1, abs(float(wanted))), (name, got, wanted)
        gradient = other.scores.grad
        off = float((other.scores - gradient - part.scores).abs().max())
        assert off <= 2e-6 * max(1, float(gradient.abs().max())) and float(gradient.abs().max()) > 0, (name, off)
"""


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_classes(site, reduction: str) -> None:
    """Cross entropy and negative log likelihood with weights, smoothing, labels that do not count, and probabilities."""
    site.run(
        TOGETHER
        + f"how = {reduction!r}"
        + """
cases = {}
for smoothing in (0.0, 0.1):
    for weight in (None, weights):
        options = {"weight": weight, "label_smoothing": smoothing, "reduction": how}
        name = f"{smoothing} {weight is not None}"
        cases["classes " + name] = nn.CrossEntropyLoss(**options), flat, classes
        cases["pixels " + name] = nn.CrossEntropyLoss(ignore_index=2, **options), image, pixels
        cases["shares " + name] = nn.CrossEntropyLoss(**options), flat, shares
cases["one"] = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.1, reduction=how), (C,), torch.tensor(2)
cases["shares of pixels"] = nn.CrossEntropyLoss(weight=weights, reduction=how), image, torch.rand(image).softmax(1)
for weight in (None, weights):
    cases[f"nll {weight is not None}"] = of_logs(nn.NLLLoss(weight, reduction=how)), flat, classes
    cases[f"nll of pixels {weight is not None}"] = of_logs(nn.NLLLoss(weight, ignore_index=1, reduction=how)), image, pixels
    cases[f"margins {weight is not None}"] = nn.MultiMarginLoss(weight=weight, reduction=how), flat, classes.clamp(min=0)
    cases[f"squares {weight is not None}"] = nn.MultiMarginLoss(2, 0.5, weight, reduction=how), flat, classes.clamp(min=0)
compare_all(cases)
"""
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_numbers(site, reduction: str) -> None:
    """Binary cross entropies, divergence, distances and margins."""
    site.run(
        TOGETHER
        + f"how = {reduction!r}"
        + """
cases = {
    "mse": (nn.MSELoss(reduction=how), flat, real),
    "l1": (nn.L1Loss(reduction=how), flat, real),
    "smooth-l1": (nn.SmoothL1Loss(reduction=how, beta=0.5), flat, real),
    "smooth-l1 sharp": (nn.SmoothL1Loss(reduction=how, beta=0), flat, real),
    "huber": (nn.HuberLoss(reduction=how, delta=0.7), flat, real),
    "kl": (of_logs(nn.KLDivLoss(reduction=how)), flat, shares),
    "kl batchmean": (of_logs(nn.KLDivLoss(reduction="batchmean")), flat, shares),
    "kl of logs": (of_logs(nn.KLDivLoss(reduction=how, log_target=True)), flat, shares.log()),
    "soft margin": (nn.SoftMarginLoss(reduction=how), flat, real.sign()),
    "hinge": (nn.HingeEmbeddingLoss(0.5, reduction=how), flat, real.sign()),
    "poisson": (nn.PoissonNLLLoss(full=True, reduction=how), flat, unit * 3),
    "poisson of rates": (lambda x, y: nn.PoissonNLLLoss(log_input=False, reduction=how)(x.exp(), y), flat, unit * 3),
    "cosine": (lambda x, y: nn.CosineEmbeddingLoss(0.1, reduction=how)(x, y, signs), flat, real),
    "ranking": (lambda x, y: nn.MarginRankingLoss(0.1, reduction=how)(x, y, y.sign()), flat, real),
    "triplet": (lambda x, y: nn.TripletMarginLoss(reduction=how)(x, y, x.flip(0)), flat, real),
    "triplet swapped": (lambda x, y: nn.TripletMarginLoss(p=1.5, swap=True, reduction=how)(x, y, x.flip(0)), flat, real),
    "triplet by distance": (lambda x, y: nn.TripletMarginWithDistanceLoss(reduction=how)(x, y, x.flip(0)), flat, real),
}
for weight in (None, weights):
    name = str(weight is not None)
    cases["bce " + name] = lambda x, y, w=weight: nn.BCELoss(w, reduction=how)(x.sigmoid(), y), flat, unit
    cases["logits " + name] = nn.BCEWithLogitsLoss(weight, reduction=how), flat, unit
    cases["pos_weight " + name] = nn.BCEWithLogitsLoss(weight, reduction=how, pos_weight=3 * weights), flat, unit
    cases["several labels " + name] = nn.MultiLabelSoftMarginLoss(weight, reduction=how), flat, some
compare_all(cases)
"""
    )
