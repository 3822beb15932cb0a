# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from memc.ir.core import Placement
from memc.ir.errors import CheckError, UsageError
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes import registry
from memc.passes.base import Pass
from memc.passes.manager import PassManager

TEXT = """
func @main(%x: f32[4,16] {role = input}) -> f32[4,16] {
  %0 = exp(%x) : f32[4,16]
  %1 = exp(%x) : f32[4,16]
  %2 = add(%0, %1) : f32[4,16]
  return %2
}
"""


@dataclass(frozen=True)
class Breaks(Pass):
    name: ClassVar[str] = "breaks"

    def apply(self, module: Module) -> None:
        module.main.ops.reverse()


@dataclass(frozen=True)
class Overlaps(Pass):
    name: ClassVar[str] = "overlaps"
    plans: ClassVar[bool] = True

    def apply(self, module: Module) -> None:
        for op in module.main.ops[:2]:
            op.result.placement = Placement("arena", 0)


def test_names_the_pass_that_broke_the_ir():
    with pytest.raises(CheckError, match="after pass breaks: invalid IR: @main, op 0 add"):
        PassManager([Breaks()]).run(parse(TEXT))


def test_checks_plans_even_without_verification():
    manager = PassManager([Overlaps()], verify_each=False)
    with pytest.raises(
        CheckError, match=r"after pass overlaps: bad plan: @main, op 2 add, %0: expected its data .* got %1"
    ):
        manager.run(parse(TEXT))


def test_dumps_after_all_and_after_change():
    for after_all, expected in ((True, ["MaterializeReturns", "Canonicalize"]), (False, ["Canonicalize"])):
        found: list[str] = []
        manager = PassManager.parse("materialize-returns,canonicalize")
        manager.print_ir_after_all, manager.print_ir_after_change = after_all, not after_all
        manager.dump = found.append
        manager.run(parse(TEXT))
        assert [text.split()[5] for text in found] == expected
    assert found[0].startswith("// -----// IR Dump After Canonicalize (canonicalize) //----- //\nfunc @main(")


def test_stop_after_and_timings():
    module = parse(TEXT)
    manager = PassManager.parse("canonicalize,assign-addresses{solver=none}")
    manager.stop_after = 1
    manager.run(module)
    assert [name for name, seconds in manager.timings if seconds >= 0] == ["canonicalize"]
    assert all(v.placement is None for v in module.main.values())


def test_third_party_passes(monkeypatch):
    entry = EntryPoint("breaks", f"{__name__}:Breaks", "memc.passes")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Breaks)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry.known_passes.cache_clear()
    try:
        assert PassManager.parse("breaks").passes == [Breaks()]
        monkeypatch.setattr(EntryPoint, "load", lambda self: int)
        registry.known_passes.cache_clear()
        with pytest.raises(UsageError, match="expected a Pass class of that name"):
            PassManager.parse("breaks")
    finally:
        registry.known_passes.cache_clear()
