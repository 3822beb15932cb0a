# SPDX-License-Identifier: Apache-2.0
"""Artifacts' seeded weights as a few bytes that numpy alone makes them again from, bit for bit.

A weight is stored as one of: a seeded initializer, its transpose, one whose output channels were scaled (a folded batch
normalization), or plain data. `pack` checks that `unpack` gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Recipe = dict[str, Any]

SMALL = 1024
"""Weights of fewer elements are stored as they are."""

DRAWS: list[tuple[str, float, float]] = [
    ("normal", 0.0, 0.05),
    ("normal", 0.0, 0.02),
    ("normal", 0.0, 1.0),
    ("uniform", 0.9, 1.1),
    ("uniform", 0.6, 0.8),
    ("uniform", 0.5, 1.5),
    ("uniform", -0.05, 0.05),
]


def draw(name: str, seed: int, how: tuple[str, float, float], shape: tuple[int, ...]) -> Array:
    """An initializer as seeded_weights.py draws it."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    made = getattr(rng, how[0])(how[1], how[2], shape)
    return np.asarray(made, np.float32)


def recipe_of(name: str, data: Array, seed: int = 0) -> Recipe | None:
    """How to draw an initializer again; None if it was not drawn."""
    if data.dtype != np.float32 or data.size < SMALL:
        return None
    fan_in = max(int(np.prod(data.shape[1:])), 1)
    for how in [("normal", 0.0, float(np.sqrt(2.0 / fan_in))), *DRAWS]:
        if draw(name, seed, how, data.shape).tobytes() == data.tobytes():
            return {"name": name, "seed": seed, "how": list(how), "shape": list(data.shape)}
    return None


def made(recipe: Recipe) -> Array:
    data = draw(recipe["name"], recipe["seed"], tuple(recipe["how"]), tuple(recipe["shape"]))
    return np.ascontiguousarray(data.T) if recipe.get("transposed") else data


def factors(base: Array, data: Array) -> Array | None:
    """f64 factors of the rows of `base` that give `data` when the products are rounded to f32; None if there are none.

    Each product bounds its row's factor from both sides; the middle of what is left must give every one.
    """
    rows, wanted = base.reshape(base.shape[0], -1).astype(np.float64), data.reshape(data.shape[0], -1)
    half = np.spacing(np.abs(wanted)).astype(np.float64) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        one, two = (wanted - half) / rows, (wanted + half) / rows
    used = rows != 0
    low = np.where(used, np.minimum(one, two), -np.inf).max(axis=1)
    high = np.where(used, np.maximum(one, two), np.inf).min(axis=1)
    chosen = (low + high) / 2
    if not np.isfinite(chosen).all() or not np.array_equal((rows * chosen[:, None]).astype(np.float32), wanted):
        return None
    return np.asarray(chosen)


def pack(weights: Mapping[str, Array], initializers: Mapping[str, Array], folder: Path) -> int:
    """Write recipes.json and raw.npz for the weights to `folder`; returns how many were stored as plain data."""
    known = {name: recipe for name, data in initializers.items() if (recipe := recipe_of(name, data)) is not None}
    recipes, raw = {}, {}
    for name, data in weights.items():
        recipe, factor = match(data, initializers, known)
        if recipe is None:
            raw[name] = data.reshape(-1).view(np.uint8)
        else:
            recipes[name] = recipe
        if factor is not None:
            raw[name + ".factors"] = factor
    (folder / "recipes.json").write_text(json.dumps(recipes, indent=1))
    np.savez_compressed(folder / "raw.npz", **raw)
    again = unpack(folder)
    for name, data in weights.items():
        if again[name].tobytes() != data.tobytes():
            raise AssertionError(f"weight {name} is not made again bit for bit")
    return len(weights) - len(recipes)


def match(
    data: Array, initializers: Mapping[str, Array], known: Mapping[str, Recipe]
) -> tuple[Recipe | None, Array | None]:
    """A recipe for a weight, and the factors of its rows if it was scaled."""
    if data.dtype != np.float32 or data.size < SMALL:
        return None, None
    same = [n for n in known if initializers[n].size == data.size]
    for name in same:
        base = initializers[name]
        if base.tobytes() == data.tobytes():
            return known[name], None
        if base.ndim == 2 and np.ascontiguousarray(base.T).tobytes() == data.tobytes():
            return {**known[name], "transposed": True}, None
    for name in same:
        base = initializers[name]
        if base.shape != data.shape or base.ndim < 2:
            continue
        if np.corrcoef(base[0].reshape(-1), data[0].reshape(-1))[0, 1] ** 2 < 0.999 and base[0].size > 1:
            continue
        factor = factors(base, data)
        if factor is not None:
            return {**known[name], "scaled": True}, factor
    return None, None


def unpack(folder: Path) -> dict[str, Array]:
    """The weights' bytes (u8) by name."""
    recipes = json.loads((folder / "recipes.json").read_text())
    with np.load(folder / "raw.npz") as raw:
        found = {name: raw[name] for name in raw.files if not name.endswith(".factors")}
        for name, recipe in recipes.items():
            data = made(recipe)
            if recipe.get("scaled"):
                factor = raw[name + ".factors"].reshape(-1, *[1] * (data.ndim - 1))
                data = (data.astype(np.float64) * factor).astype(np.float32)
            found[name] = data.reshape(-1).view(np.uint8)
    return found


if __name__ == "__main__":
    print(f"{Path(sys.argv[0]).name} is a part of gpu_compare.py")
