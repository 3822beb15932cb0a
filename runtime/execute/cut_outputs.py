# SPDX-License-Identifier: Apache-2.0
"""Outputs whose size depends on data, cut to it after a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.data_dependent_extents import cut
from memc.runtime.artifact.manifest import Manifest, Spec

Array = npt.NDArray[Any]


def cut_outputs(
    manifest: Manifest,
    results: Mapping[str, Any],
    to_numpy: Callable[[Spec, Any], Array],
    from_numpy: Callable[[Array], Any],
) -> dict[str, Any]:
    """All outputs by name, without the counts; those that have counts are cut to them, and compact.

    Reading the counts waits for the run. Raises UsageError for a count above what there is room for.
    """
    if not manifest.extents:
        return dict(results)
    specs = manifest.outputs
    counts = {specs[extent.count].name for extent in manifest.extents}
    counted = {specs[result].name for extent in manifest.extents for result, _ in extent.cuts}
    host = {
        spec.name: to_numpy(spec, results[spec.name]) if spec.name in counts | counted else results[spec.name]
        for spec in specs
    }
    found = cut(host, manifest.extents)
    return {
        name: from_numpy(np.ascontiguousarray(value)) if name in counted else value for name, value in found.items()
    }
