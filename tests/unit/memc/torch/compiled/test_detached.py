# SPDX-License-Identifier: Apache-2.0
"""Values that are detached from the gradients, in steps by memc and by PyTorch."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom


def test_what_is_detached(site) -> None:
    """Parameters and values, whole or as views, in place and in regions without gradients: what only they reach neither moves nor decays."""
    site.run(
        """
class Net(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.a, self.b, self.p, self.how = nn.Linear(6, 8), nn.Linear(8, 8), nn.Parameter(torch.randn(8)), how
    def forward(self, x):
        a, b = self.a, self.b
        if self.how == "parameter":
            return b(F.linear(x, a.weight.detach(), a.bias)) + self.p
        if self.how == "also":
            return b(F.linear(x, a.weight.detach(), a.bias)) + F.linear(x, a.weight) + self.p
        if self.how == "view":
            return b(F.linear(x, a.weight.t().detach().t())) + self.p.detach()
        if self.how == "in place":
            h = a(x)
            h.detach_()
            return b(h)
        if self.how == "region":
            with torch.no_grad():
                h, p = a(x), self.p
            return b(h) + p
        nearest = ((a(x)[:, None] - b.weight) ** 2).sum(-1).argmin(1)
        h, code = a(x), F.embedding(nearest, b.weight)
        return h + (code - h).detach() + ((code - h.detach()) ** 2).mean() + ((code.detach() - h) ** 2).mean()

x, y = torch.randn(5, 6), torch.randn(5, 8)
for how in ("parameter", "also", "view", "in place", "region", "codes"):
    model = Net(how)
    other = copy.deepcopy(model)
    mine, theirs = (torch.optim.SGD(m.parameters(), 0.05, momentum=0.5, weight_decay=0.1) for m in (model, other))
    step = memc.torch.compile_step(model, "mse", mine, example=(x, y))
    for _ in range(3):
        theirs.zero_grad()
        wanted = F.mse_loss(other(x), y)
        wanted.backward()
        theirs.step()
        assert abs(float(step(x, y)) - float(wanted)) <= 1e-5, how
    assert furthest(model.parameters(), other.parameters()) <= 1e-6, how
    assert mine.state_dict()["state"].keys() == theirs.state_dict()["state"].keys(), how
"""
    )
