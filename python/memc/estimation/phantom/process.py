# SPDX-License-Identifier: Apache-2.0
"""A process with PyTorch on the phantom device, which forks another for each run of a script."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
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

_HIDE_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NVML_BASED_CUDA_CHECK"})
"""Variables that would hide the phantom device, or its allocator."""


class Process:
    """The process, until the end of a `with` block. It starts with the first run.

    Raises UsageError without such an interpreter, UnsupportedError without a PyTorch that the phantom device knows.
    """

    def __init__(self, python: str | None, gpu: Gpu, show: bool = False) -> None:
        self.installed = find_installation(python)
        self._libraries = libraries(self.installed)
        self._gpu = gpu
        self._show = show
        self._server: subprocess.Popen[bytes] | None = None
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
        paths = {name: self._folder / name for name in ("rows", "names", "result")}
        for path in (*paths.values(), self._folder / "refused"):
            path.unlink(missing_ok=True)
        written = {name: str(path) for name, path in paths.items()}
        (self._folder / "config").write_text(json.dumps(config | written | {"tracker": str(self._libraries.tracker)}))
        begin = time.monotonic()
        server = self._server or self._start()
        assert server.stdin is not None and server.stdout is not None
        with suppress(BrokenPipeError):  # A server that is gone does not answer, either.
            server.stdin.write(f"{self._folder / 'config'}\n".encode())
            server.stdin.flush()
        answer = b""
        if select.select([server.stdout], [], [], max(0.0, seconds - (time.monotonic() - begin)))[0]:
            answer = server.stdout.readline()
        else:
            self._end()
            raise InvalidError(
                f"{source}: expected {config['steps'] or 'its'} steps of an optimizer within {seconds:.0f} s, got fewer; "
                "make its data smaller, or ask for fewer with --steps"
            )
        if (self._folder / "refused").is_file():
            raise UnsupportedError(f"{source}: {(self._folder / 'refused').read_text().strip()}")
        if not paths["result"].is_file():
            raise InvalidError(f"{source}: {self._ending(answer)}")
        result: dict[str, Any] = json.loads(paths["result"].read_text())
        return result, paths["rows"], paths["names"]

    def _start(self) -> subprocess.Popen[bytes]:
        (self._folder / "device").write_text(description(self._gpu))
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
        text = output.read_text(errors="replace") if output.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = f": {lines[-1][:200]}" if lines else ""
        if not answer:
            self._end()
            return f"PyTorch cannot be loaded on the phantom device{last}"
        code = int(answer)
        if code < 0:
            return f"the script's process ended with signal {-code} on the phantom device{last}"
        return f"the script's process ended with code {code} before it took enough steps{last}"
