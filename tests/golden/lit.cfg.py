# SPDX-License-Identifier: Apache-2.0
"""lit configuration: `lit tests/golden`. RUN lines use `memc`, `filecheck`, `not` and %s (the test's file)."""

import os
import sys

import lit.formats

config.name = "memc"  # noqa: F821  (lit defines config and lit_config)
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".memir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.test_exec_root = os.path.join(os.path.dirname(__file__), "..", "..", "build", "golden")  # noqa: F821
# The commands of the environment that runs lit, and stable text.
config.environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # noqa: F821
config.environment.update({"NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "120"})  # noqa: F821
# Where memc is to be found first, if anybody says so.
if "PYTHONPATH" in os.environ:
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]  # noqa: F821
config.substitutions.append(("%python", sys.executable))  # noqa: F821
