# SPDX-License-Identifier: Apache-2.0
"""What the process of a script is told as it runs, and how it ends."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import threading
import time
import weakref
from typing import Any, NoReturn

WEIGHTS, GRADIENTS, OPTIMIZER = range(3)
"""What marks say, as `trace.py` reads them."""

PATIENCE = 20
"""How many times the steps asked for all optimizers may take together, where one of them takes fewer, or none."""


class Watch:
    """Follows the allocator, modules and optimizers."""

    def __init__(self, torch: Any, config: dict[str, Any]) -> None:
        self.torch = torch
        self.config = config
        self.tracker: Any = None
        self.modules: list[str] = [""]
        self.number_of: Any = weakref.WeakKeyDictionary()
        self.stack: list[int] = []
        self.steps: Any = weakref.WeakKeyDictionary()  # Of each optimizer, those that have taken none included.
        self.roots: Any = weakref.WeakSet()  # Modules that are called by no other.
        self.pid = os.getpid()
        self.most = self.total = 0
        self.notes: list[str] = []
        self.peaks_were_reset = False
        self.alls = False  # Whether the script has `torch.all` of what is on the device.
        self.scaled = False  # Whether a gradient scaler decides if an optimizer takes its step.
        self.loaded = set(sys.modules)
        self.kept: Any = None

    def begin(self) -> None:
        """Follow the allocator as soon as CUDA is initialized, modules, optimizers and backward passes."""
        self.torch.cuda._lazy_call(self._track)
        modules = importlib.import_module("torch.nn.modules.module")
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_post_hook(self._stepped)
        make = optimizers.Optimizer.__init__

        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            self.steps.setdefault(optimizer, 0)
            make(optimizer, *arguments, **keywords)

        optimizers.Optimizer.__init__ = made
        reset = self.torch.cuda.memory.reset_peak_memory_stats

        def reset_peaks(*arguments: Any, **keywords: Any) -> Any:
            self.peaks_were_reset = True
            return reset(*arguments, **keywords)

        self.torch.cuda.memory.reset_peak_memory_stats = self.torch.cuda.reset_peak_memory_stats = reset_peaks
        self._follow_backward()
        threading.Thread(target=self._tell, args=(threading.get_ident(),), daemon=True).start()

    def _follow_backward(self) -> None:
        graph: Any = importlib.import_module("torch.autograd.graph")
        run = graph._engine_run_backward

        def run_backward(*arguments: Any, **keywords: Any) -> Any:
            if self.tracker is None:
                return run(*arguments, **keywords)
            self.tracker.memc_phantom_backward(ctypes.c_int64(1))
            try:
                return run(*arguments, **keywords)
            finally:
                self.tracker.memc_phantom_backward(ctypes.c_int64(-1))

        graph._engine_run_backward = self.torch.autograd._engine_run_backward = run_backward

    def _tell(self, thread: int) -> None:
        """Write at the times at which it may be asked for which line of the script is at work, and how many steps were taken.

        Only then: whoever holds a frame holds its tensors.
        """
        for moment in self.config["moments"]:
            time.sleep(max(0.0, moment - time.monotonic()))
            _write(self.config["progress"], f"{_line(thread, self.config['script'])} {self.most}")

    def _track(self) -> None:
        self.tracker = ctypes.CDLL(self.config["tracker"])
        self.tracker.memc_phantom_track()
        self.tracker.memc_phantom_assume_nonzero(ctypes.c_double(self.config["nonzero"]))
        if self.config["steps"]:
            self.tracker.memc_phantom_set_step(ctypes.c_int64(0))
        for name in ("memc_phantom_outside", "memc_phantom_nccl", "memc_phantom_used", "memc_phantom_devices"):
            getattr(self.tracker, name).restype = ctypes.c_size_t

    def _enter(self, module: Any, arguments: Any) -> None:
        number = self.number_of.get(module)
        if number is None:
            number = self._name(module)
        self.stack.append(number)
        if self.tracker is not None:
            self.tracker.memc_phantom_set_module(ctypes.c_int64(number))

    def _name(self, root: Any) -> int:
        """Number the modules of a root, by their qualified names."""
        for name, module in root.named_modules():
            if module not in self.number_of:
                self.number_of[module] = len(self.modules)
                self.modules.append(name or type(root).__name__)
        if not self.stack:
            self.roots.add(root)
            self._mark({WEIGHTS: self._held_by(root)})
        found: int = self.number_of[root]
        return found

    def _leave(self, module: Any, arguments: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()
        if self.tracker is not None:
            self.tracker.memc_phantom_set_module(ctypes.c_int64(self.stack[-1] if self.stack else -1))

    def _stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        if os.getpid() != self.pid:
            return
        self.steps[optimizer] = self.steps.get(optimizer, 0) + 1
        self.most = max(self.most, self.steps[optimizer])
        self.total += 1
        if self.tracker is not None:
            self._mark_training(optimizer)
            self.tracker.memc_phantom_set_step(ctypes.c_int64(self.most))
        asked = self.config["steps"]
        if asked and (min(self.steps.values()) >= asked or self.total >= PATIENCE * asked):
            self.finish(None)

    def _mark_training(self, optimizer: Any) -> None:
        """Say which addresses hold weights, gradients and the optimizer's states."""
        found: dict[int, list[int]] = {WEIGHTS: [], GRADIENTS: [], OPTIMIZER: []}
        for group in optimizer.param_groups:
            for weight in group["params"]:
                found[WEIGHTS].append(_address(weight))
                if weight.grad is not None:
                    found[GRADIENTS].append(_address(weight.grad))
                state = optimizer.state.get(weight) or {}
                found[OPTIMIZER] += [_address(value) for value in state.values() if self.torch.is_tensor(value)]
        for root in self.roots:
            found[WEIGHTS] += self._held_by(root)
        self._mark(found)

    def _held_by(self, root: Any) -> list[int]:
        return [_address(tensor) for tensor in (*root.parameters(), *root.buffers())]

    def _mark(self, found: dict[int, list[int]]) -> None:
        if self.tracker is None:
            return
        for what, addresses in found.items():
            held = [address for address in addresses if address]
            self.tracker.memc_phantom_mark(
                (ctypes.c_int64 * len(held))(*held), ctypes.c_int64(len(held)), ctypes.c_int64(what)
            )

    def finish(self, error: dict[str, Any] | None) -> NoReturn:
        """Write what happened, and end the process without what the script would do at its end."""
        if os.getpid() != self.pid:  # A process that the script has forked.
            print(f"memc: phantom device: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        result: dict[str, Any] = {"error": error, "modules": self.modules, "steps": self.most, "notes": self.notes}
        result["imported"] = sorted(name for name in set(sys.modules) - self.loaded if _is_package(name))
        if self.kept is not None:
            result["kept"], result["written"] = self.kept.kept(), self.kept.written()
        if self.tracker is not None:
            for root in self.roots:
                self._mark({WEIGHTS: self._held_by(root)})
            if not self.tracker.memc_phantom_write(self.config["rows"].encode(), self.config["names"].encode()):
                result["error"] = error or {"kind": "write", "message": "cannot write the events", "line": 0}
            result["stats"] = dict(self.torch.cuda.memory_stats())
            result["outside"] = self.tracker.memc_phantom_outside()
            result["nccl"] = self.tracker.memc_phantom_nccl()
            result["devices"] = self.tracker.memc_phantom_devices()
            result["settings"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
            result["peaks_were_reset"] = self.peaks_were_reset
            result["scaled"], result["alls"] = self.scaled, self.alls
            result["benchmark"] = bool(self.torch.backends.cudnn.benchmark)
        _write(self.config["result"], json.dumps(result))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _line(thread: int, script: str) -> int:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename != script:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def _write(path: str, text: str, open: Any = open, replace: Any = os.replace) -> None:
    """At once, with functions that nobody has replaced."""
    with open(path + ".new", "w") as file:
        file.write(text)
    replace(path + ".new", path)


def _address(tensor: Any) -> int:
    """Of a tensor's bytes on the device, of a sharded one its own part; 0 for none."""
    local = getattr(tensor, "_local_tensor", tensor)
    try:
        return int(local.data_ptr()) if local.is_cuda else 0
    except (RuntimeError, NotImplementedError):  # A tensor without storage.
        return 0


def _is_package(name: str) -> bool:
    """Whether a module is installed, rather than a file of the script's."""
    return "site-packages" in (getattr(sys.modules.get(name), "__file__", None) or "")
