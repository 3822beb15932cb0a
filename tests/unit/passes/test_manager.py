# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from memc.ir.core import Placement
from memc.ir.errors import CheckError, InvalidError, UsageError
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


@pytest.mark.parametrize(
    "results, body, value",
    [
        ("f32[4]", "return %x", "x"),
        ("f32[4]", "%k = constant() {value = dense<f32[4]>[1.0,2.0,3.0,4.0]} : f32[4]\nreturn %k", "k"),
        ("(f32[4], f32[4])", "%a = exp(%x) : f32[4]\nreturn %a, %a", "a"),
        (
            "(f32[4], f32[4])",
            "%a = exp(%x) : f32[4]\n%b = reshape(%a) {shape = [4]} : f32[4] alias %a[0]\nreturn %a, %b",
            "b",
        ),
        (
            "f32[4]",
            "%a = exp(%x) : f32[4] alias %c[0]\n%c = concat(%a, %x) {axis = 0} : f32[8]\n"
            "%d = exp(%c) : f32[8]\nreturn %a",
            "a",
        ),
    ],
)
def test_returned_values_without_a_buffer_of_their_own_are_not_planned(results, body, value):
    module = parse(f"func @main(%x: f32[4] {{role = input}}) -> {results} {{\n{body}\n}}")
    words = f"pass assign-addresses: @main, %{value}: expected each returned value in a buffer of its own"
    with pytest.raises(InvalidError, match=words):
        PassManager.parse("assign-addresses").run(module)


def test_the_new_content_of_a_state_is_returned_in_its_place():
    text = """
func @main(%x: f32[4] {role = input}, %s: f32[4] {role = state}) -> f32[4] {
  %a = exp(%x) : f32[4]
  %n = assign(%s, %a) plan {in_place = 0} : f32[4] alias %s[0]
  return %n
}
"""
    module = parse(text)
    PassManager.parse("assign-addresses").run(module)
    (placed,) = (v for op in module.main.ops for v in op.results if v.name == "a")
    assert placed.placement == Placement("arena", 0)


@pytest.mark.parametrize("alignment, fits", [(64, True), (128, False)])
def test_aliases_at_offsets_that_an_alignment_does_not_allow(alignment, fits):
    module = parse("""
func @main(%x: f32[16] {role = input}) -> f32[32] {
  %a = exp(%x) : f32[16] alias %c[0]
  %b = exp(%x) : f32[16] alias %c[64]
  %c = concat(%a, %b) {axis = 0} : f32[32]
  %d = exp(%c) : f32[32]
  return %d
}
""")
    manager = PassManager.parse(f"assign-addresses{{alignment={alignment}}}")
    if fits:
        manager.run(module)
    else:
        with pytest.raises(InvalidError, match="%b: expected an alias at a multiple of 128 bytes, got 64"):
            manager.run(module)
