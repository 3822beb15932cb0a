# SPDX-License-Identifier: Apache-2.0
"""A job of one rank that `estimate_ranks.py` estimates: five steps of ResNet-50 with Adam, or collectives of three groups.

    python benchmarks/rank_job.py plain|ddp|"ddp view"|fsdp2|collectives

It needs torch and torchvision.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F


def collectives() -> None:
    """Of the whole job, and of two groups more."""
    x = torch.ones(1024, device="cuda")
    for group in (None, dist.new_group([0]), dist.new_group([0])):
        dist.all_reduce(x, group=group)


def train(kind: str) -> None:
    """Five steps."""
    import torchvision

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    model = torchvision.models.resnet50().cuda()
    if kind.startswith("ddp"):
        view = kind == "ddp view"
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=view)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
            for block in layer:
                fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    for _ in range(5):
        x = torch.randn(32, 3, 224, 224, device="cuda")
        y = torch.randint(0, 1000, (32,), device="cuda")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    if sys.argv[1] != "plain":
        dist.init_process_group("nccl", rank=0, world_size=1)
    collectives() if sys.argv[1] == "collectives" else train(sys.argv[1])
