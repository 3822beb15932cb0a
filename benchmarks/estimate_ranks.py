# SPDX-License-Identifier: Apache-2.0
"""`memc estimate` of jobs of one rank, beside what they took on an H200: DDP, FSDP2, and groups of NCCL.

    python benchmarks/estimate_ranks.py --python PYTHON

PYTHON is an interpreter with torch 2.11.0 and torchvision 0.26.0. No GPU is needed. What was measured is in `data/pytorch_h200_ranks.json`;
`rank_job.py` is the script that is estimated. Figures are differences from what was measured, in bytes; "device" is in percent of it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from memc.estimation import estimate

HERE = Path(__file__).parent
FIGURES = ("requested", "allocated", "reserved")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", required=True)
    python = parser.parse_args().python
    data = json.loads((HERE / "data/pytorch_h200_ranks.json").read_text())
    print(data["about"] + "\n")
    job = str(HERE / "rank_job.py")
    print("| job | requested | allocated | reserved | device, % | NCCL |\n| --- | --: | --: | --: | --: | --: |")
    for row in data["jobs"]:
        found = estimate(job, gpu="h200", python=python, steps=5, arguments=(row["case"],), alternatives=False)
        cells = [f"{getattr(found, f'{name}_bytes') - row[name]:+,}".replace("+0", "0") for name in FIGURES]
        cells += [f"{100 * (found.device_bytes / row['device'] - 1):+.2f}", f"{found.breakdown.get('nccl', 0):,}"]
        print(f"| {row['case']} | {' | '.join(cells)} |")
    print("\n| channels | three groups, bytes | estimated |\n| --: | --: | --: |")
    for row in data["groups"]:
        os.environ["NCCL_MAX_NCHANNELS"] = str(row["channels"])
        found = estimate(job, gpu="h200", python=python, steps=0, arguments=("collectives",), alternatives=False)
        print(f"| {row['channels']} | {row['groups'][-1] - row['before']:,} | {found.breakdown['nccl']:,} |")


if __name__ == "__main__":
    main()
