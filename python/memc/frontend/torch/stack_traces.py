# SPDX-License-Identifier: Apache-2.0
"""From PyTorch's records of a node to the user's module and source line."""

from __future__ import annotations

import re
from pathlib import PurePath

_FRAME = re.compile(r'File "([^"]*)", line (\d+)')
_LOCAL = re.compile(r"^L\['\w+'\]\.?")
_FRAMEWORK = re.compile(
    r"[/\\]torch[/\\](nn|_tensor|functional|utils|_dynamo|_jit|overrides|autograd|_ops|export|fx|_export|_subclasses|_higher_order_ops|_library|_functorch)|[/\\]memc[/\\]torch[/\\]"
)


def user_line(trace: str) -> str:
    """The innermost line of a stack trace outside PyTorch and memc, as `file.py:12`; of one wholly inside, its innermost. Empty for
    an empty trace."""
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if not _FRAMEWORK.search(frame[0])] or frames
    return f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""


def module_of(stack: str) -> str:
    """The path of the innermost module of an `nn_module_stack` as files write it: `key,path,type` of each, outermost first,
    with `;` between."""
    parts = [item.split(",") for item in stack.split(";") if item]
    return without_local(parts[-1][1]) if parts and len(parts[-1]) > 1 else ""


def without_local(path: str) -> str:
    """A module's path without the variable of a traced function that holds it, such as `L['self'].`."""
    return _LOCAL.sub("", path)
