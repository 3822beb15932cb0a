# SPDX-License-Identifier: Apache-2.0
"""What compile_step and a step answer to arguments that are wrong: one line each, with what was expected and what was got."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom

MODELS = """
x, y, z = torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.randn(6, 3)
model, other = nn.Linear(4, 3), nn.Linear(4, 3)

class Of(nn.Module):
    # A layer, and what a function makes of its result and input.
    def __init__(self, made):
        super().__init__()
        self.layer, self.made = nn.Linear(4, 3), made
    def forward(self, x):
        return self.made(self.layer(x), x)

heads = Of(lambda h, x: {"a": h, "b": h})
both = {"a": "cross-entropy", "b": "cross-entropy"}

def compiled(net=None, loss="cross-entropy", optimizer="sgd", **options):
    net = net if net is not None else nn.Linear(4, 3)
    return memc.torch.compile_step(net, loss, optimizer, **{"example": (x, y), **options})

def check(table):
    for case, (call, *wanted) in table.items():
        said = refusal(call)
        assert all(part in said for part in wanted), (case, said)
"""


def test_losses_and_metrics(site) -> None:
    site.run(
        MODELS
        + """
late = lambda s, t: s
check({
    "no loss": (lambda: compiled(loss=3), "loss: expected a name, a loss module or a function, got 3"),
    "unknown": (lambda: compiled(loss="cross_entropy"), "loss: expected one of bce", "got cross_entropy"),
    "empty": (lambda: compiled(loss={}), "expected one loss or several by name, got an empty dict"),
    "reserved": (lambda: compiled(loss={"scores": "mse"}), "expected names other than `loss` and `scores`, got 'scores'"),
    "weight": (lambda: compiled(loss={"a": ("mse", "much")}), "loss `a`: expected a loss, or a loss and its weight"),
    "output": (lambda: compiled(loss={"a": "output"}), "`output` is of the model alone"),
    "names": (lambda: compiled(heads, {"a": "mse", "c": "mse"}, example=(x, z, z)), "loss `c`: expected a result of this name, got a, b"),
    "results": (lambda: compiled(Of(lambda h, x: (h,)), both, example=(x, y, y)), "expected 2 results of the model, one for each loss, got 1"),
    "labels": (lambda: compiled(heads, both), "example: expected inputs of the model and then 2 of the loss (`labels`), got 2"),
    "elements": (lambda: compiled(loss=nn.MSELoss(reduction="none"), example=(x, z)), "expected a tensor of one element, got a tensor of shape [6, 3]", "mean or sum"),
    "scores": (lambda: compiled(loss="output", example=(x,)), "expected a tensor of one element, got a tensor of shape [6, 3]"),
    "ctc": (lambda: compiled(loss=lambda s, t: nn.CTCLoss()(s.log_softmax(1)[:, None], t[None], (6,), (2,))), "unsupported: Linear", "_ctc_loss"),
    "multilabel": (lambda: compiled(loss=nn.MultiLabelMarginLoss(), example=(x, torch.zeros(6, 3).long())), "aten.multilabel_margin_loss.default"),
    "gaussian": (lambda: compiled(loss=lambda s, t: F.gaussian_nll_loss(s, t, s.exp()), example=(x, z)), "unsupported: Linear: torch.export", "data-dependent"),
    "label type": (lambda: compiled(example=(x, y.float())), "unsupported: Linear: torch.export", "got torch.float32"),
    "metrics": (lambda: compiled(metrics=3), "metrics: expected functions by name, got 3"),
    "metric": (lambda: compiled(metrics={"a": 3}), "metric `a`: expected a function of the scores and the labels, got 3"),
    "value": (lambda: compiled(metrics={"a": lambda s, t: 0.5}), "metric `a`: expected a tensor, got 0.5"),
    "metric name": (lambda: compiled(metrics={"loss": late}), "expected names other than `loss` and `scores`, got 'loss'"),
    "parameter": (lambda: compiled(metrics={"weight": late}), "result 'weight' has a name that the step needs"),
})
"""
    )


def test_options_and_models(site) -> None:
    site.run(
        MODELS
        + """
O = torch.optim
check({
    "model": (lambda: compiled(3), "model: expected a torch.nn.Module, got 3"),
    "tensor": (lambda: compiled(example=x), "example: expected a batch such as (x, y)", "got a tensor of shape [6, 4]"),
    "none": (lambda: compiled(example=None), "example: expected a batch such as (x, y)", "got None"),
    "nothing": (lambda: compiled(example=()), "example: expected a batch, got none"),
    "dict": (lambda: compiled(example={"x": x, "y": y}), "got a dict; one goes with loss `output`"),
    "count": (lambda: compiled(labels=5), "inputs of the model and then 5 of the loss (`labels`), got 2 in all"),
    "no count": (lambda: compiled(labels="one"), "labels: expected how many tensors", "got 'one'"),
    "shape": (lambda: compiled(example=(torch.randn(6, 5), y)), "unsupported: Linear: torch.export", "[6, 5] X [4, 3]"),
    "optimizer": (lambda: compiled(optimizer=3), "optimizer: expected a name or an optimizer of torch.optim, got 3"),
    "class": (lambda: compiled(optimizer=O.AdamW), "optimizer: expected a name or an optimizer of torch.optim, got <class"),
    "lbfgs": (lambda: compiled(model, optimizer=O.LBFGS(model.parameters())), "unsupported: optimizer LBFGS: expected SGD"),
    "another's": (lambda: compiled(model, optimizer=O.SGD(other.parameters(), 0.1)), "expected one of the model's parameters"),
    "misspelt": (lambda: compiled(optimizer_options={"momentun": 0.9}), "optimizer_options: expected options of sgd, got momentun"),
    "rate": (lambda: compiled(learning_rate="x"), "learning_rate: expected a number, got 'x'"),
    "parts": (lambda: compiled(accumulate=0), "accumulate: expected a whole number from 1 to 65536, got 0"),
    "clip": (lambda: compiled(clip_norm=-1), "clip_norm: expected a number from", "got -1"),
    "norm": (lambda: compiled(clip_norm=1.0, clip_norm_type="x"), "clip_norm_type: expected 2 or inf, got 'x'"),
    "three": (lambda: compiled(clip_norm=1.0, clip_norm_type=3), "clip_norm_type: expected 2 or inf, got 3"),
    "text": (lambda: compiled(frozen="weight"), "frozen: expected a list of patterns of names, got 'weight'"),
    "pattern": (lambda: compiled(frozen=["head*"]), "frozen: 'head*' fits no parameter; they are 'weight, bias'"),
    "all frozen": (lambda: compiled(frozen=["*"]), "model: expected a parameter to train, got 2 that need no gradient"),
    "no parameters": (lambda: compiled(nn.ReLU()), "model: expected a parameter to train, got none"),
    "two scales": (lambda: compiled(scaler=torch.amp.GradScaler("cpu"), loss_scale=2.0), "expected a GradScaler or a loss scale, got both"),
    "precision": (lambda: compiled(precision=torch.float64), "precision torch.float64: expected torch.float32"),
    "budget": (lambda: compiled(memory_budget=64), "memory budget of 64 bytes", "the least reachable peak is"),
    "option": (lambda: compiled(memory_bugdet="1GiB"), "no option `memory_bugdet`", "did you mean memory_budget?"),
    "writes": (lambda: compiled(Of(lambda h, x: h + x.add_(1).sum())), "the module writes to its input"),
    "number": (lambda: compiled(Of(lambda h, x: h * float(x.sum()))), "unsupported: Of: torch.export", "data-dependent"),
})
step = compiled()
check({
    "few": (lambda: step(x), "missing inputs: args_1: i64[6]"),
    "shapes": (lambda: step(x[:2], y[:2]), "input args_0: expected f32[6,4], got f32[2,4]"),
    "type": (lambda: step(x.double(), y), "input args_0: expected f32[6,4], got f64[6,4]"),
    "name": (lambda: step(x, labels=y), "no input is called labels; expected args_0"),
    "closure": (lambda: step(lambda: 1), "expected a batch, got a function"),
    "label": (lambda: float(step(x, y + 9)), "input args_1[", "expected a label from 0 to 2 or -100"),
    "state": (lambda: step.state_dict(), "state_dict: expected an optimizer of torch.optim in compile_step, got one by name"),
    "folder": (lambda: memc.torch.load_step("nowhere", model), "nowhere: expected an artifact folder"),
})
"""
    )
