# SPDX-License-Identifier: Apache-2.0
"""What scripts are kept from, and what they start and leave behind: over a package `torch` that is none, so without PyTorch."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memc.estimation import estimate
from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Process, Script, process, run_in, run_script
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

from .conftest import _NoLibraries
from .made_scripts import GOOD, MIB, run, script

CONFIG = {"limit": 2**40, "tracker": "", "moments": []} | {
    name: name for name in ("rows", "names", "result", "progress", "files")
}
"""What a process is told besides."""


COMPILES = {
    "torch.compile(lambda x: x)(1)": 2,
    "model = torch.compile(torch.nn.Module())\nmodel.parameters()": 2,
    "model = torch.compile(torch.nn.Module(), mode='max-autotune')": 2,
    "torch.nn.Module().compile()": 2,
    "@torch.compile(fullgraph=True)\ndef used(x): return x\nused(1)": 4,
}


@pytest.mark.parametrize("text", COMPILES)
def test_compiled_models_are_not_supported(fake_torch: Path, text: str) -> None:
    where = f"^train.py: line {COMPILES[text]}: torch.compile is not supported on the phantom device; .*TORCHDYNAMO_DISABLE=1"
    with pytest.raises(UnsupportedError, match=where):
        run("import torch\n" + text, steps=1)


def test_what_nobody_compiles_is_no_matter(fake_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decorated functions of libraries, and what is switched off, of which the report tells."""
    unused = "import torch\n@torch.compile\ndef one(x): return x\n@torch.compile(dynamic=True)\ndef two(x): return x\n"
    unused += "torch.compile(torch.nn.Module(), disable=True).parameters()\n"
    found = run_script(Script(script(unused + GOOD), steps=1), gpu_named("h200"))
    assert found.events.nbytes.tolist() == [MIB] and found.assumed == ()
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    model = "import torch\nmodel = torch.nn.Module()\nassert torch.compile(model) is model\nmodel.compile()\n"
    found = run_script(Script(script(model + GOOD), steps=1), gpu_named("h200"))
    assert found.assumed == ("torch.compile is switched off by the environment: the figures are of the model as it is",)


def test_a_script_that_hangs_is_given_up(
    fake_torch: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where it is, once after a while and once at last."""
    monkeypatch.setattr(process, "TOLD", (1.0, 100.0))
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")
    text = "import time, torch\ntorch.start()\ntorch.step()\nwhile True:\n    time.sleep(0.01)"
    with pytest.raises(
        InvalidError,
        match=r"^train.py: line [45]: expected 3 steps of an optimizer within 4 s, got 1 steps; .*--timeout$",
    ):
        run(text, seconds=4.0)
    (line,) = dict.fromkeys(
        each.getMessage() for each in caplog.records
    )  # A handler of another test may add them twice.
    assert re.fullmatch(
        r"train.py(: line [45])?: \d s without its last step, [01] steps of an optimizer taken; given up after 4 s \(--timeout\)",
        line,
    )


def test_a_killed_estimate_leaves_no_process(fake_torch: Path) -> None:
    """Its script's process ends with it, and those that the script has started."""
    text = "import os, time\nname = 'child' if os.fork() == 0 else 'parent'\nopen(name, 'w').write(f'{os.getpid()} ')\ntime.sleep(100)"
    with Process(None, gpu_named("h200")) as process:
        server = process._start()
        assert server.stdin is not None
        Path("config").write_text(json.dumps(Script(script(text)).config | CONFIG))
        server.stdin.write(b"config\n")
        server.stdin.flush()
        paths = [Path("child"), Path("parent")]
        wait(lambda: all(path.is_file() and path.read_text() for path in paths))
        processes = [Path("/proc", path.read_text().strip(), "stat") for path in paths]
        assert all(path.exists() for path in processes)
        server.stdin.close()  # As it is once the process that made it is gone.
        server.wait(30)
        process._server = None
        wait(lambda: not any(path.exists() and path.read_text().split(") ")[1][0] != "Z" for path in processes))


def wait(until: Callable[[], bool]) -> None:
    """At most half a minute."""
    for _ in range(300):
        if until():
            return
        time.sleep(0.1)
    raise AssertionError


def test_only_the_last_run_is_quoted(fake_torch: Path) -> None:
    with Process(None, gpu_named("h200")) as process:
        with pytest.raises(InvalidError, match="first words"):
            run_in(process, Script(script("import os; print('first words', flush=True); os._exit(9)")))
        with pytest.raises(InvalidError, match="ended with code 8 before it took enough steps$"):
            run_in(process, Script(script("import os; os._exit(8)")))


def test_other_programs_run_without_the_device(fake_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other Pythons with it, as a script's own processes are."""
    monkeypatch.setattr(_NoLibraries, "preload", "libm.so.6")
    text = """
import multiprocessing, os, subprocess, sys, torch
def preload(queue): queue.put(os.environ.get("LD_PRELOAD"))
if __name__ == "__main__":
    say = "import os; print(os.environ.get('LD_PRELOAD'))"
    assert subprocess.check_output(["sh", "-c", "echo $LD_PRELOAD"]) == b"\\n"
    assert subprocess.check_output([sys.executable, "-c", say]) == b"libm.so.6\\n"
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    spawn.Process(target=preload, args=(queue,)).start()
    assert queue.get() == "libm.so.6" and "LD_PRELOAD" not in os.environ
    assert os.environ["MEMC_PHANTOM_OWNER"] == str(os.getpid())
"""
    assert (
        len(
            run_script(
                Script(script(text.replace("\\\\n", "\\n") + GOOD.replace("\n", "\n    ")), steps=1), gpu_named("h200")
            ).events
        )
        == 1
    )


def test_processes_for_ranks(fake_torch: Path) -> None:
    """The script's process is one of them; a job of several has to be said."""
    spawns = "import torch, torch.multiprocessing as mp\ndef work(rank, least):\n    torch.start()\n"
    spawns += (
        "    torch.allocate(1 << 40, least + rank)\n    torch.step()\nmp.spawn(work, (100,), nprocs=RANKS).join()\n"
    )
    for ranks, options, nbytes in (
        (1, {}, 100),
        (4, {"world_size": 4, "rank": 3}, 103),
        (4, {"world_size": 8, "rank": 6}, 102),
    ):
        path = script(spawns.replace("RANKS", str(ranks)))
        assert run_script(Script(path, steps=1, **options), gpu_named("h200")).events.nbytes.tolist() == [nbytes]  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match="^train.py: line 6: the script is a distributed job of 2 processes; say --world-size 2 "
    ):
        run(spawns.replace("RANKS", "2"), steps=1)


FILES = """
import os, pathlib, shutil, torch
assert torch.load("old.pt") == 1
torch.save(2, "old.pt")
assert torch.load("old.pt") == 2
torch.save(3, "new.pt")
torch.save(4, pathlib.Path("new.tmp"))
os.replace("new.tmp", "old2.pt")
assert torch.load("old2.pt") == 4 and torch.load("new.pt") == 3 and os.path.exists("new.pt")
with open("log.txt", "a") as file: file.write("more")
assert open("log.txt").read() == "before more"
pathlib.Path("config.json").write_text("{}")
assert pathlib.Path("config.json").read_text() == "{}"
os.remove("trash.txt")
shutil.rmtree("folder")
os.makedirs("folder")
os.remove("latest")
os.symlink("old.pt", "latest")
os.rename("other", "other2")
os.mkdir("other")
try: os.close(os.open("old2.pt", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
except FileExistsError: pass
else: raise AssertionError
assert torch.load(f="old2.pt") == 4
torch.save(obj=5, f="old2.pt")
os.close(os.open("config.json", os.O_WRONLY | os.O_TRUNC))
assert open("config.json").read() == ""
os.makedirs("out/deep")
with open("out/deep/log", "w") as file: file.write("x")
with open("out/deep/log", "w") as file: file.write("y")
os.rename("out/deep", "out/deeper")
os.remove("out/deeper/log")
open("out/other", "x").close()
shutil.rmtree("out/deeper")
assert os.listdir("out") == ["other"]
"""


def test_files_that_were_there_stay_as_they_are(
    fake_torch: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script finds what it wrote; a model that it saves is not left behind."""
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")
    before = {
        "old.pt": "1",
        "old2.pt": "1",
        "log.txt": "before ",
        "config.json": "[]",
        "trash.txt": "t",
        "folder/inside": "i",
        "other/inside": "o",
    }
    Path("folder").mkdir()
    Path("other").mkdir()
    for name, text in before.items():
        Path(name).write_text(text)
    Path("latest").symlink_to("trash.txt")
    path = script(FILES + GOOD)
    kept = set(before) | {"out/other", "train.py", "latest"}
    found = estimate(path, steps=1, gpu="h200", alternatives=False)
    assert found.requested_bytes == MIB
    assert {name: Path(name).read_text() for name in before} == before
    here = {str(each) for each in Path().rglob("*") if each.is_file() and each.parts[0] != "site"}
    assert here == kept and Path("latest").readlink() == Path("trash.txt")
    lines = list(dict.fromkeys(each.getMessage() for each in caplog.records))
    assert lines == [
        "train.py: kept as they were, though the script writes to them or removes them: config.json, folder, latest, log.txt, old.pt and 3 more",
        "train.py: written by the script: out/other",
    ]
