# SPDX-License-Identifier: Apache-2.0
"""How long reports take, how large they are, and how smoothly a plan of 100,000 tensors moves in a browser.

    python benchmarks/report_speed.py --models DIR --cache CACHE [--out FILE.md]

Times are the medians of five. gpt2 is the training step of `attention_memory.py`: AdamW, 4 sequences of 1,024 tokens. The plan of 100,000 tensors is random, with
sizes from 256 bytes to 1 MiB and live times by a power law. Frames are counted for 3 s while the plan moves with every frame, in a browser without a window
(playwright's driver and an installed Chromium are needed), beside an empty page. Prints Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from attention_memory import SEQUENCES, frozen
from seeded_weights import write_external

import memc
from memc.picture.page import page_of
from memc.picture.picture import PlanPicture
from memc.picture.sources import read_subject
from memc.planning.tensors import TensorColumns

TENSORS = 100_000

FRAMES = """async ([act, milliseconds]) => {
  const move = { none: () => {}, pan: (i) => { const v = memcReport.view; v.pan(((i % 60 < 30 ? 1 : -1) * (v.t1 - v.t0)) / 200, 0); } }[act];
  const stamps = [];
  await new Promise((done) => {
    const tick = (now) => {
      stamps.push(now);
      move(stamps.length);
      now - stamps[0] < milliseconds ? requestAnimationFrame(tick) : done();
    };
    requestAnimationFrame(tick);
  });
  return (1000 * (stamps.length - 1)) / (stamps.at(-1) - stamps[0]);
}"""

COST = """() => {
  const { view } = memcReport, begin = performance.now();
  for (let i = 0; i < 100; i++) { view.pan(((i % 20 < 10 ? 1 : -1) * (view.t1 - view.t0)) / 100, 0); view.tell(); }
  return (performance.now() - begin) / 100;
}"""


def median_seconds(act: Callable[[], Any], rounds: int = 5) -> tuple[float, Any]:
    """The median time of a call, and what it returned last."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        found = act()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), found


def gpt2(models: Path, cache: Path) -> memc.Compilation:
    path = write_external(models / "transformers" / "gpt2_b4_s1024.onnx", cache)
    return memc.compile(str(path), train=frozen(path, SEQUENCES, {}), plan_only=True)


def random_plan() -> memc.Plan:
    rng = np.random.default_rng(0)
    lowers = np.sort(rng.integers(0, TENSORS, TENSORS))
    lives = np.minimum(rng.pareto(1.2, TENSORS) * 30 + 1, TENSORS).astype(np.int64)
    uppers = np.minimum(lowers + lives, TENSORS + 1000)
    sizes = (2 ** rng.uniform(8, 20, TENSORS)).astype(np.int64)
    names = [f"layer{at % 48}.t{at}" for at in range(TENSORS)]
    return memc.plan(TensorColumns(names, lowers, uppers, sizes, np.full(TENSORS, -1)))


def written(picture: Callable[[], PlanPicture], rounds: int = 5) -> tuple[float, str]:
    """Seconds from a plan to its page, and the page."""
    return median_seconds(lambda: page_of(picture()), rounds)


def frames(page: str) -> list[str]:
    """Rows of a table: of each share of the plan that is seen, frames a second beside those of an empty page."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    rows = []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
        for share in (0.9, 0.5, 0.1, 0.01):
            tab.goto("about:blank")
            empty = tab.evaluate(FRAMES, ["none", 3000])
            tab.goto(file.as_uri())
            tab.evaluate("(share) => { memcReport.view.fit(); memcReport.view.zoom(share); }", share)
            tab.wait_for_timeout(300)
            moved, cost = tab.evaluate(FRAMES, ["pan", 3000]), tab.evaluate(COST)
            rows.append(f"| {100 * share:g} % | {moved:.1f} | {empty:.1f} | {moved / empty:.3f} | {cost:.2f} |")
        browser.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    compiled = gpt2(arguments.models, arguments.cache)
    step, step_page = written(lambda: read_subject(compiled).picture)
    planned, plan = median_seconds(random_plan, 1)
    large, large_page = written(lambda: read_subject(plan).picture)
    rows = [
        "| plan | tensors | planning (s) | report (s) | page (MB) |",
        "| --- | --: | --: | --: | --: |",
        f"| gpt2, one training step | {len(read_subject(compiled).picture.tensors):,} | {compiled.report.seconds['passes']:.2f} | {step:.2f} | {len(step_page) / 1e6:.2f} |",
        f"| random | {TENSORS:,} | {planned:.2f} | {large:.2f} | {len(large_page) / 1e6:.2f} |",
        "",
        "Frames a second while the random plan moves, by the share of it that is seen, and the time that one move takes the page's own code:",
        "",
        "| seen | moved | empty page | ratio | ms a move |",
        "| --: | --: | --: | --: | --: |",
        *frames(large_page),
    ]
    text = "\n".join(rows)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
