# SPDX-License-Identifier: Apache-2.0
"""Loading libmemc_core: how many threads its kernels have, and that the process's environment stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOAD = """
import os
os.sched_setaffinity(0, {%d})
before = dict(os.environ)
import tvm_ffi
from memc import native
native.load()
assert dict(os.environ) == before
print(tvm_ffi.get_global_func("memc.cpu.threads")())
"""


@pytest.mark.parametrize(("said", "expected"), [({}, 1), ({"OMP_NUM_THREADS": "3"}, 3), ({"TVM_NUM_THREADS": "2"}, 2)])
def test_threads_by_the_environment_or_the_processors_allowed(said: dict[str, str], expected: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")} | said
    code = LOAD % min(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == expected
