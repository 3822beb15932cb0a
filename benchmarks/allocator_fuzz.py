# SPDX-License-Identifier: Apache-2.0
"""memc's simulation of PyTorch's caching allocator against the allocator in PyTorch's own library, on random events.

    python benchmarks/allocator_fuzz.py TORCH [--cuda /usr/local/cuda] [--events 10000000]

TORCH is the folder `torch` of PyTorch 2.11's wheel for CUDA, installed or unpacked; of it the C++ library `libc10_cuda` is used,
over a CUDA runtime that only keeps accounts of memory (`allocator_fuzz/`). It needs g++ and CUDA's headers, and no GPU.

A row is a setting of PYTORCH_CUDA_ALLOC_CONF: how many random events it was given, how many requests failed for want of memory, how
often cached memory was given back for one, and how many differences there were. After each event the addresses, the allocated,
requested, reserved, active and inactive bytes with their peaks, the segments, retries and the device's bytes are compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from memc.estimation.alloc_conf import parse_alloc_conf

HERE = Path(__file__).parent
MIB = 2**20
EVENTS_OF_A_PROCESS = 20_000


@dataclass(frozen=True)
class Setting:
    """How the allocators run. `complete`: whether other streams have always finished."""

    text: str
    megabytes: int
    streams: int = 1
    pools: int = 0
    complete: bool = False


SETTINGS = [
    Setting("", 1000),
    Setting("", 200, 2, 2),
    Setting("", 1000, 3, 2),
    Setting("", 1000, 3, 0, complete=True),
    Setting("max_split_size_mb:25", 300, 3, 2),
    Setting("max_split_size_mb:64,max_non_split_rounding_mb:30", 1000, 2),
    Setting("roundup_power2_divisions:4", 1000, 2),
    Setting("roundup_power2_divisions:[1:2,4:8,16:1,>:4]", 500, 1, 1),
    Setting("large_segment_size_mb:60", 1000, 2),
    Setting("large_segment_size_mb:15", 300, 1),
    Setting("per_process_memory_fraction:0.5", 1000, 2, 1),
    Setting("garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 2000, 2, 1),
    Setting("garbage_collection_threshold:0.4,per_process_memory_fraction:0.8,max_split_size_mb:25", 2000, 1),
    Setting("garbage_collection_threshold:0.6", 800, 2),
    Setting("expandable_segments:True", 1000),
    Setting("expandable_segments:True", 300, 3),
    Setting("expandable_segments:True,per_process_memory_fraction:0.7", 1000, 3, 0),
    Setting("expandable_segments:True,large_segment_size_mb:40", 1000, 2),
    Setting("expandable_segments:True,max_split_size_mb:25,roundup_power2_divisions:8", 400, 2),
    Setting(
        "expandable_segments:True,garbage_collection_threshold:0.6,per_process_memory_fraction:0.7,max_split_size_mb:25",
        400,
        3,
    ),
]
"""Private pools that are released are not tried with expandable segments: PyTorch 2.11 then frees a pool with blocks in use."""


def build(torch: Path, cuda: Path, folder: Path) -> Path:
    """The fuzzer, linked with PyTorch's library and the runtime of accounts."""
    library = torch / "lib/libc10_cuda.so"
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    wanted = {line.split()[-1].split("@")[0] for line in listed.splitlines() if "@libcudart" in line}
    own = (HERE / "allocator_fuzz/accounts.cc").read_text()
    unused = sorted(name for name in wanted if f" {name}(" not in own)
    # Declared by CUDA's headers with arguments, they are defined by assembly names.
    lines = [f'int unused_{name}() __asm__("{name}");\nint unused_{name}() {{ return 0; }}' for name in unused]
    (folder / "unused_names.inc").write_text("\n".join(lines) + "\n")
    (folder / "versions.map").write_text("libcudart.so.13 { global: *; };\n")
    runtime = folder / "libcudart.so.13"
    sources = HERE / "allocator_fuzz"
    common = ["g++", "-std=c++17", "-O2", f"-I{sources}", f"-I{folder}", f"-I{cuda}/include"]
    shared = ["-fPIC", "-shared", "-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={folder}/versions.map"]
    subprocess.run([*common, *shared, str(sources / "accounts.cc"), "-o", str(runtime)], check=True)
    allocators = [str(HERE.parent / "cpp/allocators" / name) for name in ("allocator.cc",)]
    allocators += sorted(map(str, (HERE.parent / "cpp/allocators").glob("caching*.cc")))
    linked = [str(runtime), f"-L{torch}/lib", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{torch}/lib"]
    includes = [f"-I{torch}/include", f"-I{HERE.parent}/cpp"]
    program = folder / "fuzz"
    subprocess.run([*common, *includes, str(sources / "fuzz.cc"), *allocators, *linked, "-o", str(program)], check=True)
    return program


def run(program: Path, setting: Setting, processes: int) -> tuple[int, int, list[str]]:
    """Failed requests, retries and differences."""
    allocator = replace(parse_alloc_conf(setting.text), events_complete=setting.complete)
    numbers = allocator.numbers(setting.megabytes * MIB)
    failures, retries, different = 0, 0, []
    for seed in range(processes):
        arguments = [seed, EVENTS_OF_A_PROCESS, setting.megabytes * MIB, setting.streams, setting.pools]
        done = subprocess.run(
            [str(program), *map(str, (*arguments, *allocator.shares(), *numbers))],
            env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting.text},
            capture_output=True,
            text=True,
        )
        words = done.stdout.split()
        if done.returncode == 0 and words[:1] == ["same"]:
            failures, retries = failures + int(words[1]), retries + int(words[2])
        else:
            different.append(f"seed {seed}: {(done.stdout or done.stderr).strip()[:300]}")
    return failures, retries, different


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("torch", type=Path)
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"))
    parser.add_argument("--events", type=int, default=10_000_000)
    options = parser.parse_args()
    processes = max(1, round(options.events / EVENTS_OF_A_PROCESS / len(SETTINGS)))
    print("| settings | MB | streams | pools | events | out of memory | retries | differences |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.torch.resolve(), options.cuda, Path(folder))
        for setting in SETTINGS:
            failures, retries, different = run(program, setting, processes)
            cells = (
                setting.megabytes,
                setting.streams,
                setting.pools,
                processes * EVENTS_OF_A_PROCESS,
                failures,
                retries,
            )
            name = f"`{setting.text}`" if setting.text else "default"
            print(f"| {name}{', others finished' if setting.complete else ''} | ", end="")
            print(" | ".join(f"{cell:,}" for cell in cells), f"| {len(different)} |", flush=True)
            for line in different[:3]:
                print(line)


if __name__ == "__main__":
    main()
