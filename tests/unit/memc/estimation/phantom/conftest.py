# SPDX-License-Identifier: Apache-2.0
"""A package `torch` that is none: as much of PyTorch as the process of a script touches, with an allocator that a script calls itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memc.estimation.phantom import process
from memc.estimation.phantom.build import Libraries
from memc.estimation.phantom.installation import Installation

TORCH = '''
import ctypes, struct, types, sys

class Tracker:
    """The library that follows PyTorch's allocator: here, what scripts tell it."""
    def __init__(self):
        self.rows, self.reads, self.module, self.step = [], [], -1, 0
        self.memc_phantom_outside = lambda: 1000
        self.memc_phantom_used = lambda: 2000
        self.memc_phantom_nccl = lambda: 0
    def memc_phantom_set_limit(self, limit): self.limit = limit.value
    def memc_phantom_prefer_largest(self, yes): self.largest = bool(yes.value)
    def memc_phantom_assume_nonzero(self, share): self.nonzero = share.value
    def memc_phantom_track(self): pass
    def memc_phantom_backward(self, change): pass
    def memc_phantom_set_module(self, number): self.module = number.value
    def memc_phantom_set_step(self, step): self.step = step.value
    def memc_phantom_mark(self, addresses, count, what):
        self.rows += [(100 + what.value, each, 0, 0, 0, 0, 0, 0, 0, 0) for each in addresses]
    def add(self, action, address, nbytes):
        self.rows.append((action, address, nbytes, 0, 0, 0, self.module, 0, self.step, 0))
    def memc_phantom_write(self, rows, names):
        with open(rows, "wb") as file:
            for row in self.rows: file.write(struct.pack("<10q", *row))
        with open(names, "w") as file:
            file.write("op aten::made_up\\n" + "".join(self.reads))
        return 1

tracker = Tracker()
ctypes.CDLL = lambda *_: types.SimpleNamespace(**{name: getattr(tracker, name) for name in dir(tracker) if name.startswith("memc_")})
for name, value in (("memc_phantom_outside", 1000), ("memc_phantom_used", 2000), ("memc_phantom_nccl", 0), ("memc_phantom_devices", 1)):
    setattr(tracker, name, type("Call", (), {"__call__": lambda self, value=value: value})())

class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
class Module:
    def __init__(self): self.weight = None
    def parameters(self): return [self.weight]
class Tensor:
    def all(self): return self
def all(tensor): return tensor
def module(name, **values):
    made = types.ModuleType(name)
    made.__dict__.update(values)
    sys.modules[name] = made
    return made
class Optimizer:
    param_groups, state = (), {}
    def __init__(self): pass
    def step(self):
        for hook in hooks: hook(self, (), {})
class GradScaler:
    def _maybe_opt_step(self, optimizer, state): optimizer.step()
module("torch.amp.grad_scaler", GradScaler=GradScaler)
hooks = []
fills = ("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_")
init = module("torch.nn.init", **{name: (lambda tensor, *a, **k: tensor) for name in fills})
modules = module("torch.nn.modules.module", register_module_forward_pre_hook=lambda hook: None, register_module_forward_hook=lambda hook, always_call: None)
nn = module("torch.nn", init=init, Module=Module)
optimizer = module("torch.optim.optimizer", register_optimizer_step_post_hook=hooks.append, Optimizer=Optimizer)
queued, made = [], []
stats = {f"{name}_bytes.all.{when}": 0 for name in ("allocated", "requested", "reserved") for when in ("peak", "current")}
memory = module("torch.cuda.memory", reset_peak_memory_stats=lambda *a: None)
cuda = module("torch.cuda", memory=memory, _lazy_call=queued.append, is_initialized=lambda: False, memory_stats=lambda: stats)
is_tensor = lambda value: False
graph = module("torch.autograd.graph", _engine_run_backward=lambda: None)
autograd = module("torch.autograd", graph=graph, _engine_run_backward=graph._engine_run_backward)
distributed = module("torch.distributed", is_available=lambda: False)
multiprocessing = module("torch.multiprocessing", spawn=None, start_processes=None)
def save(value, f):
    with open(f, "w") as file: file.write(repr(value))
def load(f):
    with open(f) as file: return eval(file.read())
compile = None
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))

def start():
    """CUDA is initialized."""
    while queued: queued.pop()()
def allocate(address, nbytes):
    """A block of a segment of its own."""
    tracker.add(3, address, 2 * 2**20)
    tracker.add(0, address, nbytes)
def step():
    """Of one optimizer that is always the same."""
    if not made: made.append(Optimizer())
    made[0].step()
'''


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for scripts, in which PyTorch is the package that is none."""
    package = tmp_path / "site/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH)
    (package / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    installed = Installation(sys.executable, package, "2.11.0+cu130", package.parent)
    monkeypatch.setattr(process, "find_installation", lambda python: installed)
    monkeypatch.setattr(process, "libraries", lambda found: _NoLibraries(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class _NoLibraries(Libraries):
    @property
    def preload(self) -> str:
        return ""
