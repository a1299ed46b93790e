"""A whole self-supervised run in one flat file, from frossl's public parts.

    python examples/one_file_frossl.py examples/data/cifar10-mini.webp

Reads 6,000 small images, learns from 5,000 of them without labels, and asks by nearest neighbours what was
learned. Change anything: every part works alone with plain tensors. (`frossl demo` is the same with
checkpoints, resume, a record of the run and more honest baselines.)
"""

import os
import sys
import time
from pathlib import Path

import torch

from frossl.augment import Augment, ViewSpec
from frossl.config import Network
from frossl.data.named import read_sheet
from frossl.evaluation import knn_accuracy
from frossl.networks import build_backbone, build_projector, features_of
from frossl.objectives import frossl_loss
from frossl.optim import warmup_cosine
from frossl.types import Batch, Clock

# ---------------------------------------------------------------- settings

SEED = 0
BATCH = 128
EPOCHS = 15
PEAK_LR = 3e-3
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

# ---------------------------------------------------------------- data: tile i shows class i % 10

images = read_sheet(Path(sys.argv[1]))
train, test = images[:5000], images[5000:]
train_labels, test_labels = torch.arange(5000) % 10, torch.arange(1000) % 10

# ---------------------------------------------------------------- networks

torch.manual_seed(SEED)
backbone = build_backbone(Network("resnet18", width=0.5, stages=3, stem="fast"), size=32)
projector = build_projector(features_of(backbone), hidden=512, out=256, layers=2)
model = torch.nn.Sequential(backbone, projector).to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=1e-4)

# ---------------------------------------------------------------- views: two random crops of every image

VIEW = ViewSpec(size=20, count=2, scale=(0.2, 1.0), flip=0.5, jitter=0.8, gray=0.2)
views_of = Augment((VIEW,), mean=MEAN, std=STD)

# ---------------------------------------------------------------- evaluation


@torch.no_grad()
def features(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    backbone.eval()
    rows = torch.cat([backbone((some.float() / 255 - mean) / std) for some in pixels.split(500)])
    backbone.train()
    return rows


def report(when: str) -> None:
    score = knn_accuracy(features(train), train_labels, features(test), test_labels, k=20)
    print(f"{when}: kNN {score} %", flush=True)


# ---------------------------------------------------------------- training

steps_per_epoch = len(train) // BATCH
total = EPOCHS * steps_per_epoch
last = min(total, int(os.environ.get("FROSSL_MAX_STEPS", total)))
report("untrained")
began = time.monotonic()
for step in range(last):
    epoch, place = divmod(step, steps_per_epoch)
    if place == 0:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED + epoch))
    ids = order[place * BATCH : (place + 1) * BATCH]
    clock = Clock(step, total, epoch, SEED)

    (views,) = views_of(Batch(train[ids], ids), clock)  # (2, N, 3, 20, 20)
    z = torch.stack([model(view) for view in views])  # (2, N, D)
    terms = frossl_loss(z)

    for group in optimizer.param_groups:
        group["lr"] = warmup_cosine(step, total=total, warmup=total // 20, peak=PEAK_LR)
    optimizer.zero_grad()
    terms.total.backward()
    optimizer.step()

    if (step + 1) % 20 == 0 or step + 1 == last:
        numbers = terms.to_floats()
        speed = BATCH * (step + 1) / (time.monotonic() - began)
        rank = f"rank {numbers['effective_rank']:.0f}/{BATCH}"
        print(
            f"step {step + 1}/{total}  loss {numbers['loss']:.3f}  {rank}  {speed:.0f} images/s", flush=True
        )
report("trained")
