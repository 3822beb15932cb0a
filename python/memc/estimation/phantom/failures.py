# SPDX-License-Identifier: Apache-2.0
"""Why a script failed, in one line with what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memc.estimation.events import Origin
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError

from .installation import Installation

_NETWORK = (
    *("urllib.error.URLError", "socket.gaierror", "builtins.ConnectionError", "requests.exceptions.ConnectionError"),
    *("httpx.ConnectError", "httpx.NetworkError", "huggingface_hub.errors.LocalEntryNotFoundError"),
    *("huggingface_hub.errors.OfflineModeIsEnabled", "urllib3.exceptions.HTTPError"),
)
"""Classes of errors of those who would load something from elsewhere."""

_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
"""Variables that a launcher of distributed jobs sets."""

_NETWORK_WORDS = (
    "couldn't connect",
    "internet connection",
    "name resolution",
    "network is unreachable",
    "max retries exceeded",
)


@dataclass(frozen=True)
class Refused:
    """The last request that was refused before a script gave up. Bytes."""

    event: int
    """How many events there were before."""
    origin: Origin | None
    requested: int
    allocated: int
    reserved: int


class ScriptOutOfMemory(InvalidError):
    """The device's memory does not suffice for the script."""

    refused: Refused | None = None


def failure(
    script: str, installed: Installation, error: Mapping[str, Any], dependences: Sequence[str] = ()
) -> MemcError:
    """The error for what the process of the script wrote down. `dependences`: what the script did with data of the device."""
    where = f"{script}: line {error['line']}" if error.get("line") else script
    kind = error["kind"]
    if kind == "compile":
        return UnsupportedError(
            f"{where}: torch.compile is not supported on the phantom device; leave it out, or set TORCHDYNAMO_DISABLE=1 for the "
            "figures of the model without it"
        )
    if kind == "ranks":
        ranks = error["ranks"]
        return UsageError(
            f"{where}: the script is a distributed job of {ranks} processes; say --world-size {ranks} for one rank of it, and --rank for another than 0"
        )
    if kind == "usage":
        return UsageError(
            f"{where}: arguments of the script: {error['message']}; they come after two dashes: memc estimate {script} -- ..."
        )
    if kind == "exit":
        code = error["message"]
        said = f"with code {code}; -v shows what it prints" if isinstance(code, int) else f"with: {code[:300]}"
        return InvalidError(f"{where}: the script exits {said}")
    if kind == "write":
        return InvalidError(f"{script}: {error['message']}: is the disk full?")
    said = f"{error['type']}: {error['message'][:300]}" if error["message"] else str(error["type"])
    bases = set(error["bases"])
    message = str(error["message"]).lower()
    if bases & set(_NETWORK) or any(word in message for word in _NETWORK_WORDS):
        return InvalidError(
            f"{where}: the script needs the network ({said}); have it load local files, or make up weights and data"
        )
    if "builtins.FileNotFoundError" in bases:
        return InvalidError(
            f"{where}: the script needs a file ({said}); it runs as it is, so give it its files or made-up data"
        )
    if "builtins.ModuleNotFoundError" in bases:
        return InvalidError(f"{where}: the script needs a package ({said}); install it in {installed.python}")
    if "builtins.KeyError" in bases and str(error["message"]).strip("'") in _RANKS:
        return UsageError(
            f"{where}: the script is one process of a distributed job ({said}); say --world-size N for one rank of it, and --rank for another than 0"
        )
    if "torch.OutOfMemoryError" in bases:
        return ScriptOutOfMemory(f"{where}: the script runs out of memory ({said})")
    if dependences:
        return InvalidError(
            f"{where}: the script fails ({said}), and depends on data that is zero here: {dependences[0]}"
        )
    return InvalidError(f"{where}: the script fails ({said}); -v shows what it prints")
