# SPDX-License-Identifier: Apache-2.0
"""memc plan: files in, plans out, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

import memc as package
from memc.ir.errors import InvalidError
from memc.planning import CapacityError, Unfit, plan

PROBLEM = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"

GRAPH = {
    "inputs": [0],
    "outputs": [4],
    "tensors": [
        {"bytes": size, "storage": storage, "storage_bytes": size} for storage, size in enumerate((4, 100, 10, 100, 10))
    ],
    "ops": [
        {"name": "a", "inputs": [0], "outputs": [1], "writes": [1]},
        {"name": "b", "inputs": [0], "outputs": [3], "writes": [3]},
        {"name": "c", "inputs": [1], "outputs": [2], "writes": [2]},
        {"name": "d", "inputs": [3, 2], "outputs": [4], "writes": [4]},
    ],
}


def test_json(memc) -> None:
    Path("p.csv").write_text(PROBLEM)
    result = memc("plan", "p.csv", "--capacity", "12", "--json", "-")
    data = json.loads(result.out)
    assert (result.code, result.err) == (0, "") and data.pop("seconds") >= 0
    assert data == {"peak": 12, "lower_bound": 12, "gap_percent": 0.0, "proven_optimal": True, "solver": "auto"}
    full = json.loads(memc("plan", "p.csv", "--json", "-", "--full").out)
    assert set(full["offsets"]) == {"b1", "b2", "b3", "b4", "b5"} and "order" not in full


def test_table_and_csv(memc) -> None:
    Path("p.csv").write_text(PROBLEM)
    result = memc("plan", "p.csv", "-o", "plan.csv")
    assert result.code == 0 and "12 B" in result.out and "proven optimal" in result.out
    lines = Path("plan.csv").read_text().splitlines()
    assert lines[0] == "id,lower,upper,size,offset" and [line.rsplit(",", 1)[0] for line in lines] == [
        "id,lower,upper,size",
        *PROBLEM.splitlines()[1:],
    ]
    # A plan is a problem in which everything is pre-placed.
    assert memc("plan", "plan.csv", "--csv", "-").out == Path("plan.csv").read_text()


def test_inclusive_ends(memc) -> None:
    Path("p.csv").write_text("buffer_id,start,end,size,hint\na,0,2,4,0\nb,3,5,4,\n")
    assert memc("plan", "p.csv", "--csv", "-").out == "id,lower,upper,size,offset\na,0,3,4,0\nb,3,6,4,0\n"


def test_aliases_are_one_block(memc) -> None:
    Path("p.csv").write_text(
        "id,lower,upper,size,offset,alias,alias_offset\nroot,0,2,10,16,,\nin,2,5,4,,root,6\nout,3,4,8,,root,8\nx,4,5,1,,,\n"
    )
    data = json.loads(memc("plan", "p.csv", "--json", "-", "--full").out)
    assert data["offsets"] == {"root": 16, "in": 22, "out": 24, "x": 0} and data["peak"] == 32


def test_spaces(memc) -> None:
    Path("p.csv").write_text("id,lower,upper,size,space\na,0,2,10,fast\nb,0,2,20,slow\nc,0,2,5,fast\n")
    result = memc("plan", "p.csv", "--capacity", "fast=16", "--capacity", "slow=1KiB", "--json", "-")
    data = json.loads(result.out)
    assert data["spaces"] == [
        {"name": "fast", "peak": 15, "lower_bound": 15, "capacity": 16},
        {"name": "slow", "peak": 20, "lower_bound": 20, "capacity": 1024},
    ]
    result = memc("plan", "p.csv", "--capacity", "fast=14")
    assert result.code == 4 and "of fast is not met: the least peak found is 15 bytes" in result.err
    assert "expected one for each of the spaces fast, slow" in memc("plan", "p.csv", "--capacity", "9").err
    assert "expected a space among fast, slow, got `l2`" in memc("plan", "p.csv", "--capacity", "l2=9").err


def test_graph(memc) -> None:
    Path("g.json").write_text(json.dumps(GRAPH))
    given = json.loads(memc("plan", "g.json", "--json", "-", "--full").out)
    assert given["peak"] == 210 and given["order"] == [0, 1, 2, 3] and set(given["offsets"]) == {"1", "2", "3", "4"}
    best = json.loads(memc("plan", "g.json", "--reorder", "--order-solver", "list", "--json", "-", "--full").out)
    assert best["peak"] == 120 and best["order"] == [0, 2, 1, 3]
    assert best["lower_bound"] <= 120


def test_ir_and_onnx(memc, text: str, model: str) -> None:
    assert json.loads(memc("plan", text, "--json", "-").out)["peak"] == 128
    assert memc("plan", model, "--json", "-").code == 0
    assert "only a dataflow graph" in memc("plan", text, "--reorder").err


def test_list_solvers(memc) -> None:
    lines = memc("plan", "--list-solvers").out.splitlines()
    assert lines[0].startswith("addresses: auto, best-fit") and lines[1].startswith("order: ")


def test_over_capacity(memc) -> None:
    Path("p.csv").write_text(PROBLEM)
    result = memc("plan", "p.csv", "--capacity", "11", "-o", "out.csv")
    assert result.code == 4 and result.out == "" and not Path("out.csv").exists()
    assert result.err == (
        "memc: error: p.csv: capacity of 11 bytes (11 B) of arena is not met: the least peak found is 12 bytes, "
        "the lower bound 12; proven not to fit; live at step 0 with 12 bytes: `b1`, `b3`, `b5`\n"
    )
    result = memc("plan", "p.csv", "--capacity", "11", "--json", "-")
    assert result.code == 4
    assert json.loads(result.out)["unfit"] == {
        "space": "arena",
        "capacity": 11,
        "tensors": ["b1", "b3", "b5"],
        "bytes": 12,
        "moment": 0,
        "proven": True,
        "minimal": True,
    }


def test_a_set_that_does_not_fit_though_no_live_set_is_too_large(memc) -> None:
    """One moment's tensors need 6 bytes at most, yet those aligned to 4 leave no room for the third."""
    Path("p.csv").write_text(
        "id,lower,upper,size,alignment,alias\na,0,2,3,4,\nb,0,2,2,4,\nc,0,2,1,1,\nv,0,1,1,,a\nd,5,6,1,1,\n"
    )
    result = memc("plan", "p.csv", "--capacity", "5")
    assert result.code == 4 and result.err.endswith(
        "proven not to fit; a set that does not fit (2 of the tensors): `a`, `b`\n"
    )
    with pytest.raises(CapacityError) as error:
        plan("p.csv", capacity=5)
    assert error.value.unfit == Unfit("arena", 5, ["a", "b"], 5, None, True, True)
    assert memc("plan", "p.csv", "--capacity", "6").code == 0


def test_a_heuristic_that_misses_the_capacity_proves_nothing(memc) -> None:
    Path("p.csv").write_text("id,lower,upper,size\na,0,2,1\nb,1,3,2\nc,2,4,3\nd,3,5,2\n")
    peak = json.loads(memc("plan", "p.csv", "--solver", "sequential", "--json", "-").out)["peak"]
    result = memc("plan", "p.csv", "--solver", "sequential", "--capacity", str(peak - 1))
    assert result.code == 4 and result.err.endswith("; not proven impossible\n")


def test_gaps(memc) -> None:
    content = "id,lower,upper,size,gaps\na,0,9,8,3-7\nb,3,7,8,\nc,8,12,4,9-10 10-11\n"
    Path("p.csv").write_text(content.replace(" 10-11", ""))
    assert json.loads(memc("plan", "p.csv", "--json", "-").out)["peak"] == 12
    assert memc("plan", "p.csv", "--csv", "-").out == (
        "id,lower,upper,size,offset,gaps\na,0,9,8,0,3-7\nb,3,7,8,0,\nc,8,12,4,8,9-10\n"
    )
    Path("p.csv").write_text("id,start,end,size,gaps\na,0,8,8,3-6\nb,3,6,8,\n")
    assert json.loads(memc("plan", "p.csv", "--json", "-").out)["peak"] == 8


def test_alignments_that_differ(memc) -> None:
    Path("p.csv").write_text("id,lower,upper,size,alignment\na,0,2,3,4\nb,0,2,2,8\nc,0,2,1,\n")
    plan_csv = memc("plan", "p.csv", "--csv", "-").out
    assert plan_csv.startswith("id,lower,upper,size,offset,alignment\n")
    offsets = {line.split(",")[0]: int(line.split(",")[4]) for line in plan_csv.splitlines()[1:]}
    assert (
        offsets["b"] % 8 == offsets["a"] % 4 == 0 and json.loads(memc("plan", "p.csv", "--json", "-").out)["peak"] == 7
    )
    # Instead of the file's.
    assert json.loads(memc("plan", "p.csv", "--alignment", "16", "--json", "-").out)["peak"] == 48


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("", 3, "p.csv: expected a header such as id,lower,upper,size, got an empty file"),
        ("id,lower,upper\na,0,1\n", 3, "p.csv:1: expected one column `size`, got id, lower, upper"),
        ("id,lower,upper,size,sise\n", 3, "p.csv:1: expected columns among"),
        ("id,lower,start,upper,size\n", 3, "p.csv:1: expected one column `lower`"),
        ("id,lower,upper,size\na,0,1\n", 3, "p.csv:2: expected 4 fields, got 3"),
        ("id,lower,upper,size\na,0,1,4\nb,0,1,-4\n", 3, "p.csv:3: size: expected bytes from 0 to 2**62, got -4"),
        ("id,lower,upper,size\na,0,1,9999999999999999999\n", 3, "p.csv:2: size: expected bytes from 0 to 2**62"),
        ("id,lower,upper,size\na,0,1,1.5\n", 3, "p.csv:2: size: expected a whole number, got `1.5`"),
        ("id,lower,upper,size\na,0,1,1_000\n", 3, "p.csv:2: size: expected a whole number, got `1_000`"),
        ("id,lower,upper,size\na,0,1,٣\n", 3, "p.csv:2: size: expected a whole number, got `٣`"),
        ("id,lower,upper,size\na,nan,1,4\n", 3, "p.csv:2: lower: expected a whole number, got `nan`"),
        ("id,lower,upper,size\na,0,true,4\n", 3, "p.csv:2: upper: expected a whole number, got `true`"),
        (f"id,lower,upper,size\na,0,1,{'9' * 5000}\n", 3, "p.csv:2: size: expected bytes from 0 to 2**62, got `999"),
        ("id,lower,upper,size\na,2,2,4\n", 3, "p.csv:2: upper: expected more than lower = 2, got 2"),
        ("id,lower,upper,size\na,0,1,4\na,0,1,4\n", 3, "p.csv:3: id: expected a new id, got `a` again"),
        ("id,lower,upper,size,gaps\na,0,9,4,2\n", 3, "p.csv:2: gaps: expected gaps such as 3-7 9-11, got `2`"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-3@1:2\n", 3, "p.csv:2: gaps: expected gaps of all bytes, such as 3-7"),
        (
            "id,lower,upper,size,gaps\na,0,9,4,0-3\n",
            3,
            "p.csv:2: gaps: expected gaps in order within 0 to 9, with live",
        ),
        ("id,lower,upper,size,gaps\na,0,9,4,2-4 4-6\n", 3, "p.csv:2: gaps: expected gaps in order within 0 to 9"),
        ("id,lower,upper,size,alignment\na,0,9,4,2\nb,0,9,4,0\n", 3, "p.csv:3: alignment: expected 1 or more bytes"),
        (f"id,lower,upper,size,alignment\na,0,9,4,2\nb,0,9,4,{2**41}\n", 3, "p.csv:3: alignment: expected 2**40 bytes"),
        ("id,lower,upper,size,alignment\na,0,9,4,0\n", 3, "p.csv:2: alignment: expected 1 or more bytes, got 0"),
        ("id,lower,upper,size,alias\na,0,9,4,b\n", 3, "p.csv:2: alias: expected the id of a tensor that is no alias"),
        ("id,lower,upper,size,offset\na,0,9,4,0\nb,0,9,4,2\n", 3, "p.csv: offset: tensors `a` and `b` overlap"),
        ("id,lower,upper,size,offset\na,0,9,4,-2\n", 3, "p.csv:2: offset: expected bytes from 0 to 2**62, got -2"),
    ],
)
def test_bad_problems(memc, content: str, code: int, message: str) -> None:
    Path("p.csv").write_text(content)
    result = memc("plan", "p.csv")
    assert result.code == code and result.out == "" and result.err.startswith(f"memc: error: {message}")
    assert result.err.count("\n") == 1


def test_sums_that_overflow(memc) -> None:
    rows = "".join(f"t{i},0,1,{10**18}\n" for i in range(20))
    Path("p.csv").write_text("id,lower,upper,size\n" + rows)
    result = memc("plan", "p.csv")
    assert (result.code, result.err) == (3, "memc: error: p.csv: the sizes together exceed 2**63 - 1 bytes\n")
    Path("p.csv").write_text("id,lower,upper,size\n" + rows[: rows.index("t3")])
    assert json.loads(memc("plan", "p.csv", "--json", "-").out)["peak"] == 3 * 10**18


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing FILE"),
        (["p.csv", "--solver", "magic"], "solver `magic`: expected one of auto"),
        (["p.csv", "--order-solver", "magic", "--reorder"], "order solver `magic`: expected one of auto"),
        (["p.csv", "--order-solver", "list"], "--order-solver: expected --reorder with it"),
        (["p.csv", "--full"], "--full: expected --json FILE with it"),
        (["p.csv", "--time-limit", "soon"], "--time-limit soon: expected a duration such as 2s, 500ms or 1.5m"),
        (
            ["p.csv", "--capacity", "9" * 5000],
            "size `9999999999999999999999999999999999999999`: expected less than 2**63",
        ),
        (["p.csv", "--capacity", "9" * 400 + ".5T"], "size `9999999999999999999999999999999999999999`: expected less"),
        (["p.csv", "--alignment", str(2**63)], "size `9223372036854775808`: expected less than 2**63 bytes"),
        (["p.csv", "--threads", str(10**40)], "threads: expected a whole number of 64 bits, got 1000"),
        (["p.csv", "--threads", "2000"], "threads: expected a whole number from 1 to 1024, got 2000"),
        (["p.csv", "--capacity", "many"], "size `many`: expected a number of bytes"),
        (["p.csv", "--alignment", "0"], "alignment: expected bytes from 1 to 1099511627776, got 0"),
        (["p.csv", "--json", "-", "--csv", "-"], "--json and --csv: expected one of them on standard output, got both"),
        (["p.csv", "--reorder"], "p.csv: only a dataflow graph can be reordered here"),
    ],
)
def test_bad_usage(memc, arguments: list[str], message: str) -> None:
    Path("p.csv").write_text(PROBLEM)
    result = memc("plan", *arguments)
    assert result.code == 2 and result.err.startswith(f"memc: error: {message}") and result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.csv", "absent.csv: cannot read: No such file or directory"),
        ("/dev/zero", "/dev/zero: cannot read: expected a file, got a device"),
        ("q.csv\n.csv", "q.csv .csv: cannot read"),
    ],
)
def test_a_file_that_cannot_be_read(memc, name: str, message: str) -> None:
    result = memc("plan", name)
    assert result.code == 3 and result.err.startswith(f"memc: error: {message}") and result.err.count("\n") == 1


def test_binary_file(memc) -> None:
    Path("p.csv").write_bytes(bytes(range(256)))
    result = memc("plan", "p.csv")
    assert result.code == 3 and result.err.startswith("memc: error: p.csv: expected CSV in UTF-8")


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", 1.5), ("size", float("nan")), ("size", True), ("size", 2**63), ("lower", 0.0), ("upper", "3"), ("id", 7)],
)
def test_tensors_with_what_is_no_number(field: str, value: object) -> None:
    given = {"id": "a", "lower": 0, "upper": 3, "size": 4, field: value}
    with pytest.raises(InvalidError, match=r"tensors\[0\]"):
        package.plan([package.Tensor(**given)])  # type: ignore[arg-type]


def test_a_tensor_larger_than_its_storage(memc) -> None:
    graph = json.loads(json.dumps(GRAPH))
    graph["tensors"][1]["storage_bytes"] = 1
    Path("g.json").write_text(json.dumps(graph))
    for arguments in (["plan", "g.json"], ["plan", "g.json", "--reorder"], ["opt", "g.json"]):
        result = memc(*arguments)
        assert (result.code, result.out) == (3, "")
        assert result.err == (
            "memc: error: g.json: tensors[1].bytes: expected at most the 1 storage_bytes of storage 1, got 100\n"
        )
    # A view that repeats elements may be larger, as long as nothing writes through it.
    graph = json.loads(json.dumps(GRAPH))
    graph["tensors"].append({"bytes": 1000, "storage": 2, "storage_bytes": 10})
    graph["ops"].insert(3, {"name": "expand", "inputs": [2], "outputs": [5], "writes": []})
    Path("g.json").write_text(json.dumps(graph))
    assert memc("plan", "g.json", "-q").code == 0
    graph["ops"][3]["writes"] = [2]
    Path("g.json").write_text(json.dumps(graph))
    assert "tensors[5].bytes: expected at most the 10 storage_bytes" in memc("plan", "g.json").err


def test_keys_that_are_given_twice(memc) -> None:
    text = json.dumps(GRAPH).replace('{"bytes": 100,', '{"bytes": 1, "bytes": 100,', 1)
    Path("g.json").write_text(text)
    result = memc("plan", "g.json")
    assert (result.code, result.err) == (
        3,
        "memc: error: g.json: expected each key of an object once, got 'bytes' again\n",
    )


def test_api() -> None:
    tensors = [package.Tensor("a", 0, 2, 100), package.Tensor("b", 1, 3, 50), package.Tensor("c", 2, 3, 100)]
    plan = package.plan(tensors, alignment=4)
    assert plan.peak == 152 and plan.proven_optimal and len(plan.offsets) == 3
    with pytest.raises(InvalidError, match=r"tensors\[1\]: id: expected a new id, got `a` again"):
        package.plan([package.Tensor("a", 0, 2, 1), package.Tensor("a", 0, 2, 1)])


def test_open_dimensions_are_bound_as_in_compile(memc) -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        g (float[n,16] x, float[16,16] w) => (float[n,16] y) { a = MatMul(x, w) b = MatMul(a, w) y = MatMul(b, w) }""")
    onnx.save(model, "open.onnx")
    for arguments in (["--dim", "n=64"], ["--input-shapes", "x:[64,16]"], ["--dim", "n=64", "--bind", "w=2"]):
        result = memc("plan", "open.onnx", *arguments, "--json", "-")
        # Two of the products at once, 4 KiB each.
        assert (result.code, result.err) == (0, "") and json.loads(result.out)["peak"] == 2 * 64 * 16 * 4
    assert memc("plan", "open.onnx", "--dim", "m=64").err.startswith("memc: error: dims: the model has no `m`")


def test_units_and_shares(memc) -> None:
    """Of 300 bytes in all, of which 200 are live at a time."""
    Path("p.csv").write_text("id,lower,upper,size\na,0,2,100\nb,1,3,100\nc,2,4,100\n")
    assert memc("plan", "p.csv", "--capacity", "67%").code == 0
    result = memc("plan", "p.csv", "--capacity", "66%")
    assert result.code == 4 and "p.csv: capacity of 198 bytes (198 B) of arena is not met" in result.err
    assert memc("plan", "p.csv", "--capacity", "arena=67%").code == 0
    assert json.loads(memc("plan", "p.csv", "--alignment", "0.5KiB", "--json", "-").out)["peak"] == 1024
    result = memc("plan", "p.csv", "--capacity", "120%")
    assert (result.code, result.err) == (
        2,
        "memc: error: capacity: expected a whole number or text such as 4GiB or 50%, got '120%'\n",
    )
    tensors = [package.Tensor("a", 0, 2, 100), package.Tensor("b", 2, 4, 100)]
    found = package.plan(tensors, capacity={"arena": "50%"}, alignment="50B")
    assert (found.peak, found.spaces[0].capacity) == (100, 100)
