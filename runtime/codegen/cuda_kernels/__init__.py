# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels: attention (cpp/cuda/cuda_attention.h, and in training cuda_attention_training.h), products and convolutions with few results
(cuda_split_product.h), convolutions by minimal filtering (cuda_winograd.h), in TF32, over volumes or with few weights (cuda_patches.h) and
depthwise (cuda_depthwise.h), sorts (cuda_sorts.h), running sums and products (cuda_scans.h), scatters (cuda_scatters.h),
and suppression of boxes (cuda_non_max_suppression.h); cuda_launch.h launches them.

They are the same for all models, and nvcc takes long for them: what it made is kept in the user's cache.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

from memc.ir.core import Function, Op
from memc.ir.files import cache_folder
from memc.ir.ops.library.cuda_attention import training_type, training_width
from memc.ir.ops.library.cuda_conv import group_of, is_depthwise
from memc.ir.ops.shared.op_def import main_op
from memc.ir.types import DType
from memc.runtime.codegen import cubin

FOLDER = Path(__file__).parent
"""The folder of the kernels' source."""

FACTORS = ("attention.cu", "split_product.cu", "winograd.cu")
"""What calls of f32 take, or may."""

CALLERS = frozenset({"memc.cuda.matmul", "memc.cuda.conv", "memc.cuda.conv_transpose", "memc.cuda.attention"})
"""The symbols of those calls."""

ROUNDED_FACTORS = ("tensor_product.cu",)
"""What convolutions may take whose factors are rounded to TF32."""

DEPTHWISE = ("depthwise.cu",)
"""What gradients of depthwise convolutions may take."""

SUMS = ("patch_sums.cu",)
"""What gradients in the weights of convolutions of f32 may take."""

VOLUMES = ("patch_product.cu", "winograd_volume.cu")
"""What convolutions of f32 over three axes may take."""

CONVOLUTIONS = frozenset({"memc.cuda.conv", "memc.cuda.conv_transpose", "memc.cuda.conv_grad_weight"})
"""The symbols of those calls."""

LINES = ("scans.cu", "sorts.cu")
"""What goes along lines, of any elements."""

LINE_CALLERS = frozenset(f"memc.cuda.{name}" for name in ("top_k", "sort_ranks", "rank_positions", "cumsum", "cumprod"))
"""The symbols of the calls that take that."""

SCATTERS = ("scatters.cu", "sorts.cu")
"""What sorts updates by their places, and combines them."""

SCATTER_CALLERS = frozenset(
    f"memc.cuda.{name}"
    for name in ("scatter_elements", "scatter_elements_combine", "scatter_nd", "scatter_nd_combine", "gather_grad")
)
"""The symbols of the calls that take that."""

BOXES = ("suppression.cu",)
"""What looks at boxes."""

BOX_CALLERS = frozenset({"memc.cuda.non_max_suppression"})
"""The symbol of the call that takes that."""

TRAINING_CALLERS = frozenset({"memc.cuda.attention_training", "memc.cuda.attention_grad"})
"""The symbols of calls of attention in training."""

TRAINING_TYPES = {"f32": "F32", "tf32": "Tf32", "f16": "F16", "bf16": "Bf16"}
"""What the source calls their element types."""


def training_source(type: str, width: int, masked: bool) -> str:
    """Attention in training of an element type, for heads of at most `width` columns, with or without a mask: a header, and
    what makes its kernels."""
    element, name = (f"Masked<{TRAINING_TYPES[type]}>", f"masked_{type}") if masked else (TRAINING_TYPES[type], type)
    return f"attention_training.cuh ATTENTION_TRAINING({element}, {name}, {width})"


def training_source_of(op: Op) -> str:
    """What such a call takes its kernels of."""
    return training_source(training_type(op), training_width(op), len(op.operands) in (4, 7))


def sources_of(function: Function) -> tuple[str, ...]:
    """The sources that some call of a function may take kernels of."""
    symbols = {op.plan.library_kernel for op in function.ops}
    of_f32 = {op.plan.library_kernel for op in function.ops if op.operands and op.operands[0].type.dtype is DType.F32}
    convolutions = [op for op in function.ops if op.plan.library_kernel in CONVOLUTIONS]
    rounded = any(op.plan.precision == "tf32" for op in convolutions)
    volumes = any(op.plan.precision is None and op.operands[0].type.rank == 5 for op in convolutions)
    depthwise = any(op.plan.library_kernel != "memc.cuda.conv" and is_depthwise(main_op(op)) for op in convolutions)
    taken = (FACTORS if of_f32 & CALLERS else ()) + (ROUNDED_FACTORS if rounded else ())
    if of_f32 & CONVOLUTIONS:
        taken += SUMS if any(_has_sums(op) for op in convolutions) else ()
        taken += (VOLUMES if volumes else ()) + (DEPTHWISE if depthwise else ())
    taken += (LINES if symbols & LINE_CALLERS else ()) + (SCATTERS if symbols & SCATTER_CALLERS else ())
    taken += BOXES if symbols & BOX_CALLERS else ()
    attention = [op for op in function.ops if op.plan.library_kernel in TRAINING_CALLERS]
    taken += tuple(map(training_source_of, attention))
    return tuple(dict.fromkeys(taken))


def _has_sums(op: Op) -> bool:
    return op.plan.library_kernel == "memc.cuda.conv_grad_weight" and group_of(main_op(op)) == 1


EVERY = FACTORS + ROUNDED_FACTORS + SUMS + VOLUMES + DEPTHWISE + LINES + SCATTERS[:1] + BOXES
"""The sources of all kernels but those of attention in training, which are many."""


@functools.cache
def own_kernels(arch: str, sources: tuple[str, ...] = EVERY) -> bytes:
    """The cubin of some sources for an architecture, empty for none. Raises what `compile_source` does."""
    if not sources:
        return b""
    kept = cache_folder() / f"kernels-{arch}-{_fingerprint(sources)}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        made = cubin.compile_source("".join(map(_text, sources)), arch, FOLDER)
    with suppress(OSError):  # A cache that cannot be written costs time only.
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{uuid.uuid4().hex}")
        partial.write_bytes(made)
        partial.replace(kept)
    return made


def _text(source: str) -> str:
    """The line that includes a source's file, and what follows its name."""
    name, _, rest = source.partition(" ")
    return f'#include "{name}"\n{rest}\n'


def _fingerprint(names: tuple[str, ...]) -> str:
    """A checksum of the sources, of which some are compiled, and of the compiler's version."""
    sources = " ".join(names).encode() + b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.cu*")))
    version = b""
    if shutil.which("nvcc") is not None:
        version = subprocess.run(["nvcc", "--version"], stdout=subprocess.PIPE, check=False).stdout
    return hashlib.sha256(sources + version).hexdigest()[:16]
