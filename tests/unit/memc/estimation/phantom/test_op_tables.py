# SPDX-License-Identifier: Apache-2.0
"""The tables of single ops, beside ones that PyTorch on the phantom device makes anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Script, run_script

ROOT = Path(__file__).parents[5]

pytestmark = pytest.mark.phantom


@pytest.mark.parametrize(
    ("script", "shipped"),
    [
        ("torch_op_table.py", "python/memc/estimation/data/pytorch_2_11_ops.json"),
        ("torch_single_ops.py", "tests/data/torch_2_11_single_ops.json"),
    ],
)
def test_a_table_is_what_its_script_makes(script: str, shipped: str, tmp_path: Path) -> None:
    run_script(Script(str(ROOT / "scripts" / script), (str(tmp_path / "made"),), 0), gpu_named("h200"))
    made = json.loads((tmp_path / "made").read_text())
    assert len(made) > 30 and made == json.loads((ROOT / shipped).read_text())
