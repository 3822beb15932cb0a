# SPDX-License-Identifier: Apache-2.0
"""Training of PyTorch's on a GPU whose batches have varying lengths, with and without planned memory: what is reserved over time.

    python benchmarks/gpu_varying_lengths.py [--jobs lstm bert gpt2 soak] [--steps 2000] [--limit SECONDS] [--json FILE]

`lstm`: two LSTM layers, 32 sentences of 10 to 50 words. `bert`: BERT base, 8 texts of up to 512 words, padded to a multiple of 64.
`gpt2`: GPT-2, 4 texts of 64 to 512 words. `soak`: a small convolutional network without varying shapes, five times as many steps. The length is
the step's key. Each run is a process of its own, which ends after `--limit` seconds with the steps that it has done. Reserved bytes are the peak
within each step; an epoch is a tenth of the steps. "above native": steps whose peak is above that of PyTorch's allocator, alone, in the same step. Losses are compared by their sum, each
100 steps. "beside": requests of replayed steps that PyTorch's allocator served, though not by plan.
Products are in TF32.

It needs torch and transformers. Where memc is not installed, the repository's tree is enough, with tvm_ffi on the path, libmemc_core.so named by
MEMC_CORE, and, without a C++ compiler, libmemc_torch.so by MEMC_TORCH_ALLOCATOR. The phantom device of `memc estimate` will do, but for times and losses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

MODES = ("native", "planned")
JOBS = ("lstm", "bert", "gpt2", "soak")
EPOCHS = 10


def lengths_of(job: str, count: int) -> list[int]:
    """Of each batch, the same in every run."""
    draw = random.Random(7)
    if job == "lstm":
        return [draw.randint(10, 50) for _ in range(count)]
    if job == "bert":
        return [64 * -(-draw.randint(1, 512) // 64) for _ in range(count)]
    if job == "gpt2":
        return [draw.choice((64, 128, 256, 400, 512, 512)) for _ in range(count)]
    return [0] * count


def training(job: str) -> Callable[[int], Any]:
    """A step on a batch of some length, which returns its loss."""
    import torch
    from job_nets import Recurrent
    from torch.nn import functional

    torch.manual_seed(0)
    if job == "lstm":
        model, words, batch = Recurrent(), 10000, 32
    elif job == "soak":
        block = lambda i, o: (torch.nn.Conv2d(i, o, 3, padding=1), torch.nn.BatchNorm2d(o), torch.nn.ReLU(True))  # noqa: E731
        head = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10))
        model = torch.nn.Sequential(*block(3, 64), *block(64, 128), torch.nn.MaxPool2d(2), *block(128, 128), *head)
    else:
        import transformers as t

        t.logging.set_verbosity_error()
        if job == "bert":
            model, words, batch = t.BertForSequenceClassification(t.BertConfig()), 30522, 8
        else:
            model, words, batch = t.GPT2LMHeadModel(t.GPT2Config()), 50257, 4
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def loss_of(length: int) -> Any:
        if job == "soak":
            x, y = torch.randn(16, 3, 64, 64, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
            return functional.cross_entropy(model(x), y)
        x = torch.randint(0, words, (batch, length), device="cuda")
        if job == "lstm":
            return functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        y = torch.randint(0, 2, (batch,), device="cuda") if job == "bert" else x.clone()
        return model(input_ids=x, labels=y).loss

    def step(length: int) -> Any:
        optimizer.zero_grad()
        loss = loss_of(length)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@contextlib.contextmanager
def step_of(planned: Any, key: int) -> Iterator[None]:
    if planned is None:
        yield
    else:
        with planned.step(key):
            yield


def resident() -> int:
    """Bytes of the process in the host's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def natively_served(planned: Any) -> int:
    """Requests of replayed steps that were neither served from the arena nor left to PyTorch's allocator by plan."""
    report = planned.report()
    return report.requests - report.hits - report.native


def run(job: str, mode: str, steps: int, limit: float) -> dict[str, Any]:
    """One job in one mode, in this process."""
    import torch
    from linked_package import link_package

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    step = training(job)
    lengths = lengths_of(job, steps)
    peaks, took, hosts, sums, total = [], [], [], [], torch.zeros((), device="cuda")
    beside, first_epoch = 0, 0
    with contextlib.ExitStack() as stack:
        planned = None
        if mode == "planned":
            link_package()
            import memc.torch

            planned = stack.enter_context(memc.torch.planned_memory())
        started = time.monotonic()
        for length in lengths:
            torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            with step_of(planned, length):
                total += step(length)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - begin)
            peaks.append(torch.cuda.memory_stats()["reserved_bytes.all.peak"])
            hosts.append(resident())
            if len(peaks) % 100 == 0:
                sums.append(total.item())
            if planned is not None and len(peaks) == steps // EPOCHS:
                first_epoch = natively_served(planned)
            if time.monotonic() - started > limit:
                break
        report = None
        if planned is not None:
            report, beside = planned.report().to_dict(), natively_served(planned)
    return {
        "peaks": peaks,
        "ms": [round(1e3 * each, 3) for each in took],
        "host": [hosts[len(hosts) // EPOCHS], hosts[-1]],
        "losses": sums,
        "beside": [first_epoch, beside - first_epoch],
        "report": report,
        "name": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def table(found: dict[str, dict[str, Any]]) -> None:
    """Print what was measured."""
    print(
        "| job | memory | steps | reserved after an epoch | at the end | at most | above native | ms | host, MiB |",
        end="",
    )
    print(" plans | replans | watched | hits | beside: in the first epoch, later |\n| --- | --- |" + " --: |" * 12)
    for job, modes in found.items():
        for mode, row in modes.items():
            peaks = row["peaks"]
            native = modes.get("native", row)["peaks"]
            # PyTorch's allocator keeps what it has reserved: what is above its bytes now is above them at any time before.
            above = [mine - other for mine, other in zip(peaks, native) if mine > other]
            later = row["ms"][len(peaks) // EPOCHS :]
            cells = [f"{len(peaks):,}"] + [f"{each:,}" for each in (peaks[len(peaks) // EPOCHS], peaks[-1], max(peaks))]
            cells += [f"{len(above)} (by {max(above):,})" if above else "0"]
            cells += [f"{statistics.median(later):.2f}", " to ".join(f"{each / 2**20:,.0f}" for each in row["host"])]
            if report := row["report"]:
                cells += [f"{report[key]:,}" for key in ("plans", "replans", "watched_steps", "hits")]
                cells.append(", ".join(f"{each:,}" for each in row["beside"]))
            else:
                cells += [""] * 5
            print(f"| {job} | {mode} | " + " | ".join(cells) + " |")
        if len(modes) == 2:
            pairs = list(zip(modes["native"]["losses"], modes["planned"]["losses"]))
            same = f"the same at {len(pairs)} times" if all(a == b for a, b in pairs) else "NOT the same"
            print(f"| {job} | losses {same} |" + " |" * 12)


def main() -> int:
    """Run each job in each mode in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of each run's steps")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("JOB", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(*options.one, options.steps, options.limit)))
        return 0
    found: dict[str, dict[str, Any]] = {}
    for job in options.jobs:
        steps = options.steps * (5 if job == "soak" else 1)
        for mode in MODES:
            command = [
                sys.executable,
                __file__,
                "--one",
                job,
                mode,
                "--steps",
                str(steps),
                "--limit",
                str(options.limit),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{job} {mode}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}", file=sys.stderr)
                continue
            found.setdefault(job, {})[mode] = json.loads(done.stdout.splitlines()[-1])
            if options.json:
                options.json.write_text(json.dumps(found))
    table(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
