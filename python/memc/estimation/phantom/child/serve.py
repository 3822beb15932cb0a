# SPDX-License-Identifier: Apache-2.0
"""Runs scripts of PyTorch's on the phantom device, each in a process forked from this one, which has PyTorch loaded already. A program
of its own: it runs in the Python that has PyTorch, where memc need not be.

    python serve.py        each line on stdin: the path of a CONFIG; each on stdout: how its process ended, as a number

CONFIG, in JSON: `script`, `arguments`, `steps` (of an optimizer, after which the process ends; 0 for the script's end), `assign` (values
that names at the script's top level get instead of their own), `environment`, `world_size` (ranks of a distributed job), `limit` (bytes of the device), `tracker` (a library), and
the paths `rows`, `names`, `result`, `refused` that are written.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import json
import os
import sys
import traceback
import types
import weakref
from pathlib import Path
from typing import Any, NoReturn

SMALL = 4096
"""Bytes up to which the phantom device copies, so that what is larger need not be filled."""

FILLS = (
    *("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "xavier_uniform_", "xavier_normal_"),
    *("kaiming_uniform_", "kaiming_normal_"),
)
"""Functions of torch.nn.init that only fill a tensor."""

WEIGHTS, GRADIENTS, OPTIMIZER = range(3)
"""What marks say, as `trace.py` reads them."""

PATIENCE = 20
"""How many times the steps asked for all optimizers may take together, where one of them takes fewer, or none."""


def true_where_read(compute: Any) -> Any:
    """`torch.all`, whose result reads as true on the device: a program asks it whether its data is as it should be, where other
    values that kernels write read as zero."""

    def computed(*arguments: Any, **keywords: Any) -> Any:
        result = compute(*arguments, **keywords)
        if result.is_cuda and result.is_contiguous() and result.element_size() == 1 and 0 < result.numel() <= SMALL:
            place = (result.data_ptr(), 0, result.numel())
            ctypes.memset(place[0], 1, place[2])
            weakref.finalize(result, ctypes.memset, *place).atexit = False  # What comes there later is no such result.
        return result

    return computed


class Watch:
    """What the process of the script is told as it runs, and how it ends."""

    def __init__(self, torch: Any, config: dict[str, Any]) -> None:
        self.torch = torch
        self.config = config
        self.tracker: Any = None
        self.modules: list[str] = [""]
        self.number_of: Any = weakref.WeakKeyDictionary()
        self.stack: list[int] = []
        self.steps: Any = weakref.WeakKeyDictionary()  # Of each optimizer, those that have taken none included.
        self.marked_roots: Any = weakref.WeakSet()
        self.pid = os.getpid()
        self.most = self.total = 0
        self.peaks_were_reset = False
        self.loaded = set(sys.modules)

    def begin(self) -> None:
        """Follow the allocator as soon as CUDA is initialized, modules and optimizers."""
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
        for owner in (self.torch, self.torch.Tensor):
            owner.all = true_where_read(owner.all)

    def _track(self) -> None:
        self.tracker = ctypes.CDLL(self.config["tracker"])
        self.tracker.memc_phantom_track()
        for name in ("memc_phantom_outside", "memc_phantom_used"):
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
            self.marked_roots.add(root)
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
            self._mark(optimizer)
            self.tracker.memc_phantom_set_step(ctypes.c_int64(self.most))
        asked = self.config["steps"]
        if asked and (min(self.steps.values()) >= asked or self.total >= PATIENCE * asked):
            self.finish(None)

    def _mark(self, optimizer: Any) -> None:
        """Say which addresses hold weights, gradients and the optimizer's states."""
        found: dict[int, list[int]] = {WEIGHTS: [], GRADIENTS: [], OPTIMIZER: []}
        for group in optimizer.param_groups:
            for weight in group["params"]:
                found[WEIGHTS].append(_address(weight))
                if weight.grad is not None:
                    found[GRADIENTS].append(_address(weight.grad))
                state = optimizer.state.get(weight) or {}
                found[OPTIMIZER] += [_address(value) for value in state.values() if self.torch.is_tensor(value)]
        for root in self.marked_roots:
            found[WEIGHTS] += [_address(tensor) for tensor in (*root.parameters(), *root.buffers())]
        for what, addresses in found.items():
            held = [address for address in addresses if address]
            self.tracker.memc_phantom_mark(
                (ctypes.c_int64 * len(held))(*held), ctypes.c_int64(len(held)), ctypes.c_int64(what)
            )

    def finish(self, error: dict[str, Any] | None) -> NoReturn:
        """Write what happened, and end the process without what the script would do at its end."""
        result: dict[str, Any] = {"error": error, "modules": self.modules, "steps": self.most}
        result["imported"] = sorted(name for name in set(sys.modules) - self.loaded if _is_package(name))
        if self.tracker is not None:
            if not self.tracker.memc_phantom_write(self.config["rows"].encode(), self.config["names"].encode()):
                result["error"] = error or {"kind": "write", "message": "cannot write the events", "line": 0}
            result["stats"] = dict(self.torch.cuda.memory_stats())
            result["outside"] = self.tracker.memc_phantom_outside()
            result["used"] = self.tracker.memc_phantom_used()
            result["settings"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
            result["peaks_were_reset"] = self.peaks_were_reset
            result["benchmark"] = bool(self.torch.backends.cudnn.benchmark)
        Path(self.config["result"]).write_text(json.dumps(result))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


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


def _quiet_fills(torch: Any) -> None:
    """Weights are not read, so filling large ones costs time only."""

    def quiet(fill: Any) -> Any:
        def filled(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if torch.is_tensor(tensor) and tensor.numel() * tensor.element_size() > SMALL:
                return tensor
            return fill(tensor, *arguments, **keywords)

        return filled

    for name in FILLS:
        setattr(torch.nn.init, name, quiet(getattr(torch.nn.init, name)))


def _refuse_compile(torch: Any, watch: Watch) -> None:
    def compiled(model: Any = None, *arguments: Any, **keywords: Any) -> Any:
        def refused(*_: Any, **__: Any) -> NoReturn:
            watch.finish({"kind": "compile", "message": "", "line": 0})

        return _saying(torch, refused) if isinstance(model, torch.nn.Module) else refused

    torch.compile = compiled
    torch.nn.Module.compile = lambda self, *arguments, **keywords: watch.finish(
        {"kind": "compile", "message": "", "line": 0}
    )


def _saying(torch: Any, refused: Any) -> Any:
    """A module that says so when it is called."""
    made = torch.nn.Module()
    made.forward = refused
    return made


def _join(torch: Any, world_size: int) -> None:
    """The process is rank 0 of a distributed job, whose other ranks are not there. Collectives do nothing; all parameters agree."""
    if world_size == 1:
        return
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(place | {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    distributed: Any = importlib.import_module("torch.distributed")
    groups: Any = importlib.import_module("torch.distributed.distributed_c10d")
    begin = groups.init_process_group

    def joined(backend: Any = None, init_method: Any = None, *arguments: Any, **keywords: Any) -> Any:
        alone = {"store": distributed.HashStore(), "rank": 0, "world_size": world_size}
        return begin(backend, None, *arguments, **keywords | alone)

    distributed.init_process_group = groups.init_process_group = joined
    replicas: Any = importlib.import_module("torch.nn.parallel.distributed")
    replicas._verify_param_shape_across_processes = lambda *_, **__: True


def _assigned(source: str, path: str, values: dict[str, int]) -> ast.Module:
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


def _error(error: BaseException, script: str) -> dict[str, Any]:
    """What went wrong, and on which line of the script."""
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == script:
            line = frame.lineno or 0
    if isinstance(error, SyntaxError) and error.filename == script:
        line = error.lineno or 0
    names = [f"{each.__module__}.{each.__name__}" for each in type(error).__mro__]
    message = str(error).strip().splitlines()
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "bases": names,
        "message": message[0] if message else "",
        "line": line,
    }


def run(torch: Any, config: dict[str, Any]) -> NoReturn:
    """Run the script as `__main__`, in a process that ends with it."""
    script = config["script"]
    os.environ.update(config["environment"])
    ctypes.CDLL(None).memc_phantom_set_limit(ctypes.c_size_t(config["limit"]))
    watch = Watch(torch, config)
    _quiet_fills(torch)
    _refuse_compile(torch, watch)
    _join(torch, config["world_size"])
    watch.begin()
    sys.argv = [script, *config["arguments"]]
    sys.path[0] = str(Path(script).resolve().parent)
    program = types.ModuleType("__main__")
    program.__file__ = script
    sys.modules["__main__"] = program
    try:
        tree = _assigned(Path(script).read_text(encoding="utf-8"), script, config["assign"])
        exec(compile(tree, script, "exec"), program.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            watch.finish({"kind": "exit", "message": str(error.code), "line": _error(error, script)["line"]})
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


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What scripts print is no answer.
    torch = importlib.import_module("torch")
    for line in sys.stdin:
        config = json.loads(Path(line.strip()).read_text())
        if torch.cuda.is_initialized():
            sys.exit("a package that the script loads starts CUDA; this process cannot run it twice")
        child = os.fork()
        if child == 0:
            answers.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            run(torch, config)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
        _load(torch, Path(config["result"]))


if __name__ == "__main__":
    main()
