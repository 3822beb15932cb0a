# SPDX-License-Identifier: Apache-2.0
"""Scripts that run, and scripts that cannot: over a package `torch` that is none, so without PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memc.cli import main
from memc.estimation import estimate
from memc.estimation.events import Kind
from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Process, Script, run_in, run_script
from memc.estimation.scripts import with_number
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

from .made_scripts import GOOD, MIB, run, script


def test_an_endless_loop_ends_after_the_steps_asked_for(fake_torch: Path) -> None:
    for steps in (1, 3):
        recording = run_script(Script(script(GOOD), steps=steps), gpu_named("h200"))
        assert recording.events.kinds.tolist() == [Kind.ALLOCATE] * steps
        assert recording.events.nbytes.tolist() == [MIB] * steps
        assert [origin.step for origin in recording.events.origins] == list(range(1, steps + 1))
        assert recording.outside == 1000 and not recording.places_known


def test_all_optimizers_take_the_steps_within_reason(fake_torch: Path) -> None:
    loop = "import torch\ntorch.start()\none, two = torch.Optimizer(), torch.Optimizer()\nfor at in range(10**6):\n"
    loop += "    torch.allocate((1 << 40) + at * 2**22, 5)\n    one.step()\n"
    recording = run_script(Script(script(loop + "    if at % 4 == 3: two.step()"), steps=2), gpu_named("h200"))
    assert len(recording.events) == 8
    recording = run_script(Script(script(loop), steps=2), gpu_named("h200"))  # The other never takes one.
    assert len(recording.events) == 40
    anew = loop.replace("one.step()", "torch.Optimizer().step()").replace(
        "one, two = torch.Optimizer(), torch.Optimizer()", ""
    )
    assert len(run_script(Script(script(anew), steps=2), gpu_named("h200")).events) == 40


def test_the_script_is_main_with_its_arguments_and_its_folder(fake_torch: Path) -> None:
    Path("beside.py").write_text("value = 7\n")
    text = "import sys, __main__, torch, beside\nassert __name__ == '__main__' and __main__.beside.value == 7\n"
    text += (
        "assert sys.argv[1:] == ['--lr', '3e-4'], sys.argv\ntorch.start(); torch.allocate(1 << 40, 5); torch.step()\n"
    )
    recording = run_script(Script(script(text), ["--lr", "3e-4"], 1), gpu_named("h200"))
    assert recording.events.nbytes.tolist() == [5]


def test_the_script_is_read_as_python_reads_it(fake_torch: Path) -> None:
    """In the encoding that it says, with its place where it may leave its folder."""
    rest = (
        "\nimport os, torch\nassert len(name) == 1 and os.path.isabs(__file__)\nos.chdir('/')\nassert os.path.exists(__file__)\n"
        + GOOD
    )
    for data in (
        "# coding: latin-1\nname = 'é'".encode("latin-1") + rest.encode(),
        b"\xef\xbb\xbfname = 'x'" + rest.replace("\n", "\r\n").encode(),
    ):
        Path("train.py").write_bytes(data)
        found = run_script(Script("train.py", steps=1, assign={"SIZE": 2}), gpu_named("h200"))
        assert found.events.nbytes.tolist() == [2 * MIB]
        assert with_number(Script("train.py"), "SIZE", 3).assign == {"SIZE": 3}
    with pytest.raises(InvalidError, match=r"^train.py: line 3: the script fails"):
        run("import os\nos.chdir('/')\nraise ValueError('x')")


def test_one_process_serves_several_sizes(fake_torch: Path) -> None:
    path = script(GOOD)
    with Process(None, gpu_named("h200")) as process:
        for size in (1, 2):
            recording = run_in(process, Script(path, steps=1, assign={"SIZE": size}))
            assert recording.events.nbytes.tolist() == [size * MIB]


def test_estimate_of_a_script(fake_torch: Path) -> None:
    found = estimate(script(GOOD), steps=2, gpu="h200", alternatives=False)
    assert found.requested_bytes == 2 * MIB and found.device_bytes == found.reserved_bytes + 1000
    assert found.peak_op == "aten::made_up (forward, step 2)" and found.fits


def test_the_gpu_that_a_script_sees(fake_torch: Path) -> None:
    path = script(GOOD)
    for gpu, notes in (
        ("h200", []),
        ("h100", []),
        (None, ["the script sees an h200, as no --gpu is named"]),
        (
            "rtx4090",
            [
                "engines of cuDNN as it chooses them by the data sheet of the rtx4090",
                "rtx4090: memory as in the data sheet, the rest as on an H200",
            ],
        ),
    ):
        found = estimate(path, steps=1, gpu=gpu, alternatives=False)
        assert [note for note in found.assumed if "recording" not in note] == notes


def test_settings_of_the_allocator(fake_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those asked for go before those of the environment, and the script's own before all."""
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    path = script(GOOD)
    assert run_script(Script(path, steps=1), gpu_named("h200")).alloc_conf == "max_split_size_mb:64"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:96")
    assert run_script(Script(path, steps=1), gpu_named("h200")).alloc_conf == "max_split_size_mb:96"
    asked = Script(path, steps=1, alloc_conf="max_split_size_mb:128")
    found = run_script(asked, gpu_named("h200"))
    assert (found.alloc_conf, found.assumed) == ("max_split_size_mb:128", ())
    script(
        "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:32'; assert 'PYTORCH_ALLOC_CONF' not in os.environ\n"
        + GOOD
    )
    found = run_script(asked, gpu_named("h200"))
    note = "the script itself sets PYTORCH_CUDA_ALLOC_CONF to max_split_size_mb:32, instead of --alloc-conf"
    assert (found.alloc_conf, found.assumed) == ("max_split_size_mb:32", (note,))


def test_the_largest_number_that_fits_is_found(fake_torch: Path) -> None:
    text = GOOD.replace(
        "torch.allocate", "if SIZE * 2**20 > torch.tracker.limit: raise torch.OutOfMemoryError()\n    torch.allocate"
    )
    found = estimate(script(text), steps=1, memory=37 * MIB, find_batch=("SIZE", 1, 100), alternatives=False)
    assert found.largest_batch == 37


FAILURES = {
    "x = 1\nraise ValueError('broken')": r"train.py: line 2: the script fails \(ValueError: broken\)",
    "import torch\nx =": r"train.py: line 2: the script fails \(SyntaxError: ",
    "open('data/train.csv')": r"train.py: line 1: the script needs a file \(FileNotFoundError: .*train.csv.*made-up data",
    "import urllib.request\nurllib.request.urlopen('http://no.such.invalid/x')": r"line 2: the script needs the network \(URLError",
    "raise OSError('We couldn\\'t connect to the hub')": r"the script needs the network",
    "import no_such_package": r"the script needs a package \(ModuleNotFoundError: .*install it in",
    "import sys; sys.exit('usage: train.py --data DIR')": r"line 1: the script exits with: usage: train.py --data DIR$",
    "import os; int(os.environ['LOCAL_RANK'])": r"line 1: the script is one process of a distributed job .*say --world-size N",
    "import sys; sys.exit(3)": r"line 1: the script exits with code 3; -v shows",
    "import torch; torch.start(); torch.allocate(1 << 40, 5)": r"expected at least one step of an optimizer.*--steps 0",
    "import torch; torch.step()": r"expected tensors on the device `cuda`, got none",
    "import os; os.kill(os.getpid(), 11)": r"ended with signal 11",
    "import os; print('last words', flush=True); os._exit(9)": r"ended with code 9 before it took enough steps: last words",
    "import torch; torch.start(); raise torch.OutOfMemoryError('no room')": r"the script runs out of memory \(OutOfMemoryError: no room",
}


@pytest.mark.parametrize("text", FAILURES)
def test_a_script_that_fails_is_one_line_that_says_what_to_do(fake_torch: Path, text: str) -> None:
    with pytest.raises((InvalidError, UsageError)) as raised:
        run(text, steps=1)
    assert re.search(FAILURES[text], str(raised.value)), str(raised.value)
    assert "\n" not in str(raised.value)


def test_arguments_of_the_script(fake_torch: Path) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, required=True)\nparser.parse_args()\n"
    message = "^train.py: line 4: arguments of the script: the following arguments are required: --lr; .*: memc estimate train.py -- ...$"
    with pytest.raises(UsageError, match=message):
        run(text + GOOD)
    with pytest.raises(UsageError, match="arguments of the script: argument --lr: invalid float value: 'x';"):
        run_script(Script(script(text + GOOD), ["--lr", "x"]), gpu_named("h200"))
    assert len(run_script(Script(script(text + GOOD), ["--lr", "1"], 1), gpu_named("h200")).events) == 1


def test_what_the_device_refuses_is_told(fake_torch: Path) -> None:
    text = "import os\nopen(os.environ['MEMC_PHANTOM_ERROR'], 'w').write('cudaGraphLaunch: the script needs it')\nos._exit(3)"
    with pytest.raises(UnsupportedError, match="^train.py: cudaGraphLaunch: the script needs it$"):
        run(text)


def test_a_script_that_ends_early_counts_with_what_it_did(fake_torch: Path) -> None:
    recording = run_script(
        Script(script("import torch\ntorch.start()\ntorch.allocate(1 << 40, 5)\ntorch.step()")), gpu_named("h200")
    )
    assert recording.events.nbytes.tolist() == [5]
    recording = run_script(
        Script(script("import torch\ntorch.start()\ntorch.allocate(1 << 40, 6)"), steps=0), gpu_named("h200")
    )
    assert recording.events.nbytes.tolist() == [6]


def test_wrong_options(fake_torch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(GOOD)
    with pytest.raises(InvalidError, match="none.py: cannot read"):
        Script("none.py")
    with pytest.raises(UsageError, match="steps: expected a whole number from 0 to 1000000, got -1"):
        Script(path, steps=-1)
    with pytest.raises(UsageError, match="expected with an .onnx model alone"):
        estimate(path, train=True)
    with pytest.raises(UsageError, match="^steps, timeout: expected with a .py script alone"):
        estimate("model.onnx", steps=3, timeout=3.0)
    with pytest.raises(
        UsageError,
        match="^dims: expected with an .onnx model alone; numbers of a script are arguments of its own, after --",
    ):
        estimate(path, dims={"batch": 3})
    with pytest.raises(UsageError, match="timeout: expected seconds above 0, got 0"):
        estimate(path, timeout=0)
    with pytest.raises(UsageError, match="rank: expected a whole number from 0 to 1, of a world_size of 2, got 2"):
        estimate(path, world_size=2, rank=2)
    with pytest.raises(
        InvalidError, match="empty.py: expected a script that trains or runs a model, got an empty file"
    ):
        estimate(script(" \n", "empty.py"))
    with pytest.raises(
        UnsupportedError, match="site: expected a file, or an artifact's folder, got a folder without a plan.json"
    ):
        estimate("site")
    with pytest.raises(UsageError, match="find_batch: expected memory or gpu with it"):
        estimate(path, find_batch=("SIZE", 1, 2))
    assert main(["estimate", path, "--gpu", "h300"]) == 2
    assert "expected a GPU that memc knows, got 'h300'" in capsys.readouterr().err
    assert main(["estimate", path, "--steps", "1", "--gpu", "h200", "-q", "--", "--lr", "1"]) == 0
    assert main(["estimate", path, "--lr", "1"]) == 2
    assert (
        "no option --lr; those of the script come after two dashes: memc estimate train.py -- --lr ..."
        in capsys.readouterr().err
    )
    assert main(["estimate", path, "--step", "1"]) == 2 and "did you mean --steps?" in capsys.readouterr().err
    assert main(["estimate", path, "data", "--", "--lr"]) == 2
    assert (
        "expected one FILE, got data besides; arguments of the script come after two dashes" in capsys.readouterr().err
    )
