# SPDX-License-Identifier: Apache-2.0
"""The picture of the README and of docs/report.md: addresses over time in one training step of GPT-2.

    python benchmarks/report_picture.py --models DIR --cache CACHE

As `memc report --svg` draws it, of the step of `attention_memory.py`: AdamW, 4 sequences of 1,024 tokens. Writes docs/images/gpt2_training_step.svg.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report_speed import gpt2

import memc

PICTURE = Path(__file__).resolve().parents[1] / "docs/images/gpt2_training_step.svg"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    PICTURE.parent.mkdir(exist_ok=True)
    memc.write_report(gpt2(arguments.models, arguments.cache), PICTURE, title="GPT-2, one training step")
    print(f"wrote {PICTURE} ({PICTURE.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
