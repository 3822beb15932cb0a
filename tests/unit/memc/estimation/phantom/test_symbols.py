# SPDX-License-Identifier: Apache-2.0
"""Symbols of libraries, what the phantom device does with each, and what it says of a GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from memc.estimation.gpus import GPUS
from memc.estimation.phantom.build import libraries, source_folder
from memc.estimation.phantom.description import description, properties
from memc.estimation.phantom.elf import dynamic_symbols
from memc.estimation.phantom.installation import Installation, find_installation
from memc.estimation.phantom.symbols import LOOKED_UP_FOR_NOTHING, Stubs, stub_source, stubs
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.native import library_path

MIB = 2**20


def test_dynamic_symbols_are_those_that_nm_lists() -> None:
    found = dynamic_symbols(library_path())
    for names, option in ((found.undefined, "--undefined-only"), (found.defined, "--defined-only")):
        listed = subprocess.run(["nm", "-D", option, library_path()], capture_output=True, text=True, check=True).stdout
        assert names == {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    assert any("memc_simulate_allocator" in name for name in found.defined) and "dlopen" in found.undefined


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library" * 20)
    with pytest.raises(InvalidError, match="text: expected a 64-bit ELF library, got another file"):
        dynamic_symbols(tmp_path / "text")
    (tmp_path / "cut").write_bytes(library_path().read_bytes()[:4000])
    with pytest.raises(InvalidError, match="cut: expected an ELF library's tables, got damaged data"):
        dynamic_symbols(tmp_path / "cut")


def test_each_function_gets_its_stub() -> None:
    needed = [
        "cudaMalloc",
        "cudaEventQuery",
        "cublasSgemm_v2",
        "cudaGraphLaunch",
        "cudnnSetTensorNdDescriptor",
        "malloc",
        "ncclAllReduce",
    ]
    found = stubs(needed, ["cudaArrayGetInfo", "cublasZtrsv_v2"], ["cudaMalloc"], "PyTorch")
    assert {"cudaEventQuery", "cublasSgemm_v2", "ncclAllReduce", "cublasZtrsv_v2"} == {*found.nothing} - {
        *LOOKED_UP_FOR_NOTHING
    }
    assert {"cudaGraphLaunch", "cudaArrayGetInfo"} <= set(found.refused)
    everything = {*found.nothing, *found.refused}
    assert not everything & {"cudaMalloc", "malloc", "cudnnSetTensorNdDescriptor"}


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(UnsupportedError) as raised:
        stubs(["cudaNewThing", "cudaMalloc"], [], ["cudaMalloc"], "PyTorch 9")
    assert str(raised.value).startswith(
        "PyTorch 9: expected functions of CUDA that the phantom device knows, got cudaNewThing; use PyTorch"
    )


def test_generated_stubs_compile_and_do_as_they_say(tmp_path: Path) -> None:
    source = tmp_path / "stubs.cc"
    source.write_text(stub_source(Stubs(("cudaNothing",), ("cudaRefused",))))
    main = tmp_path / "main.cc"
    main.write_text(
        '#include <cstdio>\n#include <cstdlib>\n#include "device.h"\n'
        "namespace phantom { void Refuse(const char* what, const char*) { std::puts(what); std::exit(3); } }\n"
        'extern "C" int cudaNothing(); extern "C" int cudaRefused();\nint main() { return cudaNothing() + cudaRefused(); }\n'
    )
    program = tmp_path / "program"
    command = ["c++", "-std=c++17", f"-I{source_folder()}", str(source), str(main), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "cudaRefused\n")


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_is_described(name: str) -> None:
    known = properties(GPUS[name])
    assert known["totalGlobalMem"] == GPUS[name].total
    lines = dict(line.split(" ", 1) for line in description(GPUS[name], 2).splitlines())
    assert lines["count"] == "2" and int(lines["multiProcessorCount"]) == known["multiProcessorCount"]
    two_handles = 2 * (int(lines["outsideBlasHandle"]) + int(lines["outsideDnnHandle"]))
    assert (
        int(lines["outsideContext"]) + two_handles
        == GPUS[name].outside
        == (1252 * MIB if name == "h100" else 804_061_184)
    )
    cudnn = json.loads(lines["cudnn"])
    assert cudnn["deviceVer"] == 100 * known["major"] + 10 * known["minor"] and len(cudnn) == 23
    assert cudnn["isTccDriver"] == 0 and cudnn["isTccDriver"] is not False  # cuDNN takes no booleans.


def test_interpreters_without_pytorch_with_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="expected a Python interpreter, got /none, which cannot be run"):
        find_installation("/none")
    with pytest.raises(UsageError, match="which does not answer as one"):
        find_installation(shutil.which("true"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith('_editable')]\n"
    )
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('not to be imported')")
    for text, got in (
        ("__version__ = '2.11.0+cpu'\ncuda = None\n", r"got PyTorch 2.11.0\+cpu without CUDA"),
        ("__version__ = '2.9.0'\ncuda = '12.8'\n", "got PyTorch 2.9.0 for CUDA 12.8"),
        ("__version__ = '2.11.0'\ncuda = '13.0'\n", "expected CUDA's libraries as packages beside PyTorch"),
    ):
        (package / "version.py").write_text(text)
        with pytest.raises(UnsupportedError, match=got + ".*MEMC_PHANTOM_PYTHON"):
            find_installation(None)


def test_a_compiler_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memc.estimation.phantom import build

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build._compiler.cache_clear()
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    installed = Installation("python", tmp_path, "2.11.0", tmp_path)
    with pytest.raises(UnsupportedError, match="expected a C\\+\\+ compiler, with which it is built once, got none"):
        libraries(installed)
    build._compiler.cache_clear()
    folder = tmp_path / "memc" / f"phantom-2.11.0-{build._fingerprint(installed)}"  # What is built needs none.
    folder.mkdir()
    (folder / build.TRACKER).touch()
    assert libraries(installed).folder == folder
