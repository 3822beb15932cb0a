# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the phantom device with memc beside it, for scripts of tests."""

from __future__ import annotations

import os
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tvm_ffi

import memc.native
from memc.estimation.gpus import gpu_named
from memc.estimation.phantom.build import libraries
from memc.estimation.phantom.description import description
from memc.estimation.phantom.installation import find_installation

ROOT = Path(__file__).resolve().parents[4]


TRAINING = """
import gc, torch, memc.torch
from memc.ir.errors import MemcError
from torch import nn
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

def net():
    torch.manual_seed(0)
    block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
    return nn.Sequential(block(3, 32), block(32, 64), nn.MaxPool2d(2), block(64, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()

model = net()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

def train(batch=4, size=64):
    x, y = torch.randn(batch, 3, size, size, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

def steps(planned, count, step=train, **key):
    for _ in range(count):
        with planned.step(**key):
            step()
        planned.wait()

def counts(planned):
    report = planned.report()
    return report.requests, report.hits, report.fallback_count

def refusal(call):
    try:
        call()
    except (MemcError, RuntimeError) as error:
        assert "\\n" not in str(error), error
        return str(error)
    raise AssertionError("expected an error")
"""
"""What each script begins with: a small network, and steps of it."""


@dataclass
class PhantomSite:
    """A folder from which a Python with PyTorch imports memc, and the phantom device's environment."""

    folder: Path
    python: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def made(folder: Path, devices: int = 1) -> PhantomSite:
        """Links the package as the wheel lays it out."""
        package = folder / "memc"
        package.mkdir()
        for item in (ROOT / "python/memc").iterdir():
            (package / item.name).symlink_to(item)
        for name in ("ir", "passes", "runtime", "cpp"):
            (package / name).symlink_to(ROOT / name)
        (package / memc.native.library_path().name).symlink_to(memc.native.library_path())
        (folder / "tvm_ffi").symlink_to(Path(tvm_ffi.__file__).parent)
        installed = find_installation(None)
        (folder / "device").write_text(description(gpu_named("h200"), devices))
        hidden = (
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
            "CUDA_VISIBLE_DEVICES",
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
        )
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {
            "LD_PRELOAD": libraries(installed).preload,
            "MEMC_PHANTOM_DEVICE": str(folder / "device"),
            "PYTHONPATH": str(folder),
        }
        return PhantomSite(folder, installed.python, environment)

    def run(self, script: str, seconds: float = 120, **environment: str) -> str:
        """What the script prints, after TRAINING. Raises AssertionError with its last lines if it fails."""
        done = subprocess.run(
            [self.python, "-c", TRAINING + textwrap.dedent(script)],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout


@pytest.fixture(scope="session")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> PhantomSite:
    """One H200."""
    return PhantomSite.made(tmp_path_factory.mktemp("phantom"))


@pytest.fixture(scope="session")
def two_devices(tmp_path_factory: pytest.TempPathFactory) -> PhantomSite:
    """Two of them."""
    return PhantomSite.made(tmp_path_factory.mktemp("phantoms"), devices=2)
