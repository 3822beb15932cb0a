# SPDX-License-Identifier: Apache-2.0
"""A Python with PyTorch and memc in one process: PyTorch's environment, with this one's packages behind its own."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import memc.native

ROOT = Path(__file__).resolve().parents[5]

PRELUDE = """
import copy, json, sys, warnings
sys.path.append({packages!r})
warnings.filterwarnings("ignore")
import torch
from torch import nn
import memc, memc.torch
from memc.ir.errors import MemcError
F = nn.functional
torch.set_num_threads(1)
torch.manual_seed(0)

def furthest(a, b):
    return max((float((x.double() - y.double()).abs().max()) for x, y in zip(a, b) if x.numel()), default=0.0)

def refusal(call):
    try:
        call()
    except MemcError as error:
        assert "\\n" not in str(error), error
        return str(error)
    raise AssertionError("expected an error")

def compare(net, loss, optimizer, batches, steps=5, schedule=None, **options):
    # As many steps by memc as by PyTorch, from the same state: losses, parameters, buffers and states of the optimizer agree.
    other = copy.deepcopy(net)
    mine, theirs = optimizer(net.parameters()), optimizer(other.parameters())
    first = batches(0)
    step = memc.torch.compile_step(net, loss, mine, example=first, **options)
    moved = [schedule(o) for o in (mine, theirs)] if schedule else []
    apart = []
    for number in range(steps):
        batch = batches(number)
        theirs.zero_grad()
        wanted = loss(other(*batch[:-1]), batch[-1])
        wanted.backward()
        theirs.step()
        apart.append(abs(float(step(*batch)) - float(wanted)))
        for scheduler in moved:
            scheduler.step()
    assert max(apart) <= 1e-5, apart
    assert furthest(net.state_dict().values(), other.state_dict().values()) <= 1e-5
    kept, wanted = mine.state_dict()["state"], theirs.state_dict()["state"]
    assert kept.keys() == wanted.keys(), (kept.keys(), wanted.keys())
    for key in wanted:
        names = [n for n in wanted[key] if wanted[key][n] is not None]
        assert furthest([kept[key][n] for n in names], [wanted[key][n] for n in names]) <= 1e-5
    return step, other, theirs
"""


@dataclass(frozen=True)
class TorchSite:
    """A folder from which a Python with PyTorch imports memc."""

    folder: Path

    def run(self, script: str, seconds: float = 500) -> str:
        """What the script prints, after PRELUDE. Raises AssertionError with its last lines if it fails."""
        text = PRELUDE.format(packages=sysconfig.get_paths()["purelib"]) + textwrap.dedent(script)
        done = subprocess.run(
            [os.environ["MEMC_PHANTOM_PYTHON"], "-c", text],
            env={**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> TorchSite:
    """The package as the wheel lays it out."""
    folder = tmp_path_factory.mktemp("torch")
    package = folder / "memc"
    package.mkdir()
    for item in (ROOT / "python/memc").iterdir():
        (package / item.name).symlink_to(item)
    for name in ("ir", "passes", "runtime", "cpp"):
        (package / name).symlink_to(ROOT / name)
    (package / memc.native.library_path().name).symlink_to(memc.native.library_path())
    return TorchSite(folder)
