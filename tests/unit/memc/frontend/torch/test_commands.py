# SPDX-License-Identifier: Apache-2.0
"""The command line with programs of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from memc.cli import main

DATA = Path(__file__).parent / "data"


def test_verify_against_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DATA / "in_place.pt2"), "--against", "numpy", "-q"]) == 0
    assert main(["verify", str(DATA / "sizes.pt2"), "--against", "numpy", "--input-shapes", "x:[7,6]"]) == 0
    assert "PASSED" in capsys.readouterr().out


def test_onnxruntime_is_no_reference_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DATA / "in_place.pt2")]) == 2
    assert "--against numpy" in capsys.readouterr().err


def test_compile_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = str(tmp_path / "model.memc")
    assert main(["compile", str(DATA / "in_place.pt2"), "-o", artifact, "-q"]) == 0
    assert main(["run", artifact, "-i", "x=2x3xf32=1", "-i", "row=3xf32=2"]) == 0
    assert "turned: f32[3,2]" in capsys.readouterr().out


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged.pt2"
    damaged.write_bytes(b"nothing")
    for arguments, code in (
        ([str(damaged)], 3),
        ([str(tmp_path / "missing.pt2")], 2),
        ([str(DATA / "sizes.pt2"), "--dim", "nothing=3"], 2),
        ([str(DATA / "sorting.pt2"), "--max-size", "3"], 2),
    ):
        assert main(["compile", *arguments, "-o", str(tmp_path / "model.memc")]) == code
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said.startswith("memc: error: "), said
