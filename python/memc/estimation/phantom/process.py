# SPDX-License-Identifier: Apache-2.0
"""A process with PyTorch on the phantom device, which forks another for each run of a script."""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from memc.estimation.gpus import Gpu
from memc.ir.errors import InvalidError, UnsupportedError

from .address_layout import same_addresses
from .build import libraries
from .description import description
from .installation import find_installation

SERVER = Path(__file__).parent / "child/serve.py"

TOLD = (20.0, 60.0, 180.0, 600.0, 1800.0)
"""Seconds after which a script that has not ended is told of."""

_HIDE_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NVML_BASED_CUDA_CHECK"})
"""Variables that would hide the phantom device, or its allocator."""


@dataclass
class Files:
    """What scripts did with files, over all runs."""

    kept: set[str] = field(default_factory=set)
    """Those that they would have changed or removed, and that are as they were."""
    written: set[str] = field(default_factory=set)
    """New ones."""

    def add(self, kept: Iterable[str], written: Iterable[str]) -> None:
        """Of one run more."""
        self.kept.update(kept)
        self.written.update(written)

    def tell(self, source: str) -> None:
        """Say in one line each what a user would not expect."""
        for what, paths in (
            ("kept as they were, though the script writes to them or removes them", self.kept),
            ("written by the script", self.written),
        ):
            names = [os.path.relpath(path) for path in sorted(paths)]
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            if names:
                logging.getLogger("memc").warning(f"{source}: {what}: {', '.join(names[:5])}{more}")


class Process:
    """The process, until the end of a `with` block. It starts with the first run. `count`: GPUs that it sees.

    Raises UsageError without such an interpreter, UnsupportedError without a PyTorch that the phantom device knows.
    """

    def __init__(self, python: str | None, gpu: Gpu, show: bool = False, count: int = 1) -> None:
        self.installed = find_installation(python)
        self._libraries = libraries(self.installed)
        self._gpu = gpu
        self._show = show
        self._count = count
        self.files = Files()
        self._server: subprocess.Popen[bytes] | None = None
        self._earlier = 0
        self._place = tempfile.TemporaryDirectory(prefix="memc-phantom-")
        self._folder = Path(self._place.name)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._place.cleanup()

    def run(self, source: str, config: dict[str, Any], seconds: float) -> tuple[dict[str, Any], Path, Path]:
        """What the script's process wrote: its result, and the paths of events and names, which are there until the next run.

        Raises UnsupportedError for what the phantom device refused, InvalidError for a process that ended otherwise, or did not
        within `seconds`.
        """
        paths = {name: self._folder / name for name in ("rows", "names", "result", "progress")}
        for path in (*paths.values(), self._folder / "refused"):
            path.unlink(missing_ok=True)
        files = self._folder / "files"  # Of the script, instead of those that it would overwrite.
        shutil.rmtree(files, ignore_errors=True)
        written = {name: str(path) for name, path in paths.items()} | {"files": str(files)}
        began = time.monotonic()
        moments = [began + at - 1 for at in (*TOLD, seconds) if at <= seconds]
        more = {"tracker": str(self._libraries.tracker), "moments": moments}
        (self._folder / "config").write_text(json.dumps(config | written | more))
        server = self._server or self._start()
        assert server.stdin is not None and server.stdout is not None
        output = self._folder / "output"
        self._earlier = output.stat().st_size if output.is_file() else 0
        with suppress(BrokenPipeError):  # A server that is gone does not answer, either.
            server.stdin.write(f"{self._folder / 'config'}\n".encode())
            server.stdin.flush()
        answer = self._answer(server, source, config["steps"], began, seconds)
        if (self._folder / "refused").is_file():
            raise UnsupportedError(f"{source}: {(self._folder / 'refused').read_text().strip()}")
        if not paths["result"].is_file():
            raise InvalidError(f"{source}: {self._ending(answer)}")
        result: dict[str, Any] = json.loads(paths["result"].read_text())
        return result, paths["rows"], paths["names"]

    def _answer(self, server: subprocess.Popen[bytes], source: str, steps: int, began: float, seconds: float) -> bytes:
        """What the server says of the script's end, for which it is told now and then that it is awaited."""
        assert server.stdout is not None
        told = list(TOLD)
        while not select.select([server.stdout], [], [], 0.5)[0]:
            passed = time.monotonic() - began
            if (self._folder / "refused").is_file():  # In another process, for which the script may wait for ever.
                self._end()
                return b""
            line, taken = self._progress()
            where = f"{source}: line {line}" if line else source
            if passed > seconds:
                self._end()
                wanted = f"{steps} steps of an optimizer" if steps else "its end"
                raise InvalidError(
                    f"{where}: expected {wanted} within {seconds:.0f} s, got {taken} steps; have the script take a step of an "
                    "optimizer, with less data before it, run one that takes none to its end with --steps 0, or wait longer with --timeout"
                )
            if told and passed > told[0]:
                told = [at for at in told if at > passed]
                logging.getLogger("memc").warning(
                    f"{where}: {passed:.0f} s without its {'last step' if steps else 'end'}, {taken} steps of an optimizer taken; "
                    f"given up after {seconds:.0f} s (--timeout)"
                )
        return server.stdout.readline()

    def _progress(self) -> tuple[int, int]:
        """The line of the script that is at work, and the steps taken."""
        try:
            line, steps = map(int, (self._folder / "progress").read_text().split())
        except (OSError, ValueError):
            return 0, 0
        return line, steps

    def _start(self) -> subprocess.Popen[bytes]:
        (self._folder / "device").write_text(description(self._gpu, self._count))
        environment = {name: value for name, value in os.environ.items() if name not in _HIDE_DEVICES}
        environment |= {
            "LD_PRELOAD": ":".join(filter(None, [self._libraries.preload, os.environ.get("LD_PRELOAD", "")])),
            "MEMC_PHANTOM_DEVICE": str(self._folder / "device"),
            "MEMC_PHANTOM_ERROR": str(self._folder / "refused"),
        }
        with open(self._folder / "output", "wb") as output, same_addresses():
            self._server = subprocess.Popen(
                [self.installed.python, str(SERVER)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._show else output,
                start_new_session=True,
            )
        return self._server

    def _end(self) -> None:
        """End the process and all that scripts have started."""
        if self._server is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()
        self._server = None

    def _ending(self, answer: bytes) -> str:
        """How a process ended that wrote no result."""
        output = self._folder / "output"
        text = output.read_bytes()[self._earlier :].decode(errors="replace") if output.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = f": {lines[-1][:200]}" if lines else ""
        if not answer:
            self._end()
            if self._earlier:
                return f"the process that runs scripts ended{last}"
            return f"PyTorch cannot be loaded on the phantom device{last}"
        code = int(answer)
        if code < 0:
            return f"the script's process ended with signal {-code} on the phantom device{last}"
        return f"the script's process ended with code {code} before it took enough steps{last}"
