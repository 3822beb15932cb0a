# SPDX-License-Identifier: Apache-2.0
"""compile_step against PyTorch's own steps, on the CPU."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

CONV = """
def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))

def batches(number):
    torch.manual_seed(number)
    return torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
"""

TEXT = """
class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation="gelu")
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.norm(self.block(self.embed(ids), src_mask=mask, is_causal=True))).transpose(1, 2)

def words(number):
    torch.manual_seed(number)
    ids = torch.randint(0, 32, (2, 6))
    labels = ids.roll(-1, 1)
    labels[:, -1] = -100
    return ids, labels
"""


def test_convolutions_with_sgd_and_a_scheduler(site) -> None:
    """The module's parameters and statistics lie in the step's memory, and its optimizer's momenta; PyTorch goes on with them."""
    site.run(
        CONV
        + """
model = net()
schedule = lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5)
step, other, theirs = compare(model, nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01), batches, schedule=schedule)
assert int(model[1].num_batches_tracked) == 5
slab = {view.data_ptr() for view in step._views.values()}
assert all(p.data_ptr() in slab and p.untyped_storage().nbytes() == p.nbytes for p in model.parameters())
assert model[1].running_mean.data_ptr() in slab
assert all(s["momentum_buffer"].data_ptr() in slab for s in step.optimizer.state.values())
torch.save(model.state_dict(), "mine.pt")
torch.save(other.state_dict(), "theirs.pt")
import os
assert os.path.getsize("mine.pt") <= os.path.getsize("theirs.pt") + 512
x, y = batches(9)
for m, o in ((model, step.optimizer), (other, theirs)):
    o.zero_grad()
    F.cross_entropy(m(x), y).backward()
    o.step()
assert furthest(model.state_dict().values(), other.state_dict().values()) <= 1e-5
"""
    )


def test_state_goes_between_steps_and_pytorch(site) -> None:
    site.run(
        CONV
        + """
model = net()
make = lambda p: torch.optim.AdamW(p, 3e-3, weight_decay=0.1)
step, other, theirs = compare(model, nn.CrossEntropyLoss(), make, batches)
step.load_state_dict(theirs.state_dict())
model.load_state_dict(other.state_dict())
batch = batches(7)
theirs.zero_grad()
wanted = F.cross_entropy(other(batch[0]), batch[1])
wanted.backward()
theirs.step()
assert abs(float(step(*batch)) - float(wanted)) <= 1e-6
assert furthest(model.state_dict().values(), other.state_dict().values()) <= 1e-6
saved = copy.deepcopy(step.state_dict())
assert float(saved["state"][0]["step"]) == 6
step.save("states.safetensors")
first = float(step(*batch))
step.restore("states.safetensors")
again = copy.deepcopy(model)
assert float(step(*batch)) != first or furthest(again.parameters(), model.parameters()) > 0
step.executable.restore("states.safetensors")
"""
    )


def test_a_step_is_loaded_for_another_module(site) -> None:
    site.run(
        CONV
        + """
model, start = net(), None
start = copy.deepcopy(model)
make = lambda m: torch.optim.Adam(m.parameters(), 1e-3)
step = memc.torch.compile_step(model, "cross-entropy", make(model), example=batches(0), output="step.memc")
losses = [float(step(*batches(n))) for n in range(3)]
loaded = memc.torch.load_step("step.memc", start, make(start))
assert [float(loaded(*batches(n))) for n in range(3)] == losses
assert "no parameter" in refusal(lambda: memc.torch.load_step("step.memc", nn.Linear(2, 2)))
"""
    )


def test_a_language_model_with_tied_weights(site) -> None:
    """Padding is ignored and labels smoothed; a frozen parameter stays. (Of a bias of keys the gradient is 0 but for rounding, which
    Adam would make steps of without a large eps.)"""
    site.run(
        TEXT
        + """
model = Language()
model.norm.weight.requires_grad_(False)
before = model.norm.weight.clone()
trained = lambda p: torch.optim.AdamW([q for q in p if q.requires_grad], 1e-2, eps=1e-3)
step, *_ = compare(model, nn.CrossEntropyLoss(label_smoothing=0.1), trained, words)
assert torch.equal(model.norm.weight, before) and model.head.weight is model.embed.weight
assert "embed.weight" in step.executable.states and "head.weight" not in step.executable.states
"""
    )


def test_groups_without_weight_decay(site) -> None:
    """The usual two groups: matrices decay, biases and scales do not."""
    site.run(
        CONV
        + """
def groups(parameters):
    parameters = list(parameters)
    return torch.optim.AdamW([{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.5},
                              {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}], 1e-2, eps=1e-3)
compare(net(), nn.CrossEntropyLoss(), groups, batches)
"""
    )


def test_micro_batches_and_clipping(site) -> None:
    site.run(
        TEXT
        + """
model = Language()
other = copy.deepcopy(model)
mine, theirs = (torch.optim.SGD(m.parameters(), 0.5) for m in (model, other))
step = memc.torch.compile_step(model, "cross-entropy", mine, example=words(0), accumulate=2, clip_norm=0.3)
for number in range(3):
    (a, b), (c, d) = words(number), words(number + 10)
    theirs.zero_grad()
    wanted = (F.cross_entropy(other(a), b) + F.cross_entropy(other(c), d)) / 2
    wanted.backward()
    nn.utils.clip_grad_norm_(other.parameters(), 0.3)
    theirs.step()
    assert abs(float(step(torch.cat([a, c]), torch.cat([b, d]))) - float(wanted)) <= 1e-5
assert furthest(model.parameters(), other.parameters()) <= 1e-5
"""
    )


def test_numbers_among_the_arguments_and_parameters_of_losses(site) -> None:
    """Numbers are compiled in, by position and by name, and another one is refused; parameters of a loss stay as they are."""
    site.run(
        """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
    def forward(self, x, scale, mask=None, labels=None):
        result = self.linear(x) * scale
        return result if labels is None else {"loss": F.mse_loss(result, labels)}
x, y, model = torch.randn(6, 4), torch.randn(6, 3), Scaled()
wanted = float(F.mse_loss(model(x, 2.5), y))
step = memc.torch.compile_step(model, "mse", "sgd", example=(x, 2.5, None, y), learning_rate=0.0)
assert abs(float(step(x, 2.5, None, y)) - wanted) <= 1e-6
assert "argument 1 was 2.5 when the step was compiled and is 7.0 now" in refusal(lambda: step(x, 7.0, None, y))
assert "argument 2 was None" in refusal(lambda: step(x, 2.5, x, y))
step = memc.torch.compile_step(model, "output", "sgd", example={"x": x, "scale": 2.5, "labels": y}, learning_rate=0.0)
assert abs(float(step(x=x, scale=2.5, labels=y)) - wanted) <= 1e-6 and abs(float(step(x=x, labels=y)) - wanted) <= 1e-6
class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))
    def forward(self, result, labels):
        return F.mse_loss(result * self.weight, labels)
loss, other = Weighed(), nn.Linear(4, 3)
first = copy.deepcopy(other)
weighed = memc.torch.compile_step(other, loss, torch.optim.SGD(other.parameters(), 0.1), example=(x, y))
theirs = torch.optim.SGD(first.parameters(), 0.1)
for _ in range(3):
    theirs.zero_grad()
    wanted = loss(first(x), y)
    wanted.backward()
    theirs.step()
    assert abs(float(weighed(x, y)) - float(wanted)) <= 1e-6
both = torch.optim.SGD([*other.parameters(), *loss.parameters()], 0.1)
assert "the loss trains its own parameter `weight`" in refusal(lambda: memc.torch.compile_step(other, loss, both, example=(x, y)))
assert "argument scale was 2.5" in refusal(lambda: step(x=x, scale=1.0, labels=y))
"""
    )


def test_losses(site) -> None:
    """By name, as modules and as functions; and models that return theirs."""
    site.run(
        """
torch.manual_seed(1)
x, real, unit = torch.randn(6, 4), torch.randn(6, 3), torch.rand(6, 3)
classes, weights = torch.randint(0, 3, (6,)), torch.tensor([0.2, 0.5, 0.3])
cases = [
    ("mse", F.mse_loss, real), ("l1", F.l1_loss, real), ("smooth-l1", F.smooth_l1_loss, real), ("huber", F.huber_loss, real),
    ("bce-with-logits", F.binary_cross_entropy_with_logits, unit),
    (nn.CrossEntropyLoss(weight=weights), None, classes),
    (lambda out, y: F.nll_loss(F.log_softmax(out, 1), y), None, classes),
    (lambda out, y: F.kl_div(F.log_softmax(out, 1), y.softmax(1), reduction="batchmean"), None, real),
    (lambda out, y: F.binary_cross_entropy(out.sigmoid(), y), None, unit),
]
for loss, function, y in cases:
    model = nn.Linear(4, 3)
    other = copy.deepcopy(model)
    step = memc.torch.compile_step(model, loss, "sgd", example=(x, y), learning_rate=0.1)
    theirs = torch.optim.SGD(other.parameters(), 0.1)
    for _ in range(3):
        theirs.zero_grad()
        wanted = (function or loss)(other(x), y)
        wanted.backward()
        theirs.step()
        assert abs(float(step(x, y)) - float(wanted)) <= 1e-6, loss
    assert furthest(model.parameters(), other.parameters()) <= 1e-6, loss

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
    def forward(self, x, labels):
        return {"loss": F.mse_loss(self.linear(x), labels), "other": x}
model = Own()
wanted = float(model(x, real)["loss"])
step = memc.torch.compile_step(model, "output", "sgd", example={"x": x, "labels": real})
assert abs(float(step(x=x, labels=real)) - wanted) <= 1e-6
"""
    )


def test_the_row_of_padding_gets_no_gradient(site) -> None:
    """That of an embedding, and of one whose weight is the head's as well, where the head's gradient is all of it."""
    site.run(
        """
class Words(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8, padding_idx=1), nn.Linear(8, 9, bias=False)
        nn.init.normal_(self.embed.weight)
        if tied:
            self.head.weight = self.embed.weight
    def forward(self, ids):
        return self.head(self.embed(ids)).transpose(1, 2)

def words(number):
    torch.manual_seed(number)
    return torch.randint(0, 4, (3, 5)), torch.randint(0, 9, (3, 5))

for tied in (False, True):
    model = Words(tied)
    before = model.embed.weight[1].clone()
    compare(model, nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, 0.1), words)
    assert torch.equal(model.embed.weight[1], before) != tied
"""
    )


def test_refusals(site) -> None:
    """One line each, naming what memc has not."""
    site.run(
        """
model, x, y = nn.Linear(4, 3), torch.randn(6, 4), torch.randint(0, 3, (6,))
compile = lambda *a, **k: memc.torch.compile_step(*a, **{"example": (x, y), **k})
assert "expected SGD, Adam, AdamW" in refusal(lambda: compile(model, "mse", torch.optim.LBFGS(model.parameters())))
assert "expected one of" in refusal(lambda: compile(model, "nothing"))
assert "expected a torch.nn.Module" in refusal(lambda: compile(3))

class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else x
said = refusal(lambda: compile(Deciding()))
assert said.startswith("unsupported: Deciding: torch.export:") and "data-dependent" in said, said

class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return torch.view_as_real(torch.view_as_complex(self.linear(x).reshape(6, 2, 2))).reshape(6, 4)
said = refusal(lambda: compile(Complex()))
assert "view_as_complex" in said and "complex numbers" in said, said

step = compile(model)
said = refusal(lambda: step(x[:3], y[:3]))
assert "expected" in said, said
"""
    )


def test_norms_of_zeros_have_gradients_of_zeros(site) -> None:
    site.run(
        """
        class Penalty(nn.Module):
            def __init__(self):
                super().__init__()
                self.line, self.zero = nn.Linear(3, 2), nn.Parameter(torch.zeros(4))

            def forward(self, x):
                return self.line(x) + self.zero.norm()

        compare(Penalty(), nn.MSELoss(), lambda p: torch.optim.SGD(p, 0.1), lambda n: (torch.ones(2, 3) * n, torch.zeros(2, 2)), steps=2)
        """
    )
