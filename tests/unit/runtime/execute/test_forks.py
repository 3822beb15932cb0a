# SPDX-License-Identifier: Apache-2.0
"""Executables after a fork, in other processes, beside each other, and without their folders."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.errors import InvalidError, UsageError
from memc.runtime.execute import forks
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.load import load
from memc.runtime.execute.training import TrainingStep

TEXT = """\
func @main(%x: f32[512,512] {role = input}, %w: f32[512,512] {role = weight}) -> (f32[512,512] {name = "y"}) {
  %e = exp(%x) : f32[512,512]
  %m = matmul(%e, %w) {transpose_a = false, transpose_b = false} : f32[512,512]
  %y = tanh(%m) : f32[512,512]
  return %y
}
"""
"""Loops and a product that run on several threads."""

X = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
WEIGHTS = [np.random.default_rng(seed).normal(size=(512, 512)).astype(np.float32) for seed in (1, 2)]


def artifact(path: Path | None, number: int = 0, **options: Any) -> memc.Compilation:
    module = memc.parse(TEXT)
    module.weights["w"] = WEIGHTS[number]
    return memc.compile(module, path, **options)


def expected(number: int = 0) -> np.ndarray:
    wide = np.exp(X.astype(np.float64)) @ WEIGHTS[number].astype(np.float64)
    return np.tanh(wide).astype(np.float32)


def holds(executable: Executable, number: int = 0) -> bool:
    return bool(np.allclose(executable(X)["y"], expected(number), atol=1e-3))


SCRIPT = """\
import os, sys, threading, time
os.environ["TVM_NUM_THREADS"] = "2"
sys.path.insert(0, {here!r})
from test_forks import X, holds, load
executable = load({path!r})
assert holds(executable)
for generation in range(2):
    time.sleep({wait})
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    {before}
    assert holds(executable) and holds(executable.session()) and holds(load({path!r}))
print("done", flush=True)
"""
"""The grandchild runs it, too, and ends as processes do. At the fork, the kernels' threads wait for work, or sleep."""


@pytest.mark.parametrize("wait", [0, 0.2])
@pytest.mark.parametrize("kernels", ["auto", "generated"])
@pytest.mark.parametrize(
    "before", ["pass", "t = threading.Thread(target=holds, args=(executable,)); t.start(); t.join()"]
)
def test_a_forked_child(tmp_path: Path, kernels: str, before: str, wait: float) -> None:
    path = str(artifact(tmp_path / "m.memc", kernels=kernels).path)
    script = SCRIPT.format(here=str(Path(__file__).parent), path=path, before=before, wait=wait)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes(tmp_path: Path, method: str) -> None:
    executable = artifact(tmp_path / "m.memc").load()
    assert holds(executable)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(holds, [executable] * 4).get(timeout=120) == [True] * 4


def in_child(body: Callable[[], bool]) -> bool:
    """Whether `body` gives true in a forked child, in ten seconds."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if body() else 1
        finally:
            os._exit(status)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def refuses(executable: Executable, word: str) -> bool:
    try:
        executable(X)
    except UsageError as error:
        return word in str(error) and "\n" not in str(error)
    return False


def test_a_fork_while_another_thread_runs() -> None:
    """The lock that it holds has nobody to release it in the child."""
    executable = artifact(None).load()
    step = artifact(None, train=memc.BuildGradient(loss="mse")).load()
    with executable.running, step.running:
        assert in_child(lambda: holds(executable))
        assert in_child(lambda: refuses(step, "in the middle of a step"))
    assert holds(executable)


def test_what_cannot_run_in_a_child_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = artifact(None).load()
    alone = artifact(None).load()
    object.__setattr__(alone.loaded, "has_native", False)  # As where TVM's runtime is all there is.
    object.__setattr__(executable.manifest, "kind", "cuda")
    monkeypatch.setattr(forks._Process, "has_cuda", True)

    def refused_load() -> bool:
        with pytest.raises(UsageError, match="forked from one that used CUDA"):
            forks.require_device(executable.manifest)
        return refuses(executable, "CUDA cannot go on here")

    assert in_child(refused_load)
    assert in_child(lambda: refuses(alone, "spawn or forkserver"))


@pytest.mark.parametrize("named", [True, False])
def test_pickled(tmp_path: Path, named: bool) -> None:
    executable = artifact(tmp_path / "m.memc" if named else None).load()
    data = pickle.dumps(executable)
    assert (len(data) < 1000) == named
    first = executable(X)["y"]
    for other in (pickle.loads(data), copy.copy(executable), copy.deepcopy([executable])[0]):
        assert other is not executable and other.storages["arena"] is not executable.storages["arena"]
        np.testing.assert_array_equal(other(X)["y"], first)


def test_pickled_training_steps(tmp_path: Path) -> None:
    step = artifact(None, train=memc.BuildGradient(loss="mse", optimizer="adam")).load()
    assert isinstance(step, TrainingStep)
    labels = np.zeros_like(X)
    step(X, labels)
    step.learning_rate = 0.125
    for other in (pickle.loads(pickle.dumps(step)), copy.copy(step), copy.deepcopy(step)):
        assert other.learning_rate == 0.125
        before = step.state()
        assert all(np.array_equal(array, before[name]) for name, array in other.state().items())
        other(X, labels)
        assert all(np.array_equal(array, before[name]) for name, array in step.state().items())


def test_pickled_without_its_folder(tmp_path: Path) -> None:
    executable = artifact(tmp_path / "m.memc").load()
    data = pickle.dumps(executable)
    artifact(tmp_path / "m.memc", 1, opt_level=0)
    for call in (lambda: pickle.dumps(executable), lambda: pickle.loads(data)):
        with pytest.raises(InvalidError, match="holds another artifact"):
            call()
    shutil.rmtree(tmp_path / "m.memc")
    for call in (lambda: pickle.dumps(executable), lambda: pickle.loads(data)):
        with pytest.raises(InvalidError, match="cannot be read"):
            call()
    assert holds(executable) and holds(executable.session())  # What is loaded needs the folder no more.


def test_side_by_side(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Artifacts with functions of the same names, in any order, in threads, and when one of them is gone."""
    paths = [artifact(tmp_path / f"{n}.memc", n % 2, kernels="generated").path for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda path: load(str(path)), paths))
        assert all(pool.map(holds, loaded, [n % 2 for n in range(4)]))
    for number in (3, 0, 1, 2):
        assert holds(loaded[number], number % 2)
    again = load(str(paths[0]))
    loaded[0] = loaded[2]
    assert holds(again, 0) and holds(loaded[1], 1) and holds(loaded[0], 0)
    captured = capfd.readouterr()
    assert captured.err == "" and captured.out == ""


@pytest.mark.parametrize("target", [{"target": "llvm"}, {"target": "cuda", "arch": "sm_90"}])
def test_no_part_of_the_code_registers_itself(tmp_path: Path, target: dict[str, str]) -> None:
    """In the table of the process where the second artifact's would replace the first one's."""
    if target["target"] == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    path = artifact(tmp_path / "m.memc", kernels="generated", **target).path
    assert path is not None
    assert b"RegisterSystemLibSymbol" not in (path / "model.so").read_bytes()


def test_one_executable_in_threads() -> None:
    executable = artifact(None).load()
    data = [X + np.float32(n) / 64 for n in range(4)]
    alone = [executable(x)["y"] for x in data]
    together = threading.Barrier(len(data))

    def work(number: int) -> bool:
        together.wait(timeout=60)
        return all(np.array_equal(executable(data[number])["y"], alone[number]) for _ in range(20))

    with ThreadPoolExecutor(len(data)) as pool:
        assert all(pool.map(work, range(len(data))))


INTERRUPTED = """\
import os, signal, sys, threading, time
import numpy as np
sys.path.insert(0, {here!r})
from test_forks import X, holds, load
executable = load({path!r})
assert holds(executable)
for n in range(20):
    try:
        threading.Timer(0.05 + 0.002 * n, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            executable(X)
    except KeyboardInterrupt:
        assert not executable.running.locked()
        assert holds(executable) and holds(executable.session())
print("done")
"""


def test_an_interrupt_breaks_nothing(tmp_path: Path) -> None:
    script = INTERRUPTED.format(here=str(Path(__file__).parent), path=str(artifact(tmp_path / "m.memc").path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
