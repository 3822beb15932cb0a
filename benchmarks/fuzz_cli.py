# SPDX-License-Identifier: Apache-2.0
"""Random command lines of every verb: prints the seed of each that does not end in a sensible way.

    python benchmarks/fuzz_cli.py --first 0 --count 2000 --save /tmp/cli

A case draws a verb, options of it with sensible and strange values, and files: models, artifacts, texts, and what is none of
them (folders, devices, broken, huge or missing files). The exit code is one of 0 to 4, nothing says "internal error", and a
failure is one line on standard error. Every fiftieth case runs in a process of its own, with its standard streams as they
are, closed, full, or in ASCII. Exit code 1 if anything failed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import typing
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import typer
from cli_arguments import ENVIRONMENTS, FILES, HUGE, NUMBERS, OUTPUTS, SENSIBLE, SIZES, SLOW, STREAMS, TIMES, WORDS
from fuzzing import Case, fuzz, run_memc, wrong_with
from onnx import TensorProto, helper, numpy_helper

from memc.cli.app import VERBS, app

TEXT = """\
func @main(%x: f32[16] {role = input}) -> (f32[1] {name = "y"}) {
  %a = exp(%x) : f32[16]
  %b = neg(%a) : f32[16]
  %c = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1]
  return %c
}
"""


@lru_cache(maxsize=1)
def files() -> Path:
    """A folder with what commands are given; each case gets a copy."""
    folder = Path(tempfile.mkdtemp(prefix="memc-fuzz-"))
    weight = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 10
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "tiny.onnx")
    noise = random.Random(0).randbytes(500)
    tensor = {"bytes": 16, "storage": 0, "storage_bytes": 16}
    graphs = {"inputs": [], "outputs": [0], "tensors": [tensor], "ops": [{"name": "a", "inputs": [], "outputs": [0]}]}
    links = "".join(f"  %v{n + 1} = relu(%v{n}) plan {{in_place = 0}} : f32[4] alias %v0[0]\n" for n in range(3000))
    chain = (
        f"func @main(%x: f32[4] {{role = input}}) -> f32[4] {{\n  %v0 = neg(%x) : f32[4]\n{links}  return %v3000\n}}\n"
    )
    huge = TEXT.replace("f32[16]", "f32[1099511627776]")
    contents = {
        "small.memir": TEXT.encode(),
        "graph.json": json.dumps(graphs).encode(),
        "problem.csv": b"id,lower,upper,size\na,0,3,4\nb,2,9,4\n",
        **dict.fromkeys(("empty", "empty.onnx", "empty.memir", "empty.json", "empty.csv"), b""),
        **dict.fromkeys(("noise", "noise.onnx", "noise.memir", "noise.json", "noise.csv"), noise),
        "utf16.memir": TEXT.encode("utf-16"),
        "utf16.csv": "id,lower,upper,size\na,0,3,4\n".encode("utf-16"),
        "bom.memir": b"\xef\xbb\xbf" + TEXT.encode(),
        "crlf.memir": TEXT.replace("\n", "\r\n").encode(),
        "nul.memir": TEXT.replace("exp", "e\x00xp").encode(),
        "long.memir": TEXT.replace("\n", " " * 100000).encode(),
        "deep.memir": TEXT.replace("[0]", "[" * 20000 + "]" * 20000).encode(),
        "deep.json": b"[" * 100000,
        "chain.memir": chain.encode(),
        "huge.memir": huge.encode(),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))
    np.savez(folder / "archive.npz", x=np.ones(3))
    for name in ("folder", "folder.memc", "folder.memir"):
        (folder / name).mkdir()
    (folder / "loop.memir").symlink_to("loop.memir")
    done = run_memc(["compile", str(folder / "tiny.onnx"), "--dim", "batch=2", "-o", str(folder / "tiny.memc"), "-q"])
    assert done.code == 0, done.err
    shutil.copytree(folder / "tiny.memc", folder / "broken.memc")
    (folder / "broken.memc" / "plan.json").write_bytes(noise)
    return folder


def draw(rng: random.Random) -> list[str]:
    """A command line."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verb = rng.choice(sorted(commands))
    if rng.random() < 0.02:
        verb = rng.choice((*WORDS, "compil", "--version", "--help"))
        return [verb]
    arguments = [verb]
    for param in commands[verb].params:
        if param.param_type_name == "argument":
            arguments += [] if rng.random() < 0.03 else [file_for(rng, verb)]
        elif param.name != "help":
            often = 0.6 if param.name in ("dim", "plan_only") and verb == "compile" else 0.08
            if rng.random() < often:
                arguments += option(rng, verb, param)
    if rng.random() < 0.3 and "tiny.onnx" in arguments:
        arguments += ["--dim", "batch=2"]
    if rng.random() < 0.02:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(WORDS))
    return arguments


def file_for(rng: random.Random, verb: str) -> str:
    """A file that the verb may want, or any."""
    fitting = {"run": ["tiny.memc"], "plan": ["problem.csv", "graph.json", "small.memir"], "opt": ["small.memir"]}
    return rng.choice(fitting.get(verb, ["tiny.onnx"]) if rng.random() < 0.4 else FILES)


@lru_cache(maxsize=1)
def numbers() -> frozenset[tuple[str, str]]:
    """The verbs and names of parameters that are numbers, by the verbs' own annotations: Typer's parameters say it in another
    way from version to version."""
    found = []
    for name, (place, _) in VERBS.items():
        module, _, function = place.partition(".")
        verb = getattr(importlib.import_module(f"memc.cli.{module}"), function)
        for parameter in inspect.signature(verb, eval_str=True).parameters.values():
            (annotation, *_) = typing.get_args(parameter.annotation) or (parameter.annotation,)
            if {int, float} & {annotation, *typing.get_args(annotation)}:
                found.append((name, parameter.name))
    return frozenset(found)


def option(rng: random.Random, verb: str, param: Any) -> list[str]:
    """An option with a value, sensible or not."""
    name = rng.choice((*param.opts, *param.secondary_opts))
    if param.is_flag or param.count:
        return [name]
    if param.name in SENSIBLE and rng.random() < 0.6:
        return [name, rng.choice(SENSIBLE[param.name])]
    if param.name in SLOW:
        return [name, rng.choice(SLOW[param.name])]
    if param.name in ("output", "json", "json_path", "trace", "save_profile"):
        return [name, rng.choice(OUTPUTS)]
    pools: list[Sequence[str]] = [NUMBERS, HUGE, SIZES, TIMES, WORDS, WORDS]
    if (verb, param.name) in numbers():
        pools = [NUMBERS, NUMBERS, HUGE]
    return [name, rng.choice(rng.choice(pools))]


def check(case: Case, processes: int = 50) -> None:
    rng = random.Random(case.seed)
    arguments = draw(rng)
    for path in files().iterdir():
        if path.is_dir():
            shutil.copytree(path, case.folder / path.name)
        else:
            (case.folder / path.name).symlink_to(path)
    (case.folder / "arguments.json").write_text(json.dumps(arguments))
    own = processes and case.seed % processes == 0
    before = Path.cwd()
    os.chdir(case.folder)
    try:
        if own:
            check_process(case, rng, arguments)
        elif arguments[-1:] != ["-"] and "-" not in arguments[1:2]:  # Standard input is that of the fuzzer.
            done = run_memc(arguments)
            wrong = wrong_with(done) if not done.err.startswith("Usage:") else None
            case.counts[f"exit {done.code}"] += 1
            if wrong:
                case.found.append(f"memc {' '.join(a[:60] for a in arguments)}: {wrong}")
    finally:
        os.chdir(before)


def check_process(case: Case, rng: random.Random, arguments: Sequence[str]) -> None:
    """The command in a process of its own, with standard streams that may be missing."""
    streams, environment = rng.choice(STREAMS), rng.choice(ENVIRONMENTS)
    done = subprocess.run(
        ["bash", "-c", f'"$@" {streams}; exit ${{PIPESTATUS[0]}}', "bash", sys.executable, "-m", "memc", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    error = done.stderr.decode("utf-8", "replace")
    case.counts["processes"] += 1
    if (
        done.returncode not in range(5)
        or "Traceback" in error
        or "internal error" in error
        or "Exception ignored" in error
    ):
        what = f"memc {' '.join(a[:60] for a in arguments)} {streams} {environment}"
        case.found.append(f"{what}: exit code {done.returncode}: {error[-300:]}")


if __name__ == "__main__":
    files()
    try:
        code = fuzz(check, __doc__, "command lines")
    finally:
        shutil.rmtree(files(), ignore_errors=True)
    sys.exit(code)
