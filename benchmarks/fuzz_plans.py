# SPDX-License-Identifier: Apache-2.0
"""JSON graphs and CSV placement problems drawn at random through `memc plan`: prints the seed of each case that fails.

    python benchmarks/fuzz_plans.py --first 0 --count 2000 --save /tmp/plans

A valid graph or problem must get a plan in which no two tensors that are live together overlap, checked pair by pair
from lifetimes that are found here; its peak is at least the bound, and that is at least the largest live set of the order
(with --reorder, an order that is checked too). A changed one is planned, or refused in one line. Exit code 1 if anything
failed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from fuzzing import Case, fuzz, run_memc, wrong_with
from text_mutations import mutate, of_bytes

Live = tuple[str, int, int, int]
"""Name, first step, step after the last, bytes."""

STRANGE: tuple[Any, ...] = (
    *(
        0,
        1,
        -1,
        2**31,
        2**62,
        2**63,
        10**40,
        1.0,
        0.5,
        float("nan"),
        float("inf"),
        True,
        False,
        None,
        "",
        "x",
        "0",
        "é",
    ),
    *([], [0], [0, 0], [-1], [[0]], [1.0], {}, {"bytes": 1}, [None], [2**63]),
)


def draw_graph(rng: random.Random) -> dict[str, Any]:
    """A valid graph: ops that make tensors in new storages, views, writes in place, and dead ends."""
    tensors: list[dict[str, Any]] = []
    ops: list[dict[str, Any]] = []
    sizes: list[int] = []

    def new_tensor(storage: int | None = None) -> int:
        if storage is None:
            storage = len(sizes)
            sizes.append(4 * rng.choice((0, 1, 3, 16, 16, 64, 100, 2**20)))
        tensor = {"bytes": sizes[storage], "storage": storage, "storage_bytes": sizes[storage]}
        if rng.random() < 0.5:
            tensor |= {"shape": [sizes[storage] // 4], "dtype": "float32"}
        tensors.append(tensor)
        return len(tensors) - 1

    inputs = [new_tensor() for _ in range(rng.randrange(4))]
    there = list(inputs)
    for number in range(rng.randrange(1, 25)):
        read = [rng.choice(there) for _ in range(rng.randrange(4))] if there else []
        op: dict[str, Any] = {"name": f"op{number}", "inputs": read, "outputs": []}
        kind = rng.randrange(6)
        if read and kind == 0:
            op["outputs"], op["writes"] = [new_tensor(tensors[read[0]]["storage"])], []
        elif read and kind == 1:
            storage = tensors[read[0]]["storage"]
            op["outputs"], op["writes"] = [new_tensor(storage)], [storage]
        elif kind > 2 or rng.random() < 0.7:
            op["outputs"] = [new_tensor() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
            if rng.random() < 0.5:
                op["writes"] = [tensors[t]["storage"] for t in op["outputs"]]
        if rng.random() < 0.3:
            op["target"] = rng.choice(("aten.mm.default", "aten.bernoulli_.float", "f"))
        there += op["outputs"]
        ops.append(op)
    outputs = rng.sample(there, rng.randrange(min(4, len(there)) + 1)) if there else []
    return {"inputs": inputs, "outputs": outputs, "tensors": tensors, "ops": ops}


def lives_of(graph: dict[str, Any], order: Sequence[int]) -> list[Live]:
    """The storages to place by the words of docs/plan.md, each found by a search of all ops."""
    tensors, ops = graph["tensors"], [graph["ops"][index] for index in order]
    persistent = {tensors[t]["storage"] for t in graph["inputs"]}
    lives: list[Live] = []
    sizes: dict[int, int] = {}
    views = {
        t for op in ops for t in op["outputs"] if tensors[t]["storage"] not in op.get("writes", [tensors[t]["storage"]])
    }
    for index, tensor in enumerate(tensors):
        needs = tensor["storage_bytes"] if index in views else max(tensor["storage_bytes"], tensor["bytes"])
        sizes[tensor["storage"]] = max(needs, sizes.get(tensor["storage"], 0))
    for storage, size in sorted(sizes.items()):
        touched = [
            step
            for step, op in enumerate(ops)
            if storage in {*(tensors[t]["storage"] for t in (*op["inputs"], *op["outputs"])), *op.get("writes", ())}
        ]
        if touched and storage not in persistent:
            kept = any(tensors[t]["storage"] == storage for t in graph["outputs"])
            lives.append((str(storage), touched[0], len(ops) if kept else touched[-1] + 1, size))
    return lives


def draw_problem(rng: random.Random) -> list[Live]:
    """Tensors with lifetimes."""
    last = rng.choice((1, 3, 20, 1000))
    lives: list[Live] = []
    for number in range(rng.randrange(40)):
        lower = rng.randrange(-2, last)
        upper = rng.randrange(lower + 1, last + 2)
        lives.append((f"b{number}", lower, upper, rng.choice((0, 1, 4, 64, 100, 4096, 2**30))))
    return lives


def as_csv(rng: random.Random, lives: Sequence[Live], alignment: int) -> str:
    """A CSV problem, with columns in any order and some that say nothing."""
    names = ["id", "lower", "upper", "size"]
    extra = [name for name in ("alignment", "hint", "space", "offset") if rng.random() < 0.3]
    if alignment > 1 and "alignment" not in extra:
        extra.append("alignment")
    names += extra
    rng.shuffle(names)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator=rng.choice(("\n", "\r\n")), restval="")
    writer.writeheader()
    for name, lower, upper, size in lives:
        row = {"id": name, "lower": lower, "upper": upper, "size": size}
        writer.writerow(row | ({"alignment": alignment} if "alignment" in names else {}))
    return out.getvalue()


def faults_of(found: dict[str, Any], lives: Sequence[Live], alignment: int) -> list[str]:
    """What is wrong with a plan, pair by pair."""
    faults: list[str] = []
    offsets = found["offsets"]
    if sorted(offsets) != sorted(name for name, *_ in lives):
        return [f"places {sorted(offsets)}, expected {sorted(name for name, *_ in lives)}"]
    size = {name: -(-nbytes // alignment) * alignment for name, _, _, nbytes in lives}
    for number, (a, low, high, nbytes) in enumerate(lives):
        if offsets[a] % alignment or offsets[a] < 0:
            faults.append(f"{a} at {offsets[a]}, alignment {alignment}")
        for b, start, end, others in lives[:number]:
            together = max(low, start) < min(high, end)
            if together and max(offsets[a], offsets[b]) < min(offsets[a] + nbytes, offsets[b] + others):
                faults.append(f"{a} and {b} overlap")
    ends = max((offsets[name] + size[name] for name, *_ in lives), default=0)
    steps = {low for _, low, _, _ in lives}
    largest = max((sum(size[n] for n, low, high, _ in lives if low <= at < high) for at in steps), default=0)
    if found["peak"] != ends:
        faults.append(f"says peak {found['peak']}, the last end is {ends}")
    if found["peak"] < found["lower_bound"] or found["lower_bound"] > largest:
        faults.append(f"says bound {found['lower_bound']} of peak {found['peak']}; the largest live set has {largest}")
    return faults


def order_faults(graph: dict[str, Any], order: Sequence[int]) -> list[str]:
    """Whether an order runs all ops, each after those that make what it reads or that its storages wait for."""
    ops, tensors = graph["ops"], graph["tensors"]
    if sorted(order) != list(range(len(ops))):
        return [f"order {order} of {len(ops)} ops"]
    at = {index: step for step, index in enumerate(order)}
    begun = {tensors[t]["storage"] for t in graph["inputs"]}
    writes: list[set[int]] = []
    for op in ops:
        made = {tensors[t]["storage"] for t in op["outputs"]}
        writes.append(set(op.get("writes", made)) | made - begun)
        begun |= made | writes[-1]
    touches = [{tensors[t]["storage"] for t in (*op["inputs"], *op["outputs"])} | w for op, w in zip(ops, writes)]
    return [
        f"op {late} runs before op {early}"
        for late, op in enumerate(ops)
        for early in range(late)
        if at[late] < at[early]
        and (
            set(op["inputs"]) & set(ops[early]["outputs"])
            or touches[late] & writes[early]
            or writes[late] & touches[early]
        )
    ]


def change(rng: random.Random, value: Any) -> Any:
    """The JSON with one item replaced, dropped or doubled."""
    items: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        item = pending.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        items += [(item, key) for key in keys]
        pending += [item[key] for key in keys]
    holder, key = rng.choice(items)
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice(("size", "shape", "bytes", "storage", "name", ""))] = holder[key]
    elif kind == 3 and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 4, 96))
    else:
        holder[key] = rng.choice(STRANGE)
    return value


def check(case: Case) -> None:
    rng = random.Random(case.seed)
    (check_graph if rng.random() < 0.5 else check_problem)(case, rng)


def plan(case: Case, data: bytes, name: str, options: Sequence[str]) -> dict[str, Any] | None:
    """What `memc plan` says of a file; None if it refuses it."""
    path, result = case.folder / name, case.folder / "plan.json"
    path.write_bytes(data)
    done = run_memc(["plan", str(path), "-q", "--json", str(result), "--full", *options])
    wrong = wrong_with(done, frozenset({0, 2, 3, 4}))
    if wrong:
        case.found.append(f"plan {name} {' '.join(options)}: {wrong}")
    case.counts[f"{name[:3]} exit {done.code}"] += 1
    found: dict[str, Any] | None = json.loads(result.read_text()) if done.code == 0 else None
    return found


def options_of(rng: random.Random, alignment: int) -> list[str]:
    options = ["--alignment", str(alignment)] if alignment > 1 else []
    if rng.random() < 0.3:
        options += ["--solver", rng.choice(("auto", "best-fit", "search"))]
    return options


def check_graph(case: Case, rng: random.Random) -> None:
    graph = draw_graph(rng)
    alignment = rng.choice((1, 1, 64, 256))
    reorder = rng.random() < 0.5
    options = [*options_of(rng, alignment), *(["--reorder"] if reorder else [])]
    if rng.random() < 0.5:
        text = json.dumps(change(rng, graph))
        data = text.encode()
        if rng.random() < 0.3:
            data = mutate(rng, text, [text]).encode("utf-8", "replace") if rng.random() < 0.5 else of_bytes(rng, data)
        found = plan(case, data, "graph.json", options)
        if found is not None:
            accepted = json.loads(data)
            case.found += order_faults(accepted, found["order"])
            case.found += faults_of(found, lives_of(accepted, found["order"]), alignment)
        done = run_memc(["opt", str(case.folder / "graph.json"), "-p", "assign-addresses"])
        wrong = wrong_with(done, frozenset({0, 2, 3, 4}))
        if wrong:
            case.found.append(f"opt graph.json: {wrong}")
        return
    data = json.dumps(graph).encode()
    packed = rng.random() < 0.2
    found = plan(case, gzip.compress(data) if packed else data, "graph.json.gz" if packed else "graph.json", options)
    if found is None:
        if not case.found:
            case.found.append("a valid graph is refused")
        return
    case.found += order_faults(graph, found["order"]) or faults_of(found, lives_of(graph, found["order"]), alignment)
    if not reorder and found["order"] != list(range(len(graph["ops"]))):
        case.found.append("changes the order unasked")


def check_problem(case: Case, rng: random.Random) -> None:
    lives = draw_problem(rng)
    alignment = rng.choice((1, 1, 1, 64, 3))
    text = as_csv(rng, lives, alignment)
    options = options_of(rng, alignment)
    if rng.random() < 0.5:
        data = mutate(rng, text, [text]).encode("utf-8", "replace")
        plan(case, of_bytes(rng, data) if rng.random() < 0.2 else data, "problem.csv", options)
        return
    found = plan(case, text.encode(), "problem.csv", options)
    if found is None:
        if not case.found:
            case.found.append("a valid problem is refused")
        return
    case.found += faults_of(found, lives, alignment)


if __name__ == "__main__":
    sys.exit(fuzz(check, __doc__, "plans"))
