# SPDX-License-Identifier: Apache-2.0
"""Functions of Python's and PyTorch's that do something else in the process of a script."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from .watch import Watch

SMALL = 65536
"""Bytes up to which the phantom device copies, so that what is larger need not be filled."""

FILLS = (
    *("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "xavier_uniform_", "xavier_normal_"),
    *("kaiming_uniform_", "kaiming_normal_"),
)
"""Functions of torch.nn.init that only fill a tensor."""

SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
"""Variables with which PyTorch leaves models that are to be compiled as they are."""


def fill_nothing_large(torch: Any) -> None:
    """Weights are not read, so filling large ones costs time only."""

    def quiet(fill: Any) -> Any:
        def filled(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if torch.is_tensor(tensor) and tensor.numel() * tensor.element_size() > SMALL:
                return tensor
            return fill(tensor, *arguments, **keywords)

        return filled

    for name in FILLS:
        setattr(torch.nn.init, name, quiet(getattr(torch.nn.init, name)))


def read_all(torch: Any, watch: Watch, value: bool) -> None:
    """The result of `torch.all` reads as true on the device, unless `value` is false, as other values that kernels write: a program asks
    it whether its data is as it should be, or whether all is done."""

    def read_as(compute: Any) -> Any:
        def computed(*arguments: Any, **keywords: Any) -> Any:
            result = compute(*arguments, **keywords)
            watch.alls = watch.alls or result.is_cuda
            if (
                value
                and result.is_cuda
                and result.is_contiguous()
                and result.element_size() == 1
                and 0 < result.numel() <= SMALL
            ):
                place = (result.data_ptr(), 0, result.numel())
                ctypes.memset(place[0], 1, place[2])
                weakref.finalize(
                    result, ctypes.memset, *place
                ).atexit = False  # What comes there later is no such result.
            return result

        return computed

    for owner in (torch, torch.Tensor):
        owner.all = read_as(owner.all)


def skip_first_steps(torch: Any, watch: Watch, count: int) -> None:
    """Of each optimizer, where a gradient scaler decides by data whether it takes one. One that is told of infinite gradients itself, such
    as a fused one, is called in any case."""
    scaler: Any = importlib.import_module("torch.amp.grad_scaler").GradScaler
    decide = scaler._maybe_opt_step
    left: Any = weakref.WeakKeyDictionary()

    def skip(self: Any, optimizer: Any, state: Any, *arguments: Any, **keywords: Any) -> Any:
        watch.scaled = True
        left[optimizer] = left.get(optimizer, count) - 1
        if left[optimizer] < 0:
            return decide(self, optimizer, state, *arguments, **keywords)
        for found in state["found_inf_per_device"].values():
            found.item()
        return None

    scaler._maybe_opt_step = skip


def refuse_compile(torch: Any, watch: Watch) -> None:
    """A module that is compiled is refused at once; a function where it is called, as libraries have some that nobody calls."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        watch.finish({"kind": "compile", "message": "", "line": line_of(watch)})

    def as_it_is() -> bool:
        if not any(os.environ.get(name) == "1" for name in SWITCHES):
            return False
        note = "torch.compile is switched off by the environment: the figures are of the model as it is"
        if note not in watch.notes:
            watch.notes.append(note)
        return True

    def compiled(model: Any = None, *, disable: bool = False, **keywords: Any) -> Any:
        if model is None:  # A decorator with options.
            return lambda function: compiled(function, disable=disable, **keywords)
        if disable or as_it_is():
            return model
        return refuse() if isinstance(model, torch.nn.Module) else refuse

    def compiled_module(model: Any, *arguments: Any, disable: bool = False, **keywords: Any) -> None:
        if not disable and not as_it_is():
            refuse()

    torch.compile = compiled
    torch.nn.Module.compile = compiled_module


def line_of(watch: Watch) -> int:
    """The line of the script that is at work."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == watch.config["script"]:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def remember_usage(watch: Watch) -> Callable[[], str]:
    """What the script's own parser of arguments had to say last; empty for nothing."""
    said = [""]
    parsers: Any = argparse.ArgumentParser
    fail = parsers.error

    def error(parser: Any, message: str) -> NoReturn:
        said[0] = message
        fail(parser, message)
        sys.exit(2)

    parsers.error = error
    return lambda: said[0]


def keep_to_python(preload: str) -> None:
    """Other programs that the script starts, such as git, run without the phantom device; other Pythons with it."""
    os.environ.pop("LD_PRELOAD", None)
    if not preload:
        return
    processes: Any = subprocess.Popen
    start = processes.__init__

    def started(process: Any, arguments: Any, *rest: Any, **keywords: Any) -> None:
        first = arguments if isinstance(arguments, (str, bytes, os.PathLike)) else next(iter(arguments), "")
        name = os.path.basename(os.fsdecode(first).split()[0] if first else "")
        if name.startswith("python") or name in ("torchrun", "accelerate"):
            keywords["env"] = {**(keywords.get("env") or os.environ), "LD_PRELOAD": preload}
        start(process, arguments, *rest, **keywords)

    processes.__init__ = started
    util: Any = importlib.import_module("multiprocessing.util")
    spawn = util.spawnv_passfds

    def spawned(*arguments: Any) -> Any:
        os.environ["LD_PRELOAD"] = preload
        try:
            return spawn(*arguments)
        finally:
            del os.environ["LD_PRELOAD"]

    util.spawnv_passfds = spawned
