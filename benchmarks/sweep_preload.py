# SPDX-License-Identifier: Apache-2.0
"""What every cell of `compile_sweep.py` imports: `sweep_processes.py` imports it once, for all of them."""

from __future__ import annotations

from linked_package import link_package

link_package()

import onnx.reference  # noqa: E402, F401
import small_models  # noqa: E402, F401
import sweep_cells  # noqa: E402, F401
import sweep_models  # noqa: E402, F401
import training_models  # noqa: E402, F401

import memc.driver  # noqa: E402
import memc.frontend.onnx.importer  # noqa: E402
import memc.ir.evaluate  # noqa: E402
import memc.ir.verify.memory_plan  # noqa: E402
import memc.runtime.codegen.build  # noqa: E402, F401
