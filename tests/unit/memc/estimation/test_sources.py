# SPDX-License-Identifier: Apache-2.0
"""Files that estimates are made of: recordings in JSON, PyTorch's snapshots, traces in CSV; and what is wrong with some."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from memc.estimation import estimate
from memc.estimation.event_files import read_json, read_trace
from memc.estimation.events import Kind
from memc.estimation.snapshots import MOST_UNKNOWN, UNKNOWN, read_history, read_snapshot
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

MIB = 2**20
BASE = 0x7F0000000000


def entry(action: str, address: int, size: int, stream: int = 0, **more: Any) -> dict[str, Any]:
    """A snapshot's event, as PyTorch writes it."""
    return {"action": action, "addr": address, "size": size, "stream": stream, "frames": [], "time_us": 1, **more}


def snapshot(events: list[dict[str, Any]], segments: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "segments": segments,
        "device_traces": [events],
        "allocator_settings": {},
        "external_annotations": [],
        **more,
    }


def write_pickle(path: Path, data: object) -> Path:
    path.write_bytes(pickle.dumps(data))
    return path


WHOLE = [
    entry("segment_alloc", BASE, 20 * MIB),
    entry("alloc", BASE, 3 * MIB, frames=[{"filename": "/x/train.py", "line": 7, "name": "step"}]),
    entry("alloc", BASE + 3 * MIB, 5 * MIB),
    entry("free_requested", BASE, 3 * MIB),
    entry("free_completed", BASE, 3 * MIB),
    entry("snapshot", 0, 0),
]

SEGMENT = {
    "device": 0,
    "address": BASE,
    "total_size": 20 * MIB,
    "stream": 0,
    "segment_type": "large",
    "blocks": [
        {"address": BASE, "size": 3 * MIB, "requested_size": 3 * MIB, "state": "inactive"},
        {"address": BASE + 3 * MIB, "size": 5 * MIB, "requested_size": 5 * MIB - 7, "state": "active_allocated"},
        {"address": BASE + 8 * MIB, "size": 12 * MIB, "requested_size": 0, "state": "inactive"},
    ],
}


def test_a_whole_history(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "s.pickle", snapshot(WHOLE, [SEGMENT]))
    found = estimate(path)
    assert (found.allocated_bytes, found.reserved_bytes, found.confidence) == (8 * MIB, 20 * MIB, "exact")
    assert read_snapshot(path).events.kinds.tolist() == [Kind.ALLOCATE, Kind.ALLOCATE, Kind.FREE]
    assert str(read_snapshot(path).events.origin(0)) == "step at train.py:7"


def test_a_history_that_began_late(tmp_path: Path) -> None:
    """The block of 5 MiB is in use without an event; one of 2 MiB is freed that none made."""
    events = [
        entry("free_requested", BASE + 9 * MIB, 2 * MIB),
        entry("free_completed", BASE + 9 * MIB, 2 * MIB),
        *WHOLE[1:2],
    ]
    found = estimate(write_pickle(tmp_path / "s.pickle", snapshot(events, [SEGMENT])))
    assert found.requested_bytes == 5 * MIB - 7 + 3 * MIB
    assert found.confidence == "assumed" and "begins with 2 blocks in use" in found.assumed[0]


def test_a_snapshot_without_a_history(tmp_path: Path) -> None:
    found = estimate(write_pickle(tmp_path / "s.pickle", snapshot([], [SEGMENT])))
    assert (found.requested_bytes, found.allocated_bytes, found.confidence) == (5 * MIB - 7, 5 * MIB, "assumed")


@pytest.mark.parametrize(
    "without", [(), ("address",), ("device", "stream", "segment_type"), ("address", "device", "stream", "total_size")]
)
def test_segments_that_tell_less(tmp_path: Path, without: tuple[str, ...]) -> None:
    """As other versions of PyTorch write them: blocks follow one another, and events of segments may be missing as a whole."""
    blocks = [{name: value for name, value in block.items() if name != "address"} for block in SEGMENT["blocks"]]
    segment = {name: value for name, value in {**SEGMENT, "blocks": blocks}.items() if name not in without}
    second = {
        **segment,
        "blocks": [{"size": 2 * MIB, "state": "active_allocated", "history": [{"real_size": 2 * MIB - 9}]}],
    }
    if "address" not in without:
        second["address"] = BASE + 20 * MIB
    first = UNKNOWN if "address" in without else BASE
    last = UNKNOWN + MOST_UNKNOWN if "address" in without else BASE + 20 * MIB
    for data in ([segment, second], {"segments": [segment, second]}, snapshot([], [segment, second])):
        path = write_pickle(tmp_path / "s.pickle", data)
        history = read_history(path)
        assert history.device == 0 and history.actions == []
        told = [(each.address, each.nbytes) for each in history.before]
        assert told == [(first + 3 * MIB, 5 * MIB - 7), (last, 2 * MIB - 9)]
        assert estimate(path).allocated_bytes == 7 * MIB


def test_settings_of_a_snapshot(tmp_path: Path) -> None:
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:40"}
    path = write_pickle(tmp_path / "s.pickle", snapshot(WHOLE, [SEGMENT], allocator_settings=settings))
    assert estimate(path).reserved_bytes == 40 * MIB
    path = write_pickle(path, snapshot(WHOLE, [SEGMENT], allocator_settings={"expandable_segments": True}))
    assert read_snapshot(path).alloc_conf == "expandable_segments:True"


def test_a_device_of_several(tmp_path: Path) -> None:
    data = snapshot(WHOLE, [SEGMENT, {**SEGMENT, "device": 1}])
    data["device_traces"].append([entry("alloc", BASE, 512)])
    path = write_pickle(tmp_path / "s.pickle", data)
    with pytest.raises(UsageError, match=r"expected one of those with events or memory \(0, 1\), got no choice"):
        estimate(path)
    assert estimate(path, device=0).requested_bytes == 8 * MIB
    with pytest.raises(UsageError, match="got 5"):
        estimate(path, device=5)


class Harmful:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_snapshot_runs_no_code(tmp_path: Path) -> None:
    target = tmp_path / "made"
    path = write_pickle(tmp_path / "s.pickle", {"segments": Harmful(target), "device_traces": []})
    with pytest.raises(InvalidError, match="which may run code"):
        estimate(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())  # Which the file would have done.
    assert target.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected a memory snapshot of PyTorch"),
        ({"segments": 1, "device_traces": []}, "segments: expected a list, got 1"),
        ({"segments": [], "device_traces": [3]}, "expected lists of events"),
        ({"segments": [], "device_traces": []}, r"expected one of those with events or memory \(none\)"),
        (snapshot([entry("born", 0, 0)], []), "event 0: expected an action among alloc"),
        (snapshot([entry("alloc", -1, 5)], []), "event 0: addr: expected a whole number from 0"),
        (snapshot([entry("alloc", 5, 2**61)], []), "event 0: size: expected a whole number"),
        (snapshot([3], []), "event 0: expected an object, got 3"),  # type: ignore[list-item]
        (snapshot([], [{**SEGMENT, "blocks": [3]}]), "segments: blocks: expected objects, got 3"),
        (snapshot([], [{**SEGMENT, "device": "x"}]), "segments: device: expected a whole number"),
    ],
)
def test_snapshots_that_are_wrong(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises((InvalidError, UsageError), match=message) as error:
        estimate(write_pickle(tmp_path / "s.pickle", data))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("raw", [b"", b"garbage", pickle.dumps([1, 2, 3])[:-3], b"\x80\x05.", b"cos\nsystem\n."])
def test_damaged_pickles(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(raw)
    with pytest.raises(InvalidError, match="expected a memory snapshot"):
        estimate(path)


def write_json(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_json_with_a_pool_and_late_frees(tmp_path: Path) -> None:
    events = [
        ["alloc", BASE, 100, 0, 2],
        ["free_requested", BASE, 100, 0],
        ["alloc", BASE + 512, 100, 0],
        ["free_completed", BASE, 100, 0],
        ["oom", 0, 77, 0],
    ]
    found = read_json(write_json(tmp_path / "e.json", {"events": events}))
    kinds = [Kind.ALLOCATE, Kind.REQUEST_FREE, Kind.ALLOCATE, Kind.COMPLETE_FREE, Kind.ALLOCATE]
    assert found.events.kinds.tolist() == kinds
    assert found.events.pools.tolist() == [2, 0, 0, 0, 0] and found.events.nbytes[-1] == 77
    assert "a request of 77 bytes that was refused" in found.partial


def test_a_job_that_ran_out_of_memory_does_not_fit(tmp_path: Path) -> None:
    events = [["alloc", BASE, 2**30, 0], ["oom", 0, 2**40, 0]]
    found = estimate(write_json(tmp_path / "e.json", {"events": events}), gpu="h200")
    assert found.fits is False and found.confidence == "assumed"
    assert found.out_of_memory is not None and found.out_of_memory.requested_bytes == 2**40


def test_one_that_went_on_after_a_refusal_is_as_it_ended(tmp_path: Path) -> None:
    events = [["alloc", BASE, 2**30, 0], ["oom", 0, 2**40, 0], ["alloc", BASE + 2**31, 2**20, 0]]
    found = estimate(write_json(tmp_path / "e.json", {"events": events}), gpu="h200")
    assert found.fits is True and found.requested_bytes == 2**30 + 2**20


def test_more_than_addresses_have(tmp_path: Path) -> None:
    events = [["alloc", BASE + n * 2**59, 2**58, 0] for n in range(9)]
    with pytest.raises(InvalidError, match="e.json"):
        estimate(write_json(tmp_path / "e.json", {"events": events}))


def test_memory_given_back_is_an_event_of_its_own(tmp_path: Path) -> None:
    events = [
        ["alloc", BASE, 20 * MIB, 0],
        ["free", BASE, 20 * MIB, 0],
        ["segment_free", BASE, 20 * MIB, 0],
        ["segment_free", BASE + 2**30, 20 * MIB, 0],
        ["alloc", BASE, 512, 0],
    ]
    path = write_json(tmp_path / "e.json", {"events": events})
    assert read_json(path).events.kinds.tolist() == [Kind.ALLOCATE, Kind.FREE, Kind.EMPTY_CACHE, Kind.ALLOCATE]
    assert estimate(path).reserved_bytes == 20 * MIB


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected an object with `events`"),
        ({"events": 3}, "expected an object with `events`"),
        ({"events": []}, "expected at least one event, got none"),
        ({"events": [["alloc", 1, 2]]}, "event 0: expected \\[action, address, bytes, stream\\]"),
        ({"events": [["alloc", 1.5, 2, 0]]}, "event 0: address: expected a whole number"),
        ({"events": [["alloc", 1, True, 0]]}, "event 0: bytes: expected a whole number"),
        ({"events": [["alloc", 1, 2, 0], ["alloc", 1, 2, 0]]}, "event 1: allocates address 1, which is in use"),
        ({"events": [["free", 1, 2, 0]]}, "event 0: free of address 1, which no earlier event allocated"),
        ({"events": [["alloc", 1, 2, 0]], "alloc": 7}, "alloc: expected the allocator's settings as text, got 7"),
        ({"events": [["alloc", 1, 2, 0]], "alloc": "foo:1"}, "alloc: PyTorch 2.11 has no allocator setting 'foo'"),
        ({"events": [["alloc", 1, 2, 0]], "peak": 7}, "peak: expected an object of bytes by name, got 7"),
        ({"events": [["alloc", 1, 2, 0]], "peak": {"reserved": "x"}}, "peak: reserved: expected a whole number"),
    ],
)
def test_recordings_that_are_wrong(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises((InvalidError, UsageError), match=message) as error:
        estimate(write_json(tmp_path / "e.json", data))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("raw", [b"{", b"\xff", gzip.compress(b"{}", mtime=0)[:-4], b"\x1f\x8bxx", b"[" * 100_000])
def test_damaged_json(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "e.json.gz"
    path.write_bytes(raw)
    with pytest.raises(InvalidError, match="expected JSON"):
        estimate(path)


def test_a_trace_frees_before_it_allocates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,lower,upper,size\na,0,2,3145728\nb,2,3,3145728\nc,1,3,512\nd,1,1,4194304\n")
    found = read_trace(path)
    assert found.events.nbytes.tolist() == [3 * MIB, 512, 4 * MIB, 0, 0, 3 * MIB, 0, 0]
    assert estimate(path).requested_bytes == 7 * MIB + 512
    path.write_text("id,lower,upper,size,alias\na,0,2,5,\nb,0,2,5,a\n")
    with pytest.raises(InvalidError, match="expected tensors without aliases and gaps"):
        estimate(path)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("x")
    with pytest.raises(UnsupportedError, match="a memory snapshot of PyTorch"):
        estimate(tmp_path / "model.bin")
    with pytest.raises(InvalidError, match="cannot read"):
        estimate(tmp_path / "none.json")
    with pytest.raises(InvalidError, match="expected an artifact folder"):
        estimate(tmp_path / "none.memc")
    with pytest.raises(UsageError, match="expected a path or events, got 3"):
        estimate(3)  # type: ignore[arg-type]


def test_blocks_that_share_bytes_are_refused(tmp_path: Path) -> None:
    """But not those that lie side by side, or come after one another at the same place."""
    path = tmp_path / "e.json"
    beside = [
        ["alloc", 0, 512, 0],
        ["alloc", 512, 512, 0],
        ["alloc", 1536, 0, 0],
        ["free", 0, 512, 0],
        ["alloc", 0, 100, 0],
    ]
    path.write_text(json.dumps({"events": beside}))
    assert estimate(path).requested_bytes == 1024
    for address, nbytes in ((511, 1), (1000, 600), (0, 4096)):
        path.write_text(json.dumps({"events": [*beside[1:2], ["alloc", 4096, 8, 0], ["alloc", address, nbytes, 0]]}))
        if address == 511:
            assert estimate(path).requested_bytes == 512 + 8 + 1
            continue
        with pytest.raises(
            InvalidError, match=f"event 2: allocates {nbytes} bytes at address {address}, of which a block"
        ):
            estimate(path)
