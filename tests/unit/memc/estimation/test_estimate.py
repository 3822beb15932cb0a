# SPDX-License-Identifier: Apache-2.0
"""`memc.estimate`: figures, whether they fit, and the words for how much is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import memc
from memc.estimation import EventList, estimate
from memc.estimation.events import Origin
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

MIB, GIB = 2**20, 2**30
OUTSIDE = 804_061_184
RESNET = Path(__file__).parents[3] / "data/events/resnet50_b32_sgd.json.gz"


def job() -> EventList:
    """Weights of 30 MiB, an activation of 40 MiB and a workspace of 50 MiB for a moment."""
    events = EventList()
    events.allocate(30 * MIB, origin=Origin("to", category="weights"))
    held = events.allocate(40 * MIB - 1, origin=Origin("aten::relu", "layer1", "forward", 2, "activations"))
    moment = events.allocate(50 * MIB, origin=Origin("aten::conv2d", "layer2", "forward", 2, "workspaces"))
    events.free(moment)
    events.free(held)
    return events


def test_a_recorded_job_is_exact() -> None:
    found = estimate(RESNET, gpu="h200")
    assert found.reserved_bytes == found.recorded["reserved"] == 3_667_918_848
    assert (found.allocated_bytes, found.requested_bytes) == (2_974_878_208, 2_959_044_352)
    assert (found.confidence, found.assumed, found.fits) == ("exact", (), True)
    assert found.device_bytes == found.reserved_bytes + OUTSIDE == sum(found.breakdown.values())
    planned = next(each for each in found.alternatives if each.settings == "planned")
    assert found.requested_bytes - MIB < planned.reserved_bytes < 1.01 * found.requested_bytes


def test_other_settings_are_assumed() -> None:
    found = estimate(RESNET, gpu="h200", alloc_conf="expandable_segments:True")
    assert found.confidence == "assumed" and "settings of its recording" in found.assumed[0]
    assert found.allocated_bytes < 2_974_878_208 and found.reserved_bytes < 3_100_000_000
    same = estimate(RESNET, gpu="h200", alloc_conf="garbage_collection_threshold:0.9")
    assert same.reserved_bytes == 3_667_918_848


def test_peak_and_parts() -> None:
    found = estimate(job().events(), gpu="h200")
    assert found.peak_op == "aten::conv2d (layer2, forward, step 2)"
    assert found.breakdown == {
        "activations": 40 * MIB - 1,
        "weights": 30 * MIB,
        "workspaces": 50 * MIB,
        "rounding": 1,
        "fragmentation": 0,
        "outside": OUTSIDE,
    }
    assert found.confidence == "exact" and found.reserved_bytes == 120 * MIB


def test_memory_that_does_not_suffice() -> None:
    events = job().events()
    fits = estimate(events, memory=OUTSIDE + 120 * MIB)
    assert (fits.fits, fits.out_of_memory, fits.retries) == (True, None, 0)
    found = estimate(events, memory=OUTSIDE + 119 * MIB)
    assert found.fits is False and found.reserved_bytes == 120 * MIB
    assert found.out_of_memory is not None
    assert found.out_of_memory.op == "aten::conv2d (layer2, forward, step 2)"
    assert found.out_of_memory.requested_bytes == 50 * MIB and found.out_of_memory.allocated_bytes == 70 * MIB
    assert estimate(events, memory=1).fits is False


def test_what_is_cached_goes_back_before_memory_runs_out() -> None:
    events = EventList()
    events.free(events.allocate(100 * MIB))
    events.allocate(110 * MIB)
    found = estimate(events.events(), memory=OUTSIDE + 150 * MIB)
    assert (found.fits, found.retries, found.reserved_bytes) == (True, 1, 210 * MIB)
    assert found.device_bytes == OUTSIDE + 210 * MIB and found.fitted_bytes == OUTSIDE + 110 * MIB


def test_other_settings_for_a_job_that_is_larger_than_the_memory() -> None:
    """Expandable segments reserve addresses for an eighth more than the device has: figures are for a device that suffices."""
    events = EventList()
    first = events.allocate(2000 * MIB)
    events.allocate(900 * MIB)
    events.free(first)
    events.allocate(2010 * MIB)
    whole = {each.settings: each for each in estimate(events.events(), gpu="h200").alternatives}
    assert whole["expandable_segments:True"].reserved_bytes == 4920 * MIB and whole["planned"].fits
    for memory, fits in ((900 * MIB, False), (OUTSIDE + 4000 * MIB, True), (6000 * MIB, True)):
        found = estimate(events.events(), memory=memory)
        other = {each.settings: each for each in found.alternatives}
        for name, each in whole.items():
            assert other[name].reserved_bytes == each.reserved_bytes, (memory, name)
        assert other["planned"].fits is found.fits is fits
        own = estimate(events.events(), memory=memory, alloc_conf="expandable_segments:True")
        assert own.device_bytes == OUTSIDE + 4920 * MIB and own.recorded == {}


def test_no_more_memory_than_the_gpu_has() -> None:
    events = EventList()
    events.allocate(30 * 2**30)
    found = estimate(events.events(), gpu="rtx4090", memory=48 * 2**30)
    assert (found.fits, found.memory_bytes, found.fitted_bytes) == (False, 24 * 2**30, None)
    fits = estimate(events.events(), memory=48 * 2**30)
    assert fits.fits and fits.fitted_bytes == fits.device_bytes


def test_other_frameworks() -> None:
    found = {name: estimate(job().events(), allocator=name).reserved_bytes for name in ("tensorflow", "mxnet", "cupy")}
    assert found == {"tensorflow": 160 * MIB, "mxnet": 120 * MIB, "cupy": 120 * MIB}
    assert estimate(job().events(), allocator="xla", gpu="h100").reserved_bytes == 85_029_158_912 * 3 // 4 // 256 * 256
    assert estimate(job().events(), allocator="cupy").alternatives == ()


def test_unmeasured_gpus_are_assumed() -> None:
    found = estimate(job().events(), gpu="a100")
    assert found.confidence == "assumed" and "data sheet" in found.assumed[0]


def test_the_order_of_segments_is_told_where_it_matters() -> None:
    """Of two free blocks of 5 MiB in two segments, the lower one is taken; only the other's segment is empty later."""
    events = EventList()
    first = [events.allocate(nbytes * MIB) for nbytes in (5, 7, 8)]
    second = [events.allocate(nbytes * MIB) for nbytes in (5, 7, 8)]
    events.free(first[0])
    events.free(second[0])
    events.allocate(5 * MIB)
    events.free(second[1])
    events.free(second[2])
    events.allocate(9 * MIB)
    events.allocate(9 * MIB)
    found = estimate(events.events())
    assert found.reserved_bytes == 60 * MIB and found.confidence == "assumed"
    assert found.assumed == (
        "segments' addresses are not known: 41,943,040 to 62,914,560 bytes reserved by their order",
    )


def test_arguments() -> None:
    events = job().events()
    with pytest.raises(UsageError, match="gpu: expected a GPU that memc knows, got 'h20'; did you mean h200?"):
        estimate(events, gpu="h20")
    with pytest.raises(UsageError, match="memory: expected bytes from 1 to 2\\*\\*62, got 0"):
        estimate(events, memory=0)
    with pytest.raises(UsageError, match="allocator: expected a framework's, got 'torch'"):
        estimate(events, allocator="torch")
    with pytest.raises(
        UsageError, match="alloc_conf: expected the allocator pytorch, whose settings they are, got cupy"
    ):
        estimate(events, allocator="cupy", alloc_conf="max_split_size_mb:64")
    with pytest.raises(UnsupportedError, match="cudaMallocAsync"):
        estimate(events, alloc_conf="backend:cudaMallocAsync")
    with pytest.raises(UsageError, match="device: expected it with a memory snapshot alone"):
        estimate(RESNET, device=0)
    wrong = EventList()
    wrong.free(0)
    with pytest.raises(InvalidError, match="events: event 0: block 0 is not live"):
        estimate(wrong.events())


def test_nothing_of_torch_is_imported() -> None:
    code = f"import sys, memc; memc.estimate({str(RESNET)!r}); assert not {{'torch', 'tvm', 'onnx'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names() -> None:
    assert memc.estimate is estimate and memc.Estimate.__name__ == "Estimate"


@pytest.mark.parametrize("option", [{"tf32": False}, {"zero_grad": "end"}, {"zero_grad": "never"}])
def test_options_of_models_are_refused_for_recordings(option: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(option))}: expected with an .onnx model alone$"):
        estimate(RESNET, **option)  # type: ignore[arg-type]


def test_a_memory_fraction_that_does_not_suffice() -> None:
    """The figures are those where it does, and the job does not fit, whether or not memory is given."""
    events = EventList()
    events.allocate(30 * MIB)
    events.allocate(5 * MIB)
    whole = estimate(events.events())
    for memory in (None, 2 * 1024 * MIB):
        found = estimate(events.events(), alloc_conf="per_process_memory_fraction:0.0002", memory=memory)
        assert (found.reserved_bytes, found.fits) == (whole.reserved_bytes, False)
        assert found.out_of_memory is not None and found.out_of_memory.requested_bytes == 30 * MIB
    assert estimate(events.events(), alloc_conf="per_process_memory_fraction:0.5").fits is None


def test_a_share_of_the_memory_given() -> None:
    """XLA takes three quarters of what there is."""
    events = EventList()
    events.allocate(30 * MIB)
    found = estimate(events.events(), allocator="xla", memory=4096 * MIB)
    assert found.fits and found.reserved_bytes == 3072 * MIB and found.device_bytes <= 4096 * MIB
