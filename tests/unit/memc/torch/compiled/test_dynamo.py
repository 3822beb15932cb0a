# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend=memc) in inference, on the CPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.phantom,
    pytest.mark.skipif(
        "MEMC_PHANTOM_PYTHON" not in os.environ, reason="MEMC_PHANTOM_PYTHON names no Python with PyTorch"
    ),
]


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


def test_refusals(site) -> None:
    site.run(
        """
net = nn.Linear(4, 8)
for make, word in ((lambda: torch.compile(net, backend=memc.torch.backend)(torch.randn(2, 4)), "compile_step"),
                   (lambda: torch.compile(lambda x: torch.fft.fft(x).real, backend=memc.torch.backend)(torch.randn(4)), "memc has no converter")):
    try:
        make()
    except Exception as error:
        assert word in str(error), error
    else:
        raise AssertionError
"""
    )
