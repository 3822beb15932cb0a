# SPDX-License-Identifier: Apache-2.0
"""memc without PyTorch."""

from __future__ import annotations

import subprocess
import sys

HIDE = "import sys; sys.modules['torch'] = None\n"


def test_what_needs_pytorch_says_so_in_one_line() -> None:
    script = HIDE + "try:\n    import memc.torch\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "memc.torch: expected PyTorch, got none; pip install memc[torch]\n"


def test_memc_itself_imports_no_pytorch() -> None:
    script = HIDE + "import memc, memc.replay; memc.compile, memc.estimate; print(memc.plan.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "plan\n"
