# SPDX-License-Identifier: Apache-2.0
"""Plans of ops: what their fields hold, on what ops they may be, and what older text had in their place."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from memc.ir.clone import clone_op
from memc.ir.core import UNPLANNED, Function, Op, OpPlan, Role, Value, fresh_names
from memc.ir.errors import InvalidError, UsageError
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.ir.text.difference import difference
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify

MATMUL = "matmul(%x, %x) {transpose_a = false, transpose_b = false}"
GROUP = "fused(%x) PLAN region(%a: f32[4,4]) {\n    %b = exp(%a) INNER : f32[4,4]\n    yield %b\n  }"

FULL = OpPlan(0, "memc.cuda.matmul", "tf32", 1, 2, 3, 4, (5, 6))


def text(op: str) -> str:
    return f"func @main(%x: f32[4,4] {{role = input}}) -> f32[4,4] {{\n  %0 = {op} : f32[4,4]\n  return %0\n}}\n"


def message(op: str | Module) -> str:
    with pytest.raises(InvalidError) as caught:
        verify(parse(text(op), "t") if isinstance(op, str) else op)
    return str(caught.value).split("\n")[0]


def test_the_full_plan_has_all_fields() -> None:
    assert all(getattr(FULL, field.name) != getattr(UNPLANNED, field.name) for field in fields(OpPlan))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"in_place": -1}, "plan: in_place: expected a whole number from 0 on, got -1"),
        ({"in_place": True}, "plan: in_place: expected a whole number, got True"),
        ({"library_kernel": 3}, "plan: library_kernel: expected text, got 3"),
        ({"precision": "tf23"}, "plan: precision: expected one of tf32, got 'tf23'; did you mean tf32?"),
        ({"joint": 0.5}, "plan: joint: expected a whole number, got 0.5"),
        ({"recompute": (0, -2)}, "plan: recompute: expected a list of whole numbers"),
    ],
)
def test_values_that_a_field_does_not_take(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        replace(UNPLANNED, **changes)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    "op",
    [
        f'{MATMUL} plan {{library_kernel = "memc.cuda.matmul", precision = "tf32"}}',
        f'{MATMUL} plan {{library_kernel = "memc.cpu.matmul"}}',
        "exp(%x) plan {joint = 0, lane = 0}",
        "exp(%x) plan {joint = 0, rows = 1, mirror = 1, recompute = [2]}",
        '"aten.exp"(%x) {rows = 3, precision = "high"} plan {mirror = 1, recompute = [2]}',
        GROUP.replace("PLAN", "plan {joint = 0}").replace("INNER", "plan {mirror = 1, recompute = [1, 2]}"),
    ],
)
def test_good_plans(op: str) -> None:
    module = parse(text(op))
    verify(module)
    assert difference(module, parse(str(module))) is None and "plan {" in str(module)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (
            "exp(%x) plan {lane = 0}",
            "expected `lane` and `rows` beside the number of a joint kernel, `joint`, got none",
        ),
        (
            "exp(%x) plan {rows = 0}",
            "expected `lane` and `rows` beside the number of a joint kernel, `joint`, got none",
        ),
        (
            "exp(%x) plan {joint = 0, lane = 0, rows = 0}",
            "expected `lane` or `rows`, as a joint kernel is of one kind, got both",
        ),
        (
            'exp(%x) plan {library_kernel = "memc.cuda.exp"}',
            "expected a library kernel of exp (it has none), got 'memc.cuda.exp'",
        ),
        (f'{MATMUL} plan {{library_kernel = "memc.cuda.conv"}}', "memc.cuda.matmul), got 'memc.cuda.conv'"),
        (f'{MATMUL} plan {{precision = "tf32"}}', "expected `precision` beside a library kernel of CUDA, got None"),
        (
            f'{MATMUL} plan {{library_kernel = "memc.cpu.matmul", precision = "tf32"}}',
            "expected `precision` beside a library kernel of CUDA, got memc.cpu.matmul",
        ),
        ('"f.exp"(%x) plan {joint = 0}', "expected a plan of in_place, mirror, recompute on a foreign op, got `joint`"),
        (
            GROUP.replace("PLAN", "").replace("INNER", "plan {joint = 0}"),
            "expected `joint` in the plan of the fused op, got it on an op inside its region",
        ),
    ],
)
def test_plans_on_ops_that_have_no_such_decision(op: str, expected: str) -> None:
    found = message(op)
    assert found.startswith("invalid IR: @main") and expected in found


@pytest.mark.parametrize(
    ("attribute", "plan"),
    [
        ("in_place = 0", "in_place = 0"),
        ('library_kernel = "memc.cpu.x"', 'library_kernel = "memc.cpu.x"'),
        ('precision = "tf32"', 'precision = "tf32"'),
        ("joint = 2", "joint = 2"),
        ("lane = 2", "lane = 2"),
        ("rows = 2", "rows = 2"),
        ("mirror = 1", "mirror = 1"),
        ("recompute = 3", "recompute = [3]"),
        ("recompute = [[0, 1], 2]", "recompute = [0, 1, 2]"),
    ],
)
def test_older_text_is_told_where_its_plan_belongs(attribute: str, plan: str) -> None:
    name = attribute.split(" ")[0]
    found = message(f"exp(%x) {{{attribute}}}")
    expected = f"expected `{name}` in the plan of exp, got it among the attributes: write plan {{{plan}}}"
    assert found == f"t:2:17: {expected}"
    assert name in message(GROUP.replace("PLAN", f"{{{attribute}}}").replace("INNER", ""))
    parse(text(f"exp(%x) plan {{{plan}}}"))


@pytest.mark.parametrize("name", ["in_place", "mirror", "recompute"])
def test_older_text_of_foreign_ops(name: str) -> None:
    assert f"expected `{name}` in the plan of f.exp" in message(f'"f.exp"(%x) {{{name} = 0}}')


def test_an_op_made_with_a_decision_among_its_attributes() -> None:
    x = Value("x", TensorType(DType.F32, (4,)), role=Role.INPUT)
    op = Op("exp", [x], [Value("y", x.type)], {"joint": 0})
    found = message(Module([Function([x], [op], [op.result])]))
    assert found.startswith("invalid IR: @main, op 0 exp: expected `joint` in the plan of exp")


def test_each_field_once() -> None:
    assert (
        message("exp(%x) plan {joint = 0, joint = 1}")
        == "t:2:33: expected each field of the plan once, got joint again"
    )


def test_copies_and_snapshots_have_the_plan() -> None:
    module = parse(text("exp(%x) plan {joint = 3, recompute = [1]}"))
    (op,) = module.main.ops
    assert clone_op(op, op.operands, fresh_names(["x", "0"])).plan == op.plan == OpPlan(joint=3, recompute=(1,))
    before = Snapshot.of(module, module.main)
    op.plan = FULL
    before.restore()
    assert op.plan == OpPlan(joint=3, recompute=(1,))
    assert FULL.inside() == OpPlan(mirror=4, recompute=(5, 6))


@pytest.mark.parametrize("field", [field.name for field in fields(OpPlan)])
def test_modules_that_differ_in_a_decision_differ(field: str) -> None:
    one, other = (parse(text("exp(%x)")) for _ in range(2))
    other.main.ops[0].plan = replace(UNPLANNED, **{field: getattr(FULL, field)})
    assert difference(one, other) is not None and str(one) != str(other)
