# SPDX-License-Identifier: Apache-2.0
"""CUDA artifacts that travel to a machine with a GPU without their large weights, which are drawn there from a seed."""

from __future__ import annotations

import functools
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

HALVES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}

MOMENTS = (".momentum", ".exp_avg", ".exp_avg_sq")
"""What the names of an optimizer's states end in, which begin with zeros."""

LAST = "_channels_last"
"""What the names of weights end in that the compiler has laid out so."""

CARRIED = 1 << 16
"""Bytes up to which a weight travels; it may be a constant that means something."""


def strip(artifact: Path) -> int:
    """Take the large weights, the model and the text out of an artifact; the bytes that are left."""
    from memc.runtime.artifact import manifest, safetensors
    from memc.runtime.artifact.read import read_manifest

    described = {s.spec.name: s.spec for s in read_manifest(artifact).weights}
    stored = safetensors.read(artifact / manifest.WEIGHTS)
    small = {name: np.array(data) for name, data in stored.items() if data.size <= carried(described[name])}
    entries = [(n, described[n].dtype, described[n].shape, a.size, lambda a=a: a) for n, a in small.items()]
    safetensors.write(artifact / manifest.WEIGHTS, entries)
    (artifact / manifest.SOURCE).unlink(missing_ok=True)
    (artifact / manifest.TEXT).unlink()
    return sum(f.stat().st_size for f in artifact.rglob("*") if f.is_file())


def carried(spec: Any) -> int:
    """Bytes up to which a weight travels: as many elements in half precision as in f32."""
    return CARRIED // 2 if spec.dtype in HALVES else CARRIED


def fill(artifact: Path, whole: Path) -> None:
    """Make of what `strip` left an artifact that can be loaded, in the folder `whole`."""
    from memc.runtime.artifact import manifest, safetensors
    from memc.runtime.artifact.read import read_manifest

    shutil.copytree(artifact, whole)
    stored = safetensors.read(artifact / manifest.WEIGHTS)
    entries = [
        (s.spec.name, s.spec.dtype, s.spec.shape, s.spec.nbytes, lambda s=s: weight(s.spec, stored))
        for s in read_manifest(whole).weights
    ]
    safetensors.write(whole / manifest.WEIGHTS, entries)


def weight(spec: Any, stored: dict[str, Array]) -> Array:
    """A weight's data as bytes: what was carried, or numbers from a seed of its name, the same in any precision."""
    if spec.name in stored:
        return np.asarray(stored[spec.name])
    if spec.name.endswith(MOMENTS):
        return np.zeros(spec.nbytes, np.uint8)
    return drawn(spec.name, tuple(spec.shape), spec.dtype)


@functools.cache
def drawn(full_name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers from a seed of the name, as bytes: made once for all plans of a process."""
    name = full_name.removesuffix(LAST)
    if name != full_name:  # The same numbers as of the weight with channels first.
        shape = (shape[0], shape[-1], *shape[1:-1])
    rng = np.random.default_rng(zlib.crc32(name.removesuffix(f".{dtype}").encode()))
    fan_in = max(int(np.prod(shape[1:])), 1)
    data = rng.standard_normal(shape, np.float32) * np.float32((1.0 / fan_in) ** 0.5)
    if name != full_name:
        data = np.ascontiguousarray(np.moveaxis(data, 1, -1))
    if dtype in HALVES:
        data = data.astype(HALVES[dtype])
    return np.asarray(data.reshape(-1).view(np.uint8))


def vocabularies(model: Any) -> dict[str, int | None]:
    """Below what the numbers of each input of ids are, for a model of `models.py`."""
    return {name: item.below for name, item in model.inputs.items()}


def draw_feeds(inputs: Sequence[Any], vocabulary: dict[str, int | None]) -> dict[str, Array]:
    """Inputs from a seed: ids, labels, a learning rate, or normally distributed numbers."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for spec in inputs:
        limit = vocabulary.get(spec.name) or (4 if spec.dtype.startswith("i") else None)
        if limit is not None:
            made[spec.name] = rng.integers(0, limit, spec.shape).astype("int64" if spec.dtype == "i64" else "int32")
        elif spec.shape == ():
            made[spec.name] = np.asarray(1e-3, np.float32)
        else:
            made[spec.name] = rng.standard_normal(spec.shape, np.float32)
    return made
