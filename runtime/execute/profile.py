# SPDX-License-Identifier: Apache-2.0
"""The time of each kernel call of a run, and the number of threads that kernels use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from memc import native
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.runtime.artifact.manifest import PLAN, Manifest
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.execute.executable import Executable

CHECK = re.compile(r"argument_\d+")
"""Names of the functions that check what callers give, once a run: they belong to no op."""

Sample = Callable[[], list[Any]]
"""Runs once; symbol, beginning and end of each kernel call."""


@dataclass(frozen=True)
class Call:
    """One kernel call of a run."""

    op: int
    """Index of its op among those of the planned function (model.memir)."""
    symbol: str
    begin: float
    """Seconds since the first call of the run began."""
    seconds: float
    """Until its work was done."""


def profile(executable: Executable, inputs: Mapping[str, Any], runs: int) -> list[list[Call]]:
    """The kernel calls of each of `runs` runs on inputs by name. A training step updates its state by them.

    A virtual machine of its own, over the executable's storages, calls an instrument around each kernel. On CUDA
    the instrument records events; in a graph, if the executable uses those, so that the host's pace does not count. The
    executable must have run before. Raises UnsupportedError without memc's native library.
    """
    try:
        from memc import native

        native.load()
    except (ImportError, OSError) as error:
        raise UnsupportedError(f"profiling needs memc's native library, which does not load: {error}") from None
    bound = executable.bind((), inputs)
    with executable.running, device_errors(executable.manifest, executable.device, "profiling"):
        given = [executable.placing.tensor(spec, value) for spec, value in bound]
        made = [executable.buffer(n) for n in range(len(executable.manifest.outputs))]
        sample = sampler(executable, [*given, *[tensor for _, tensor in made]])
        return [named(executable.manifest, sample()) for _ in range(runs)]


def sampler(executable: Executable, tensors: list[Any]) -> Sample:
    """What takes the times of a run on the inputs' and outputs' tensors."""
    virtual_machine = executable.loaded.virtual_machine()
    main, device = virtual_machine["main"], executable.device
    recorder = tvm_ffi.get_global_func("memc.profile.recorder")

    def run() -> None:
        main(*executable.storages.values(), *tensors)

    def launched() -> list[Any]:
        instrument, times = recorder(device.index if executable.manifest.kind == "cuda" else -1)
        virtual_machine.set_instrument(instrument)
        run()
        return list(times())

    if executable.manifest.kind != "cuda" or not executable.loaded.cuda_graph:
        return launched
    launched()  # Loads code, which a capture cannot.
    instrument, times = recorder(device.index)
    virtual_machine.set_instrument(instrument)
    launch = tvm_ffi.get_global_func("memc.cuda.capture")(device.index, run)

    def replayed() -> list[Any]:
        launch()
        device.sync()
        return list(times())

    return replayed


def named(manifest: Manifest, times: list[Any]) -> list[Call]:
    """Times with the ops that the plan says they are of."""
    every = [(str(times[i]), float(times[i + 1]), float(times[i + 2])) for i in range(0, len(times), 3)]
    found = [call for call in every if not CHECK.fullmatch(call[0])]
    if [symbol for symbol, _, _ in found] != [symbol for _, symbol in manifest.calls]:
        raise InvalidError(f"{manifest.path / PLAN}: lists other kernel calls than a run makes; compile again")
    return [Call(op, symbol, begin, end - begin) for (op, _), (symbol, begin, end) in zip(manifest.calls, found)]


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Kernels that this thread calls in here use `count` threads, which is what this gives; None: as many as elsewhere.
    Raises UsageError for a number that there are not."""
    native.load()
    limit = int(tvm_ffi.get_global_func("memc.cpu.threads")())
    if count is None:
        yield limit
        return
    if not 1 <= count <= limit:
        raise UsageError(f"threads: expected 1 to {limit} (TVM_NUM_THREADS says how many there are), got {count}")
    use = tvm_ffi.get_global_func("memc.cpu.use_threads")
    use(count)
    try:
        yield count
    finally:
        use(limit)
