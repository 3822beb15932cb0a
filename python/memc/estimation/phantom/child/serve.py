# SPDX-License-Identifier: Apache-2.0
"""Runs scripts of PyTorch's on the phantom device, each in a process forked from this one, which has PyTorch loaded already. A program
of its own: it runs in the Python that has PyTorch, where memc need not be.

    python serve.py        each line on stdin: the path of a CONFIG; each on stdout: how its process ended, as a number

CONFIG, in JSON: `script`, `arguments`, `steps` (of an optimizer, after which the process ends; 0 for the script's end), `assign` (values
that names at the script's top level get instead of their own), `environment`, `world_size` and `rank` of a distributed job, `skipped`
(first steps that a gradient scaler skips), `largest` (whether engines of cuDNN with larger workspaces are faster), `all` (what `torch.all`
reads as), `nonzero` (share of elements that it finds), `limit` (bytes of the device), `tracker` (a library), `files` (a folder), and the paths `rows`, `names`, `result` that are written at the end, and
`progress` at the `moments` (of the monotonic clock).
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import json
import os
import select
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

if not __package__:  # A program: its parts are in its folder, under a name that no script has.
    __package__ = "memc_phantom_child"
    sys.modules[__package__] = types.ModuleType(__package__)
    sys.modules[__package__].__path__ = [str(Path(__file__).parent)]

from .kept_files import KeptFiles
from .ranks import join
from .replaced import fill_nothing_large, keep_to_python, read_all, refuse_compile, remember_usage, skip_first_steps
from .watch import Watch


def _assigned(source: bytes, path: str, values: dict[str, int]) -> ast.Module:
    """The script, with other values in its assignments of some names at its top level."""
    tree = ast.parse(source, path)
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        else:
            continue
        for name in names:
            if name in values:
                statement.value = ast.copy_location(ast.Constant(values[name]), statement)
    return ast.fix_missing_locations(tree)


def _line(error: BaseException, script: str) -> int:
    """Of the script, at which it went wrong; 0 for none."""
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == script:
            line = frame.lineno or 0
    if isinstance(error, SyntaxError) and error.filename == script:
        line = error.lineno or 0
    return line


def _error(error: BaseException, script: str) -> dict[str, Any]:
    """What went wrong, and on which line of the script."""
    names = [f"{each.__module__}.{each.__name__}" for each in type(error).__mro__]
    message = str(error).strip().splitlines()
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "bases": names,
        "message": message[0] if message else "",
        "line": _line(error, script),
    }


def run(torch: Any, config: dict[str, Any], preload: str) -> NoReturn:
    """Run the script as `__main__`, in a process that ends with it."""
    typed = config["script"]
    script = config["script"] = os.path.abspath(typed)
    if "PYTORCH_CUDA_ALLOC_CONF" in config["environment"]:
        os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ.update(config["environment"] | {"MEMC_PHANTOM_OWNER": str(os.getpid())})
    ctypes.CDLL(None).memc_phantom_set_limit(ctypes.c_size_t(config["limit"]))
    ctypes.CDLL(None).memc_phantom_prefer_largest(ctypes.c_int(config["largest"]))
    watch = Watch(torch, config)
    fill_nothing_large(torch)
    read_all(torch, watch, config["all"])
    refuse_compile(torch, watch)
    skip_first_steps(torch, watch, config["skipped"])
    usage = remember_usage(watch)
    keep_to_python(preload)
    join(torch, watch, config["world_size"], config["rank"])
    watch.begin()
    watch.kept = KeptFiles(torch, Path(config["files"]))
    sys.argv = [typed, *config["arguments"]]
    sys.path[0] = str(Path(script).resolve().parent)
    program = types.ModuleType("__main__")
    program.__file__ = script
    sys.modules["__main__"] = program
    try:
        tree = _assigned(Path(script).read_bytes(), script, config["assign"])
        exec(compile(tree, script, "exec"), program.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            kind = "usage" if usage() and error.code == 2 else "exit"
            message = usage() if kind == "usage" else error.code
            message = message if isinstance(message, (int, str)) else str(message)
            watch.finish({"kind": kind, "message": message, "line": _line(error, script)})
    except BaseException as error:
        traceback.print_exc()
        watch.finish(_error(error, script))
    watch.finish(None)


def _load(torch: Any, result: Path) -> None:
    """Load packages that a script has loaded, for those after it. One that starts CUDA would spoil them: then it is left out."""
    try:
        names = json.loads(result.read_text())["imported"]
    except (OSError, ValueError, KeyError):
        return
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # Whatever a package raises where it is loaded in another order.
            continue
        if torch.cuda.is_initialized():
            return


def _wait(child: int) -> int:
    """How the process of the script ends. Where nobody waits for this one any more, all end at once."""
    try:
        handle = os.pidfd_open(child)
    except OSError:  # An old Linux, or one that forbids it.
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = handle in select.select([handle, sys.stdin], [], [])[0]
    os.close(handle)
    if not ended and os.getpgrp() == os.getpid():  # A session of its own.
        os.killpg(0, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What scripts print is no answer.
    preload = os.environ.get("LD_PRELOAD", "")
    torch = importlib.import_module("torch")
    while line := sys.stdin.readline():
        config = json.loads(Path(line.strip()).read_text())
        if torch.cuda.is_initialized():
            sys.exit("a package that the script loads starts CUDA; this process cannot run it twice")
        child = os.fork()
        if child == 0:
            answers.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            run(torch, config, preload)
        print(_wait(child), file=answers, flush=True)
        _load(torch, Path(config["result"]))


if __name__ == "__main__":
    main()
