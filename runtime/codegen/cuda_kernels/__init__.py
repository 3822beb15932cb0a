# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels: attention (cpp/cuda/cuda_attention.h), products and convolutions with few results
(cuda_split.h), and convolutions by minimal filtering (cuda_winograd.h); cuda_own.h launches them.

They are the same for all models, and nvcc takes long for them: what it made is kept in the user's cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

from memc.ir.core import Function
from memc.ir.types import DType
from memc.runtime.codegen import cuda

FOLDER = Path(__file__).parent
"""The folder of the kernels' source."""

SOURCES = ("attention.cu", "split_product.cu", "winograd.cu")

CALLERS = frozenset({"memc.cuda.matmul", "memc.cuda.conv", "memc.cuda.conv_transpose", "memc.cuda.attention"})
"""The symbols of the calls that take these kernels, or may."""


def may_call(function: Function) -> bool:
    """Whether some call of a function may take these kernels: they are of f32."""
    return any(op.plan.library_kernel in CALLERS and op.operands[0].type.dtype is DType.F32 for op in function.ops)


@functools.cache
def own_kernels(arch: str) -> bytes:
    """The cubin for an architecture. Raises what `compile_source` does."""
    kept = cache_folder() / f"kernels-{arch}-{_fingerprint()}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        made = cuda.compile_source("".join(f'#include "{name}"\n' for name in SOURCES), arch, FOLDER)
    with suppress(OSError):  # A cache that cannot be written costs time only.
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{uuid.uuid4().hex}")
        partial.write_bytes(made)
        partial.replace(kept)
    return made


def cache_folder() -> Path:
    """The folder of what memc keeps between processes, such as compiled kernels: below XDG_CACHE_HOME, or .cache at home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memc"


def _fingerprint() -> str:
    """A checksum of the sources and of the compiler's version."""
    sources = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.cu*")))
    version = b""
    if shutil.which("nvcc") is not None:
        version = subprocess.run(["nvcc", "--version"], stdout=subprocess.PIPE, check=False).stdout
    return hashlib.sha256(sources + version).hexdigest()[:16]
