# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels for products and convolutions with few results (cpp/include/memc/cuda_split.h).

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

SPLIT_PRODUCT = Path(__file__).with_name("split_product.cu")

CALLERS = frozenset({"memc.cuda.matmul", "memc.cuda.conv"})
"""The symbols of the calls that may take these kernels."""


def may_call(function: Function) -> bool:
    """Whether some call of a function may take these kernels: they are of f32."""
    return any(
        op.attrs.get("library_kernel") in CALLERS and op.operands[0].type.dtype is DType.F32 for op in function.ops
    )


@functools.cache
def split_kernels(arch: str) -> bytes:
    """The cubin for an architecture. Raises what `compile_source` does."""
    source = SPLIT_PRODUCT.read_text()
    kept = cache_folder() / f"split_product-{arch}-{_fingerprint(source)}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        made = cuda.compile_source(source, arch)
    with suppress(OSError):  # A cache that cannot be written costs time only.
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{uuid.uuid4().hex}")
        partial.write_bytes(made)
        partial.replace(kept)
    return made


def cache_folder() -> Path:
    """Where memc keeps what it would make again otherwise: XDG_CACHE_HOME, or .cache at home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memc"


def _fingerprint(source: str) -> str:
    """Of the source and of the compiler."""
    version = b""
    if shutil.which("nvcc") is not None:
        version = subprocess.run(["nvcc", "--version"], stdout=subprocess.PIPE, check=False).stdout
    return hashlib.sha256(source.encode() + version).hexdigest()[:16]
