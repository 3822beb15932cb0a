# SPDX-License-Identifier: Apache-2.0
"""Rows of a script's process as events: where each request is from, what its block holds, and what had to be assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from memc.estimation.phantom.trace import Read, Trace, assumptions, peaks, read_trace

ALLOC, FREE, DONE, SEGMENT, OOM = 0, 1, 2, 3, 8
FORWARD, BACKWARD, OPTIMIZER = 0, 1, 2

OPS = [
    "aten::addmm",
    "aten::convolution_backward",
    "aten::randn",
    "aten::relu",
    "Optimizer.step#Adam.step",
    "aten::_to_copy",
]
MODULES = ["", "net", "net.fc"]


def trace(*rows: tuple[int, ...]) -> Trace:
    """action, address, bytes, op, module, phase, step, call."""
    wide = [
        (action, at, n, 0, 0, op, module, phase, step, call) for action, at, n, op, module, phase, step, call in rows
    ]
    return Trace(np.array(wide, np.int64).reshape(-1, 10), list(OPS), [], MODULES)


def test_origins_and_categories() -> None:
    found = trace(
        (SEGMENT, 0, 2048, 0, 0, 0, 0, 0),
        (ALLOC, 512, 100, 2, -1, FORWARD, 0, 1),  # data made outside of modules
        (ALLOC, 1024, 100, 3, 2, FORWARD, 0, 2),  # an activation
        (ALLOC, 1536, 64, 0, 2, FORWARD, 0, 3),  # of cuBLAS, and kept
        (ALLOC, 2048, 32, 1, 1, BACKWARD, 0, 4),  # of cuDNN: allocated and freed in one call
        (FREE, 2048, 32, 1, 1, BACKWARD, 0, 4),
        (DONE, 2048, 32, 1, 1, BACKWARD, 0, 4),
        (ALLOC, 2048, 32, 3, 1, FORWARD, 0, 5),  # temporary, but of no library
        (FREE, 2048, 32, 3, 1, FORWARD, 0, 5),
        (ALLOC, 4096, 16, 1, 1, BACKWARD, 1, 6),  # a gradient, which its mark says
        (ALLOC, 6144, 8, 5, -1, FORWARD, 1, 9),  # from the host, whatever the op
        (103, 6144, 0, 0, 0, 0, 0, 0),
        (103, 4096, 0, 0, 0, 0, 0, 0),
        (ALLOC, 8192, 1000, 4, -1, OPTIMIZER, 1, 7),  # states side by side in one block
        (101, 4096, 0, 0, 0, 0, 0, 0),
        (102, 8192 + 500, 0, 0, 0, 0, 0, 0),
        (102, 99999, 0, 0, 0, 0, 0, 0),  # of no block
        (OOM, 5, 77, 0, 2, FORWARD, 1, 8),
    ).actions()
    assert [action.name for action in found if action.origin is None] == [
        "segment_alloc",
        "free_requested",
        "free_completed",
        "free_requested",
    ]
    origins = [action.origin for action in found if action.origin is not None]
    assert [str(origin) for origin in origins] == [
        "aten::randn (forward, step 1)",
        "aten::relu (net.fc, forward, step 1)",
        "aten::addmm (net.fc, forward, step 1)",
        "aten::convolution_backward (net, backward, step 1)",
        "aten::relu (net, forward, step 1)",
        "aten::convolution_backward (net, backward, step 2)",
        "aten::_to_copy (forward, step 2)",
        "Optimizer.step#Adam.step (optimizer, step 2)",
        "aten::addmm (net.fc, forward, step 2)",
    ]
    kinds = ["inputs", "activations", "workspaces", "workspaces", "temporaries", "gradients", "inputs", "optimizer", ""]
    assert [origin.category for origin in origins] == kinds
    assert found[-1].name == "oom" and found[-1].nbytes == 77


def test_what_depends_on_data_is_told() -> None:
    reads = [
        Read(("aten::nonzero",), 8, 2),
        Read(("aten::index", "aten::nonzero"), 8, 1),
        Read(("aten::_unique2", "aten::item", "aten::_local_scalar_dense"), 8, 1),
        Read(("aten::item", "aten::_local_scalar_dense"), 4, 5),  # a loss
        Read(("aten::item", "aten::_local_scalar_dense"), 8, 2, False),  # a loss in float64
        Read(("aten::item", "aten::_local_scalar_dense"), 8, 1),  # a whole number, mostly
        Read(("aten::item", "aten::_local_scalar_dense"), 4, 1, True),  # one of int32
        Read(("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"), 1, 3),
        Read(("aten::to", "aten::_to_copy", "aten::copy_"), 4096, 1, False),
        Read(("aten::to", "aten::_to_copy", "aten::copy_"), 40, 1, True),  # lengths, perhaps
        Read((), 4, 1),
    ]
    assert assumptions(reads) == [
        "aten::nonzero (2 times): the size of its result depends on data, which is zero here (--assume nonzero=)",
        "aten::index (once): the size of its result depends on data, which is zero here (--assume nonzero=)",
        "aten::_unique2 (once): the size of its result depends on data, which is zero here",
        "aten::item (2 times): whole numbers or truth values read from the device are zero here",
        "aten::is_nonzero (3 times): whole numbers or truth values read from the device are zero here",
        "aten::to (once): whole numbers or truth values read from the device are zero here",
    ]
    assert assumptions(reads[3:4]) == []
    note = "aten::nonzero (2 times): the size of its result depends on data, of which 0.25 are taken not to be zero (--assume nonzero=)"
    assert assumptions(reads[:1], nonzero=0.25) == [note]
    assert assumptions(
        [Read(("aten::cudnn_convolution",), 0, 2), Read(("aten::_scaled_dot_product_cudnn_attention",), 0, 1)]
    ) == ["workspaces of convolutions on tensor cores (2 times): on a GPU cuDNN was seen to choose others for some"]
    assert "recurrent networks" in assumptions([], ["aten::_cudnn_rnn"])[0]


def test_files(tmp_path: Path) -> None:
    np.array([[ALLOC, 512, 4, 0, 0, 1, -1, 0, 0, 1]], np.int64).tofile(tmp_path / "rows")
    (tmp_path / "names").write_text(
        "op \nop aten::item > aten::_local_scalar_dense\nread 1 4 6 1\nread 1 8 1 2\nread 1 1 1 0\n"
    )
    found = read_trace(tmp_path / "rows", tmp_path / "names", [""])
    ops = ("aten::item", "aten::_local_scalar_dense")
    assert found.reads == [Read(ops, 4, 6, False), Read(ops, 8, 1, True), Read(ops, 1, 1, None)]
    assert [action.nbytes for action in found.actions()] == [4]


def test_peaks() -> None:
    assert peaks({"allocated_bytes.all.peak": 3, "reserved_bytes.all.peak": 4, "num_ooms": 1}) == {
        "allocated": 3,
        "reserved": 4,
    }
