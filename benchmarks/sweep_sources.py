# SPDX-License-Identifier: Apache-2.0
"""The models that `compile_sweep.py` compiles, by family, with what makes each static, trains it and feeds it.

own        benchmarks/sweep_models.py: a block of a known architecture each
small      benchmarks/small_models.py
steps      benchmarks/training_models.py
training, inference    exports without weights in the folder of --models, with seeded ones
the others the trained models of scripts/fetch_models.py, where the cache has them
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent))

Array = npt.NDArray[Any]
MODES = ("inference", "training", "training-half")
"""`training-half`: under a memory budget that leaves half of the arena that training takes without one."""


@dataclass(frozen=True)
class Folders:
    """Where models lie; None where there are none."""

    models: Path | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class SweepModel:
    """One model of the sweep."""

    name: str
    """family/file."""
    source: Callable[[Folders], Any]
    """A model, or the path of one."""
    shapes: Callable[[int], dict[str, tuple[int, ...]]]
    """Of the inputs, for a batch size."""
    feeds: Callable[[int], dict[str, Array]]
    """Seeded inputs, for a batch size."""
    bind: Mapping[str, Any] = field(default_factory=dict)
    open_batch: bool = True
    modes: tuple[str, ...] = MODES
    loss: str = "softmax-cross-entropy"
    runs: tuple[str, ...] = ()
    """The modes in which it is quick enough to be run and compared."""
    error: float = 0.0
    """What its outputs may be off in f32: a model with rounding steps of its own has more than f32's."""


def written_here() -> list[SweepModel]:
    """Those that the repository makes."""
    import small_models
    import sweep_models
    import training_models

    coarse = {"quantized": 3e-2, "stored_in_half": 1e-2}
    made = [_built(f"own/{n}", build, coarse.get(n, 0.0)) for n, build in sweep_models.BUILDERS.items()]
    made += [_built(f"small/{n}", build) for n, (build, _) in small_models.MODELS.items()]
    return made + [_built(f"steps/{n}", build) for n, build in training_models.MODELS.items()]


def _built(name: str, build: Callable[[], onnx.ModelProto], error: float = 0.0) -> SweepModel:
    def shapes(batch: int) -> dict[str, tuple[int, ...]]:
        (x,) = build().graph.input
        return {"x": (batch, *(d.dim_value for d in x.type.tensor_type.shape.dim[1:]))}

    def feeds(batch: int) -> dict[str, Array]:
        (x,) = build().graph.input
        rng = np.random.default_rng(batch)
        if x.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            return {"x": rng.integers(0, 50, shapes(batch)["x"])}
        return {"x": rng.standard_normal(shapes(batch)["x"]).astype(np.float32)}

    modes = ("inference",) if name == "own/quantized" else MODES
    return SweepModel(name, lambda folders: build(), shapes, feeds, modes=modes, runs=modes, error=error)


def stored(folders: Folders) -> list[SweepModel]:
    """Those of files that are there."""
    import models

    made = []
    for model in models.MODELS:
        exported = model.family in ("training", "inference")
        if model.family == "light":
            continue
        base = folders.models if exported else folders.cache
        if base is None or not (base / f"{model.name}.onnx").exists():
            continue
        made.append(
            SweepModel(
                model.name,
                lambda where, model=model: path_of(model, where),  # type: ignore[misc]
                model.shapes,
                model.feeds,
                model.bind,
                model.open_batch,
                ("inference",) if model.family == "inference" else MODES,
                "softmax-cross-entropy" if exported else "mse",
                () if exported else ("inference",),
                1e-2 if "half" in model.name else 0.0,
            )
        )
    return made


def path_of(model: Any, folders: Folders) -> Path:
    """The model's file with weights, written once however many ask for it at a time."""
    import fcntl

    cache = folders.cache
    assert cache is not None
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{model.name.replace('/', '.')}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path: Path = model.path(folders.models or cache, cache)
        return path


def all_models(folders: Folders) -> dict[str, SweepModel]:
    """By name."""
    return {model.name: model for model in (*written_here(), *stored(folders))}
