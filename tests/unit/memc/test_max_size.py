# SPDX-License-Identifier: Apache-2.0
"""Compiled models whose results have a size that depends on data."""

import numpy as np
import pytest
from onnx import parser

import memc
from memc.ir.errors import UsageError
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[4,6] x) => (int64[2,n] at, float[n] few, float[4,6] twice) {
        at = NonZero(x) rows = Transpose(at) few = GatherND(x, rows) twice = Add(x, x) }"""


def compiled(**options):
    return memc.compile(parser.parse_model(MODEL), **options)


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_results_are_cut(opt_level):
    executable = compiled(opt_level=opt_level).load()
    assert [spec.name for spec in executable.outputs] == ["at", "few", "twice"]
    for share in (0, 0.3, 1):
        x = np.where(np.random.default_rng(1).uniform(size=(4, 6)) < share, 2, 0).astype(np.float32)
        for found in (executable(x), executable.run_numpy({"x": x})):
            assert list(found) == ["at", "few", "twice"]
            np.testing.assert_array_equal(found["at"], np.array(np.nonzero(x)))
            np.testing.assert_array_equal(found["few"], x[np.nonzero(x)])
            np.testing.assert_array_equal(found["twice"], x + x)
            assert all(array.flags["C_CONTIGUOUS"] for array in found.values())


def test_more_than_there_is_room_for():
    executable = compiled(max_size=5).load()
    assert [spec.shape for spec in executable.outputs] == [(2, 5), (5,), (4, 6)]
    x = np.zeros((4, 6), np.float32)
    x[0, :5] = 1
    np.testing.assert_array_equal(executable(x)["few"], np.ones(5))
    x[2, 0] = 1
    with pytest.raises(UsageError, match="at.count: expected at most 5, .* got 6 in this run; .* --max-size"):
        executable(x)


def test_less_room_takes_less_memory():
    assert compiled(max_size=2, plan_only=True).report.peak_bytes < compiled(plan_only=True).report.peak_bytes


def test_max_size_is_a_number():
    with pytest.raises(UsageError, match="max_size"):
        compiled(max_size=-1)


def test_for_cuda():
    assert "extents" in (compiled(target="cuda", arch="sm_90").path / "plan.json").read_text()


def test_the_text_has_the_counts():
    module = compiled(plan_only=True, max_size=5).module
    text = str(module)
    assert 'i64[] {name = "at.count", most = 5, cuts = [[0, 1], [1, 0]]}' in text
    assert str(parse(text)) == text
    with pytest.raises(memc.ir.errors.InvalidError, match="expected an axis of a result with room for 5, once"):
        verify(parse(text.replace("[1, 0]]", "[1, 1]]")))
