# SPDX-License-Identifier: Apache-2.0
import pytest

from memc.ir.errors import UsageError
from memc.passes.kernels.fuse import Fuse
from memc.passes.kernels.select_kernels import SelectKernels
from memc.passes.manager import PassManager
from memc.passes.offload.offload import Offload
from memc.passes.pipeline_text import _convert
from memc.passes.placement.assign_addresses import AssignAddresses
from memc.passes.placement.in_place import InPlace
from memc.passes.placement.share import Share
from memc.passes.training.build_gradient import BuildGradient


@pytest.mark.parametrize(
    "text",
    [
        "in-place,share{strategy=color},assign-addresses{solver=best-fit,alignment=256}",
        " in-place , share{ strategy = color } ,assign-addresses{solver=best-fit alignment=256}",
        "in-place{},share,assign-addresses{ alignment=256, solver=best-fit }",
    ],
)
def test_spellings(text):
    expected = [InPlace(), Share("color"), AssignAddresses("best-fit", 256)]
    assert PassManager.parse(text).passes == expected


def test_empty_pipeline():
    assert PassManager.parse("").passes == []
    assert PassManager.parse("  ").passes == []


def test_options_with_dashes_or_underscores():
    assert PassManager.parse("fuse{max-ops=3 max_operands=4}").passes == [Fuse(max_ops=3, max_operands=4)]


def test_text_round_trip():
    text = "fuse{target=none max-ops=3},select-kernels{workspace=least},assign-addresses{solver=sequential}"
    manager = PassManager.parse(text)
    assert str(manager) == text
    assert PassManager.parse(str(manager)).passes == manager.passes
    assert manager.passes[1] == SelectKernels(workspace="least")


@pytest.mark.parametrize(
    ("frozen", "text"),
    [
        (("a", "block*"), "[a,block*]"),
        (("a b", "c"), '["a b",c]'),
        (("a,b", "[x]*", "{y}"), '["a,b","[x]*","{y}"]'),
        (("it's", 'say"x'), """["it's",'say"x']"""),
        (("",), '[""]'),
        ((), None),
    ],
)
def test_lists_round_trip(frozen, text):
    made = BuildGradient(frozen=frozen)
    assert str(made) == ("build-gradient" if text is None else f"build-gradient{{frozen={text}}}")
    assert PassManager.parse(f"canonicalize,{made}").passes[1] == made


def test_spellings_of_lists():
    for text in ("[a, b]", "[ a,b ]", "[a,,b,]", "['a',\"b\"]"):
        assert PassManager.parse(f"build-gradient{{frozen={text}}}").passes == [BuildGradient(frozen=("a", "b"))]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("in-palce", 1, ["unknown pass 'in-palce'", "did you mean 'in-place'", "known passes: assign-addresses, "]),
        ("in-place,,share", 10, ["expected a pass name, got ','"]),
        ("in-place,", 10, ["expected a pass name after ','"]),
        ("in-place share", 10, ["expected ',' between passes, got 's'"]),
        (
            "share{stratgy=color}",
            7,
            ["share has no option 'stratgy'", "did you mean 'strategy'", "alignment, strategy"],
        ),
        ("share{strategy=colour}", 16, ["expected one of color, equal-size, got 'colour'"]),
        ("in-place{alignment=big}", 20, ["expected a power of two of bytes, got 'big'"]),
        ("in-place{alignment}", 19, ["expected '=' and a value after option 'alignment'"]),
        ("in-place{alignment=1 alignment=2}", 22, ["option 'alignment' of in-place is given twice"]),
        ("in-place{alignment=64", 22, ["expected '}' after the options of in-place"]),
        ("share{strategy=[color}", 16, ["expected ']' before the end"]),
        ("materialize-returns{x=1}", 21, ["has no option 'x'", "it has no options"]),
    ],
)
def test_errors_are_one_line_with_a_position(text, position, words):
    with pytest.raises(UsageError) as error:
        PassManager.parse(text)
    message = str(error.value)
    assert message.startswith(f"pass pipeline, position {position}: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_unknown_solver_lists_the_known_ones():
    with pytest.raises(
        UsageError, match="expected one of auto, best-fit, .*sequential, got 'bestfit'; did you mean best-fit"
    ):
        PassManager.parse("assign-addresses{solver=bestfit}")


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("true", bool, True),
        ("0", bool, False),
        ("0.5", float, 0.5),
        ("none", int | None, None),
        ("3", int | None, 3),
        ("[a,b c, d]", tuple[str, ...], ("a", "b c", "d")),
        ("a", tuple[str, ...], ("a",)),
        ("{share{strategy=color},fuse}", str, "share{strategy=color},fuse"),
        ("'a b'", str, "a b"),
    ],
)
def test_option_types(text, hint, value):
    assert _convert(text, hint) == value


@pytest.mark.parametrize(
    "path", ["p.json", "slow, and spaced.json", 'an"inch.json', "it's.json", "{a}[b](c).json", "d/e-f_1.json"]
)
def test_texts_are_read_back(path: str) -> None:
    text = str(Offload(link=path))
    (found,) = PassManager.parse(f"{text},reorder").passes[:1]
    assert found == Offload(link=path)
    assert (text == f"offload{{link={path}}}") == (path in ("p.json", "d/e-f_1.json"))
