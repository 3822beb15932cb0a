# SPDX-License-Identifier: Apache-2.0
"""Problems and plans as CSV: columns of many rows at a time say what row after row says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.errors import InvalidError
from memc.planning import Tensor, csv_file
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
            tensors.append(Tensor(name, lower, lower + length, size, space=space))
        else:
            within = draw(st.integers(0, 20))
            tensors.append(Tensor(name, lower, lower + length, size, None, root.id, within, root.space))
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
    assert alignment == 1
    assert [(*vars(t).values(),) for t in read] == [
        (t.id, t.lower, t.upper, t.size, offset, t.alias, t.alias_offset, t.space)
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
    with pytest.raises(InvalidError, match=r"tensors\[1\]: size: expected a number of 64 bits, got 9"):
        TensorColumns.of([Tensor("a", 0, 1, 1), Tensor("b", 0, 1, 2**63)])
