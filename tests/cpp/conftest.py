# SPDX-License-Identifier: Apache-2.0
"""The fake CUDA libraries, which compute on the host."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from copy_driver import BYTES, Driver, call

from memc import native
from memc.runtime.codegen.cuda_kernels import FOLDER

COMPILER = shutil.which("c++") or shutil.which("g++")


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake libraries, all in one."""
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    path = tmp_path_factory.mktemp("fake") / "libfake_cuda.so"
    here = Path(__file__).parent
    sources = sorted(here.glob("fake_*.cc"))
    folders = [f"-I{here}", f"-I{FOLDER}"]
    command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", *folders, *map(str, sources), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"threads={n}")
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Tasks of the CPU kernels' launches in a thread of its own, as far as the process may have so many."""
    native.load()
    most = tvm_ffi.get_global_func("memc.cpu.threads")()
    if request.param > most:
        pytest.skip(f"{most} threads")
    use = tvm_ffi.get_global_func("memc.cpu.use_threads")
    use(request.param)
    yield request.param
    use(0)


@pytest.fixture
def kernels(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, over the fake libraries from their first call on."""
    native.load()
    tvm_ffi.get_global_func("memc.cuda.set_libraries")(*[str(fake)] * 3)
    monkeypatch.delenv("FAKE_CUDA_FAILS", raising=False)


@pytest.fixture
def driver(kernels: None, fake: Path) -> Driver:
    """The fake driver, whose book is empty."""
    found = Driver(fake)
    found.lines()
    return found


@pytest.fixture
def slab(driver: Driver) -> Iterator[Any]:
    """Of two lanes and three slots."""
    yield call("open", 0, BYTES, 2, 3)
