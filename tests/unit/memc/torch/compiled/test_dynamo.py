# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend=memc) in inference and in training, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.phantom


def test_the_entry_point_names_the_backend() -> None:
    text = (Path(__file__).resolve().parents[5] / "pyproject.toml").read_text()
    assert '[project.entry-points.torch_dynamo_backends]\nmemc = "memc.torch:backend"' in text


def test_models_in_inference(site) -> None:
    """Convolutions, attention, and buffers that are written to; parameters may change between calls."""
    site.run(
        """
import torchvision
def check(net, *inputs):
    net.eval()
    compiled = torch.compile(net, backend=memc.torch.backend)
    with torch.no_grad():
        for _ in range(2):
            assert furthest([compiled(*inputs)], [net(*inputs)]) <= 1e-5
            for p in net.parameters():
                p.mul_(0.9)
    torch._dynamo.reset()

check(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 5)), torch.randn(2, 3, 12, 12))
check(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), torch.randn(2, 6, 16))
check(torchvision.models.shufflenet_v2_x0_5(), torch.randn(1, 3, 64, 64))

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(2))
    def forward(self, x):
        self.n += 1
        return x * self.n, None, 3
counts = Counts()
compiled = torch.compile(counts, backend=memc.torch.backend)
with torch.no_grad():
    x = torch.ones(2)
    assert [float(compiled(x)[0][0]) for _ in range(3)] == [1, 2, 3]
    assert compiled(x)[1:] == (None, 3) and float(counts.n[0]) == 4
"""
    )


def test_sizes_that_vary(site) -> None:
    site.run(
        """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
compiled = torch.compile(net, backend=memc.torch.backend)
with torch.no_grad():
    for n in (2, 5, 7, 5, 2):
        x = torch.randn(n, 4)
        assert furthest([compiled(x)], [net(x)]) <= 1e-6
torch._dynamo.reset()
few = torch.compile(net, backend=memc.torch.backend, dynamic=True, options={"max_sizes": 1})
with torch.no_grad():
    few(torch.randn(3, 4))
    try:
        few(torch.randn(4, 4))
    except Exception as error:
        assert "max_sizes" in str(error)
    else:
        raise AssertionError
"""
    )


def test_tensors_written_in_the_program(site) -> None:
    site.run(
        """
compiled = torch.compile(lambda x: x + torch.tensor([1., 2., 3.]), backend=memc.torch.backend)
with torch.no_grad():
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [2, 3, 4]
"""
    )


TRAINING = """
def steps(net, batches, loss=lambda y: y.square().mean(), optimizer=lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), **options):
    # As many steps through memc as through eager: losses, gradients of inputs, parameters and buffers agree.
    other = copy.deepcopy(net)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=memc.torch.backend, **options)
    mine, theirs = optimizer(net.parameters()), optimizer(other.parameters())
    for number, batch in enumerate(batches):
        found = []
        for call, stepper in ((compiled, mine), (other, theirs)):
            given = [x.detach().requires_grad_() if x.is_floating_point() else x for x in batch]
            stepper.zero_grad()
            value = loss(call(*given))
            value.backward()
            stepper.step()
            found.append([value.detach(), *(x.grad for x in given if x.is_floating_point())])
        assert furthest(*found) <= 1e-5, (number, furthest(*found))
    assert furthest(net.state_dict().values(), other.state_dict().values()) <= 1e-5
    assert all(p.grad is not None and p.grad.stride() == p.stride() for p in net.parameters())
"""


def test_training_steps(site) -> None:
    """Convolutions with running statistics, attention, embeddings and layer normalization."""
    site.run(
        TRAINING
        + """
images = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    nn.Conv2d(8, 8, 3, groups=4), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
target = torch.randint(0, 5, (4,))
steps(images, [[torch.randn(4, 3, 32, 32)] for _ in range(4)], loss=lambda y: F.cross_entropy(y, target))

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.body = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation="gelu")
    def forward(self, x):
        return F.linear(self.body(self.words(x)), self.words.weight)
steps(Tokens(), [[torch.randint(0, 20, (2, 6))] for _ in range(4)])
"""
    )


def test_training_of_graphs_that_are_no_plain_chains(site) -> None:
    """Views, writes in place, inputs and results of other strides, tied weights, results that are inputs, sizes that vary."""
    site.run(
        TRAINING
        + """
class Hard(nn.Module):
    def __init__(self):
        super().__init__()
        self.tied, self.scale = nn.Linear(16, 16, bias=False), nn.Parameter(torch.ones(16))
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, x):
        self.seen += 1
        a, b = self.tied(x).chunk(2, dim=1)
        y = torch.cat([b.exp().t().contiguous().t(), a.sigmoid()], 1)
        y[:, ::2] *= 0.5
        y.add_(1)
        return self.tied(y[:, ::2].repeat(1, 2) * self.scale).relu_().t()
steps(Hard(), [[torch.randn(n, 16)] for n in (8, 8, 5, 12, 8)])
steps(Hard(), [[torch.randn(16, 8).t()] for _ in range(2)])
steps(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), [[torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)] for _ in range(2)])

class Several(nn.Module):
    def forward(self, x, w):
        y = x @ w
        return y, y.view(-1)[2:], x, y.detach().argmax(1), x.shape[0]
torch._dynamo.reset()
call = torch.compile(Several(), backend=memc.torch.backend)
x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
y, part, same, at, size = call(x, w)
assert size == 3 and torch.equal(same, x) and torch.equal(at, y.argmax(1)) and furthest([y, part], [x @ w, (x @ w).view(-1)[2:]]) <= 1e-6
(y.sum() + 2 * part.sum()).backward()
g = torch.ones(15)
g[2:] += 2
assert furthest([x.grad, w.grad], [g.view(3, 5) @ w.t(), x.t() @ g.view(3, 5)]) <= 1e-5
"""
    )


def test_dropout_in_training(site) -> None:
    """The backward drops what the forward has dropped; PyTorch's seed gives the same masks, and each step others."""
    site.run(
        TRAINING
        + """
class Dropped(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.25) * torch.rand_like(x[:, :1])
call = torch.compile(Dropped(), backend=memc.torch.backend)
def step(x):
    x = x.detach().requires_grad_()
    y = call(x)
    y.sum().backward()
    return y.detach(), x.grad
x = torch.rand(64, 64) + 1
torch.manual_seed(3)
(y, g), (other, _) = step(x), step(x)
assert furthest([y], [g * x]) <= 1e-6 and not torch.equal(y, other)
assert 0.2 < float((y == 0).float().mean()) < 0.3
torch.manual_seed(3)
assert torch.equal(step(x)[0], y)
"""
    )


def test_a_budget_in_training(site) -> None:
    """The same results, with fewer bytes from the forward to the backward; what cannot be kept is refused."""
    site.run(
        TRAINING
        + """
from memc.torch.partition import partitioner as module
made = []
class Watched(module.Partitioner):
    def __call__(self, *args, **options):
        try:
            return super().__call__(*args, **options)
        finally:
            made.extend(self.partitions)
module.Partitioner = Watched
net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.0), nn.SiLU())])
for budget in ("100%", "60%"):
    steps(copy.deepcopy(net), [[torch.randn(128, 16)] for _ in range(2)], options={"memory_budget": budget})
assert made[1].recomputed and made[1].live.peak <= made[1].budget and made[1].live.saved < 0.7 * made[0].live.saved
try:
    steps(net, [[torch.randn(128, 16)]], options={"memory_budget": "1KiB"})
except Exception as error:
    assert "least reachable peak" in str(error)
else:
    raise AssertionError
"""
    )


def test_refusals(site) -> None:
    site.run(
        """
for make, word in ((lambda: torch.compile(torch.sin, backend=memc.torch.backend, options={"dynamic": "no"})(torch.randn(4)), "option dynamic"),
                   (lambda: torch.compile(torch.sin, backend=memc.torch.backend, options={"colour": 1})(torch.randn(4)), "colour"),
                   (lambda: torch.compile(lambda x: torch.fft.fft(x).real, backend=memc.torch.backend)(torch.randn(4)), "memc has no converter")):
    try:
        make()
    except Exception as error:
        assert word in str(error), error
    else:
        raise AssertionError
"""
    )
