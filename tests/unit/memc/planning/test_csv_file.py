# SPDX-License-Identifier: Apache-2.0
"""Problems and plans as CSV: columns of many rows at a time say what row after row says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.errors import InvalidError
from memc.planning import Tensor, csv_file, plan
from memc.planning.csv_file import plan_csv, read_csv
from memc.planning.tensors import TensorColumns, blocks_of

NAMES = st.text(st.sampled_from('ab,"\n\r é'), min_size=1, max_size=4).map(str.strip).filter(bool)


@st.composite
def problems(draw: st.DrawFn) -> list[Tensor]:
    """Tensors of two spaces, some of them aliases."""
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    tensors: list[Tensor] = []
    for name in names:
        lower, length, size = draw(st.tuples(st.integers(-9, 9), st.integers(1, 9), st.integers(0, 99)))
        roots = [t for t in tensors if t.alias is None]
        root = draw(st.sampled_from(roots)) if roots and draw(st.booleans()) else None
        if root is None:
            space = draw(st.sampled_from(["arena", "sram"]))
            alignment = draw(st.sampled_from([1, 4, 6]))
            lives = ((lower, lower + 2), (lower + 3, lower + length)) if length > 3 and draw(st.booleans()) else ()
            tensors.append(Tensor(name, lower, lower + length, size, None, None, 0, space, lives, alignment))
        else:
            within = draw(st.integers(0, 20))
            tensors.append(Tensor(name, lower, lower + length, size, None, root.id, within, root.space, (), 1))
    return tensors


@given(problems(), st.integers(1, 3))
def test_a_plan_read_again_is_the_problem_with_its_offsets(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[Tensor], rows: int
) -> None:
    offsets = list(range(len(tensors)))
    path = tmp_path_factory.mktemp("plan") / "plan.csv"
    path.write_bytes(plan_csv(tensors, offsets).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "ROWS", rows)
        read, alignment = read_csv(path)
    common = {t.alignment for t in tensors}
    assert alignment == (min(common) if len(common) == 1 else 1)
    assert [(*vars(t).values(),) for t in read] == [
        (
            *(t.id, t.lower, t.upper, t.size, offset, t.alias, t.alias_offset, t.space, t.lives),
            None if len(common) == 1 else t.alignment,
        )
        for t, offset in zip(tensors, offsets)
    ]


@given(problems())
def test_blocks_hold_their_tensors(tensors: list[Tensor]) -> None:
    blocks = blocks_of(TensorColumns.of(tensors))
    for number, buffer in enumerate(blocks.buffers):
        members = [t for t, block in zip(tensors, blocks.block.tolist()) if block == number]
        (root,) = (t for t in members if t.alias is None)
        assert all(t.alias in (None, root.id) for t in members)
        assert buffer.lower == min(t.lower for t in members) and buffer.upper == max(t.upper for t in members)
        assert buffer.size == max(t.size + t.alias_offset for t in members)
        for time in range(buffer.lower, buffer.upper):
            alive = any(lo <= time < up for t in members for lo, up in t.lives or ((t.lower, t.upper),))
            gap = any(end <= time < begin for t in members for (_, end), (begin, _) in pairwise(t.lives))
            live = any(lo <= time < up for lo, up in buffer.lives or ((buffer.lower, buffer.upper),))
            assert live == (alive or not gap)
        assert buffer.alignment == root.alignment
        assert blocks.spaces is None or blocks.spaces[number] == root.space
    assert blocks.within.tolist() == [t.alias_offset for t in tensors]


@pytest.mark.parametrize("quote", ["", '"'])
def test_quotes_change_nothing(tmp_path: Path, quote: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"id,lower,upper,size\r\n{quote}a{quote},0,2,4\r\nb, 1 ,3,5\r\n", newline="")
    tensors, _ = read_csv(path)
    assert list(tensors) == [Tensor("a", 0, 2, 4), Tensor("b", 1, 3, 5)]
    path.write_text(f"id,lower,upper,size\n{quote}a{quote},0,2,4\nb,1,3\n")
    with pytest.raises(InvalidError, match="p.csv:3: expected 4 fields, got 3"):
        read_csv(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('id,lower,upper,size\n"a,0,1,4\nb,0,1,4\n', r"p.csv:3: expected CSV with quotes in pairs, got: "),
        ('id,lower,upper,size\na,0,1,"4\n,"\n', r"p.csv:2: size: expected a whole number, got `4\?,`$"),
    ],
)
def test_errors_are_one_line_whatever_the_text_holds(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(content)
    with pytest.raises(InvalidError, match=message):
        read_csv(path)


def test_numbers_beyond_64_bits() -> None:
    with pytest.raises(InvalidError, match=r"tensors\[1\]: size: expected a whole number of 64 bits, got 9"):
        TensorColumns.of([Tensor("a", 0, 1, 1), Tensor("b", 0, 1, 2**63)])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            Tensor("a", 0, 9, 1, lives=((0, 3), (3, 9))),
            r"tensors\[0\]: lives: expected intervals with gaps between them",
        ),
        (
            Tensor("a", 0, 9, 1, lives=((0, 3), (5, 8))),
            r"tensors\[0\]: lives: expected intervals with gaps between them",
        ),
        (Tensor("a", 0, 9, 1, lives=5), r"tensors\[0\]: lives: expected intervals .* got 5"),  # type: ignore[arg-type]
        (Tensor("a", 0, 9, 1, alignment=0), r"tensors\[0\]: alignment: expected 1 to 2\*\*40 bytes, got 0"),
        (Tensor("a", 0, 9, 1, alignment=2**41), r"tensors\[0\]: alignment: expected 1 to 2\*\*40 bytes"),
    ],
)
def test_tensors_with_wrong_gaps_or_alignments(tensor: Tensor, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        plan([tensor])


def test_an_alias_keeps_its_own_alignment() -> None:
    tensors = [
        Tensor("x", 0, 2, 5),
        Tensor("a", 0, 2, 16, alignment=4),
        Tensor("v", 1, 3, 4, None, "a", 8, alignment=8),
    ]
    made = plan(tensors)
    assert made.offsets[2] == made.offsets[1] + 8 and made.offsets[2] % 8 == 0 and made.peak == 21
    with pytest.raises(
        InvalidError, match=r"tensors\[1\]: alias_offset: expected a multiple of its alignment 8, got 4"
    ):
        plan([Tensor("a", 0, 2, 16), Tensor("v", 1, 3, 4, None, "a", 4, alignment=8)])


def test_a_tensor_in_the_gap_of_another() -> None:
    made = plan([Tensor("a", 0, 9, 8, lives=((0, 3), (7, 9))), Tensor("b", 3, 7, 8)], alignment=8)
    assert made.peak == made.lower_bound == 8
