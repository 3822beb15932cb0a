# SPDX-License-Identifier: Apache-2.0
"""Pictures by hand, and a browser without a window where one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from memc.picture.picture import CopySpan, PictureSpace, PictureStep, PlacedTensor, PlanPicture

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
def picture() -> PlanPicture:
    """Four tensors in an arena of 400 bytes, which five ops write and read, and a copy out."""
    tensors = [
        PlacedTensor("a", ((0, 3),), 0, 100, role="activations", type="f32[25]", decision="kept", uses=(0, 2)),
        PlacedTensor(
            "b", ((1, 4),), 128, 130, role="activations", decision="in place", place="n1 at net.py:7", uses=(1, 3)
        ),
        PlacedTensor(
            "g", ((3, 5),), 0, 60, role="gradients", decision="recomputed", reason='<cheap> & "short"', uses=(3, 4)
        ),
        PlacedTensor("w", ((1, 2), (4, 5)), 320, 64, role="workspaces", others=("w2", "w3")),
    ]
    names = ("exp", "matmul", "neg", "matmul", "add")
    ops = [PictureStep(name, f"%{number}", f"n{number}") for number, name in enumerate(names)]
    return PlanPicture(
        "net.onnx",
        "op",
        5,
        (PictureSpace("arena", 400, 384, 600, 64),),
        tensors,
        ops,
        (0.0, 0.001, 0.002, 0.004, 0.005, 0.006),
        "the cost model",
        [CopySpan("a", "out", 1.0, 2.5, 100, 0.0005)],
        (("peak", "400 B"),),
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser, driven by playwright; tests skip themselves without either."""
    playwright = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no browser is installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()
