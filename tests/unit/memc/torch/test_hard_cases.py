# SPDX-License-Identifier: Apache-2.0
"""What goes on beside planned steps in PyTorch, on the phantom device."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.phantom


def test_what_leaves_a_step_early(phantom) -> None:
    """An exception, an interrupt, and tensors that outlive everything."""
    printed = phantom.run("""
        kept = []
        with memc.torch.planned_memory() as planned:
            steps(planned, 5)
            for kind in (ValueError, KeyboardInterrupt):
                try:
                    with planned.step():
                        kept.append(model(torch.randn(4, 3, 64, 64, device="cuda")))
                        raise kind()
                except kind:
                    pass
            kept.clear()
            steps(planned, 2)
            before = counts(planned)
            steps(planned, 3)
            print(*(b - a for a, b in zip(before, counts(planned))))
            with planned.step():
                last = model(torch.randn(4, 3, 64, 64, device="cuda"))
        print(refusal(planned.step().__enter__))
        print(planned.report().steps)
        held = torch.cuda.memory_allocated()
        del last
        gc.collect()
        assert torch.cuda.memory_allocated() < held
        with memc.torch.planned_memory() as planned:
            steps(planned, 5)
            with planned.step():
                at_exit = model(torch.randn(4, 3, 64, 64, device="cuda"))
        import builtins
        builtins.at_exit = at_exit
    """)
    numbers, outside, steps = printed.strip().splitlines()
    requests, hits, fallbacks = map(int, numbers.split())
    assert requests == hits > 0 and fallbacks == 0 and int(steps) == 13
    assert outside.startswith("planned_memory: expected a step within the region's `with` block")


def test_requests_that_are_not_as_planned(phantom) -> None:
    """One more now and then, a smaller batch, an evaluation in between, none of any bytes, and losses that are kept."""
    printed = phantom.run("""
        losses = []
        with memc.torch.planned_memory() as planned:
            steps(planned, 5)
            before = counts(planned)
            def more():
                extra = torch.empty(12345, device="cuda")
                torch.empty(0, device="cuda")
                train()
            steps(planned, 1, more)
            steps(planned, 3)
            requests, hits, fallbacks = (b - a for a, b in zip(before, counts(planned)))
            assert 1 <= fallbacks <= 3 and hits >= requests - 1, (requests, hits, fallbacks)
            steps(planned, 1, lambda: train(3))
            before = counts(planned)
            for _ in range(3):
                with planned.step():
                    with planned.interrupt(), torch.no_grad():
                        model(torch.randn(2, 3, 64, 64, device="cuda"))
                    train()
            print(*(b - a for a, b in zip(before, counts(planned))))
            steps(planned, 12, lambda: losses.append(train()))
            assert len({loss.data_ptr() for loss in losses}) == len(losses)
            before = counts(planned)
            steps(planned, 2, lambda: losses.append(train()))
            requests, hits, fallbacks = (b - a for a, b in zip(before, counts(planned)))
            print(requests - hits)
            assert len({loss.data_ptr() for loss in losses}) == len(losses)
    """)
    interrupted, kept = printed.strip().splitlines()
    requests, hits, fallbacks = map(int, interrupted.split())
    assert requests == hits > 0 and fallbacks == 0
    assert int(kept) <= 4


def test_other_streams_threads_and_pools(phantom) -> None:
    """A side stream that reads on, a thread of its own, reentrant checkpoints, private pools, and raw requests."""
    printed = phantom.run("""
        import threading
        from torch.utils.checkpoint import checkpoint
        side, pool = torch.cuda.Stream(), torch.cuda.MemPool()
        def beside():
            with torch.cuda.stream(side):
                ahead = torch.randn(4, 3, 64, 64, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
            ahead.record_stream(torch.cuda.current_stream())
            x = torch.randn(4, 3, 64, 64, device="cuda")
            x.record_stream(side)
            optimizer.zero_grad()
            hidden = checkpoint(model[:3], x.requires_grad_(), use_reentrant=True)
            model[3:](hidden).sum().backward()
            optimizer.step()
            with torch.cuda.use_mem_pool(pool):
                mine = torch.empty(2**20, device="cuda")
            assert any(block["address"] == mine.data_ptr() for segment in pool.snapshot() for block in segment["blocks"])
            torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(4096))
            other = threading.Thread(target=lambda: torch.empty(5000, device="cuda"))
            other.start()
            other.join()
        with memc.torch.planned_memory(strict=True) as planned:
            steps(planned, 9, beside)
            print(*counts(planned), planned.report().native, planned.report().state)
    """)
    requests, hits, fallbacks, native = map(int, printed.split()[-5:-1])
    assert printed.split()[-1] == "replay" and requests == hits + native and hits > 200 and fallbacks == 0
    assert native <= 3, "until the arena is made"


def test_what_pytorch_tells_while_steps_are_replayed(phantom) -> None:
    """History, snapshots, an emptied cache, totals that are reset, benchmarks of cuDNN, and errors."""
    printed = phantom.run("""
        with memc.torch.planned_memory() as planned:
            steps(planned, 5)
            torch.cuda.memory._record_memory_history(max_entries=100000)
            with planned.step():
                train()
                torch.cuda.empty_cache()
            traces = torch.cuda.memory._snapshot()["device_traces"][0]
            torch.cuda.memory._record_memory_history(enabled=None)
            made = [entry for entry in traces if entry["action"] == "alloc"]
            times = [entry["time_us"] for entry in traces]
            assert times == sorted(times) and any("frames" in entry and entry["frames"] for entry in made)
            print(len(made), counts(planned)[0] // planned.report().replayed_steps)
            torch.cuda.reset_accumulated_memory_stats()
            zero = torch.cuda.memory_stats()
            steps(planned, 1)
            stats = torch.cuda.memory_stats()
            assert zero["requested_bytes.all.allocated"] == 0 < stats["requested_bytes.all.allocated"]
            change = stats["allocated_bytes.all.current"] - zero["allocated_bytes.all.current"]
            assert stats["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.freed"] == change
            assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
            assert torch.cuda.get_allocator_backend() == "native"
            torch.backends.cudnn.benchmark = True
            model[0](torch.randn(1, 3, 32, 32, device="cuda"))
            torch.backends.cudnn.benchmark = False
            with planned.step():
                kept = train()
                torch.cuda.set_per_process_memory_fraction(0.01)
                try:
                    torch.empty(2**31, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError as error:
                    print(str(error)[str(error).index("memc.torch.") :].splitlines()[0])
            torch.cuda.set_per_process_memory_fraction(1.0)
            print(refusal(memc.torch.planned_memory().__enter__))
            with planned.step():
                print(refusal(planned.step().__enter__))
                print(refusal(planned.compact))
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                print(refusal(planned.step().__enter__))
    """)
    numbers, memory, region, step, compact, capture = printed.strip().splitlines()
    made, planned = map(int, numbers.split())
    assert made >= planned > 40
    assert memory.startswith("memc.torch.planned_memory: its arena of ") and "are in use" in memory
    assert region.startswith("planned_memory: expected no other region") and step.startswith(
        "planned_memory: step: expected no"
    )
    assert compact.startswith("planned_memory: compact: expected a moment between steps")
    assert capture.startswith("planned_memory: step: expected no capture of a CUDA graph")


def test_live_tensors_are_moved_together(phantom) -> None:
    """What they hold, and what shares their bytes, is as before."""
    phantom.run("""
        big = [torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(12)]
        small = [torch.full((1000,), float(at), device="cuda") for at in range(4)]
        kept = big[::4]
        parts = [each[:1000].fill_(0) for each in kept]
        view = small[2][10:20].view(2, 5)
        small[2][12].copy_(torch.tensor(7.0))
        del big
        pointers = [each.data_ptr() for each in kept]
        before = torch.cuda.memory_reserved()
        with memc.torch.planned_memory() as planned:
            given_back = planned.compact()
            assert given_back == before - torch.cuda.memory_reserved() > 2**22
            assert pointers != [each.data_ptr() for each in kept]
            assert all(part.data_ptr() == each.data_ptr() for part, each in zip(parts, kept))
            assert view.data_ptr() == small[2].data_ptr() + 40 and view[0, 2].item() == 7.0
            train()
        del kept, parts, small, view
        gc.collect()
        torch.cuda.empty_cache()
    """)


def test_other_allocators_are_refused(phantom) -> None:
    script = "print(refusal(memc.torch.planned_memory().__enter__))"
    assert "got PYTORCH_NO_CUDA_MEMORY_CACHING" in phantom.run(script, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    swapped = """
        import ctypes, os
        torch.cuda.memory._set_allocator_settings  # It is there.
        os.environ["MEMC_TORCH_ALLOCATOR"] = "/nowhere.so"
        print(refusal(memc.torch.planned_memory().__enter__))
        os.environ["MEMC_TORCH_ALLOCATOR"] = torch.__file__
        print(refusal(memc.torch.planned_memory().__enter__))
    """
    nowhere, other = phantom.run(swapped).strip().splitlines()
    assert nowhere.startswith("MEMC_TORCH_ALLOCATOR: expected the path of libmemc_torch.so, got /nowhere.so")
    assert "cannot load" in other


def test_each_tensor_on_its_own_device(two_devices) -> None:
    """Also where another device is the current one, in the thread and in the region's."""
    printed = two_devices.run("""
        def both():
            train()
            here = torch.randn(64, 64, device="cuda:1", requires_grad=True)
            (here @ here).relu().sum().backward()
            assert here.grad.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
        with memc.torch.planned_memory(strict=True) as planned:
            steps(planned, 8, both)
            for driver in planned._drivers.values():
                print(driver.engine.statistics().hits, driver.engine.statistics().arena_bytes)
            assert all(torch.cuda.memory_allocated(device) > 0 for device in range(2))
    """)
    first, second = ([int(number) for number in line.split()] for line in printed.strip().splitlines())
    assert first[0] > second[0] > 20 and first[1] > second[1] > 0


def test_a_rank_of_a_distributed_job_and_workers(phantom) -> None:
    """DDP with its buckets; a forked worker of a loader has the parent's state and no device."""
    printed = phantom.run("""
        import torch.distributed as dist
        import torch.nn.parallel.distributed as ddp
        ddp._verify_param_shape_across_processes = lambda *a, **k: True
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=8, device_id=torch.device("cuda:0"))
        model = ddp.DistributedDataParallel(net(), device_ids=[0], gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.utils.data.TensorDataset(torch.randn(40, 3, 64, 64), torch.zeros(40, dtype=torch.long))
        loader = torch.utils.data.DataLoader(data, 4, num_workers=2)
        def step(x, y):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        with memc.torch.planned_memory() as planned:
            for x, y in loader:
                with planned.step():
                    step(x, y)
                planned.wait()
            before = counts(planned)
            for x, y in loader:
                with planned.step():
                    step(x, y)
            print(*(b - a for a, b in zip(before, counts(planned))), flush=True)
        dist.destroy_process_group()
    """)
    requests, hits, fallbacks = map(int, printed.split()[-3:])
    assert requests == hits > 100 and fallbacks == 0


def test_graphs_that_are_captured_in_steps(phantom) -> None:
    """Their requests go to pools of their own; the plan goes on around them, and no arena is made meanwhile."""
    printed = phantom.run("""
        still, graphs, kept = torch.zeros(4, 3, 64, 64, device="cuda"), [], []
        twin = net()
        def captured():
            loss = train()
            if not graphs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    kept.append(twin(still))
                graphs.append(graph)
            graphs[0].replay()
            return loss
        with memc.torch.planned_memory() as planned:
            steps(planned, 4)
            before = counts(planned)
            steps(planned, 1, captured)
            # What a graph has outside of its pool, such as its random state, is asked for beside the plan.
            first = counts(planned)
            assert first[1] - before[1] >= 40 and first[2] - before[2] == first[0] - before[0] - (first[1] - before[1]) <= 4, first
            assert not any(torch.ops.aten.is_nonzero(each.isnan().any()) for each in kept)
            pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()
                     if segment["address"] <= kept[0].data_ptr() < segment["address"] + segment["total_size"]}
            assert pools == {graphs[0].pool()}, pools
            for _ in range(3):
                with planned.step():
                    captured()
            assert counts(planned)[2] == first[2] and counts(planned)[1] - first[1] == counts(planned)[0] - first[0] >= 120
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                print(refusal(lambda: planned.step().__enter__()))

        # A larger arena is due while a graph is captured: it is not made, as that waits for the device.
        model.zero_grad()
        def late():
            graph = torch.cuda.CUDAGraph()
            x = torch.randn(4, 3, 64, 64, device="cuda")
            with torch.cuda.graph(graph):
                twin(still)
                with torch.cuda.stream(torch.cuda.Stream()):
                    aside = [torch.empty(2**20, device="cuda") for _ in range(3)]
            train()
        with memc.torch.planned_memory() as planned:
            steps(planned, 8, late)
            print(planned.report().state, planned.report().steps)
    """)
    lines = printed.strip().splitlines()
    assert "expected no capture of a CUDA graph around it" in lines[0]
    assert lines[1].split()[1] == "8"
