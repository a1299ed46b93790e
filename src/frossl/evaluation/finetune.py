"""Fine-tuning: every layer of the encoder, with few labels or all of them."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from frossl.config import Optim
from frossl.data import stratified
from frossl.errors import InputError
from frossl.evaluation.features import extract
from frossl.evaluation.split import Score, Split
from frossl.evaluation.supervised import Schooling, zero_head
from frossl.networks import Encoder, rates_by_depth
from frossl.optim import build_optimizer, set_lr, warmup_cosine
from frossl.types import own_random_numbers


def finetune_accuracy(
    encoder: Encoder,
    split: Split,
    schooling: Schooling,
    *,
    labels: float = 1.0,
    lr: float = 1e-3,
    weight_decay: float = 0.05,
    layer_decay: float = 1.0,
    mixup: float = 0.0,
) -> Score:
    """A copy of the encoder with a linear layer on top, trained together on random crops and flips by AdamW
    with a warm-up and a cosine; tested on whole images. The encoder itself stays as it is.

    labels: the share of every class that is learned from, the same images for every encoder. layer_decay:
    each layer moves at this share of the rate of the next. mixup: images and labels are mixed by shares drawn
    from Beta(mixup, mixup); 0 for none.
    """
    if not 0 < labels <= 1:
        raise InputError(f"labels = {labels:g}; give a share of the labels, 0 < share ≤ 1")
    if mixup < 0:
        raise InputError(f"mixup = {mixup:g}; give 0 for none, or such as 0.2")
    chosen = stratified(split.bank.labels, len(split.bank.ids), fraction=labels, seed=0)
    tuned = copy.deepcopy(encoder)
    head = zero_head(tuned.num_features, split.classes, tuned.mean.device)
    model = nn.ModuleDict({"backbone": tuned.backbone, "head": head})
    optim = Optim(optimizer="adamw", base_lr=lr, weight_decay=weight_decay, layer_decay=layer_decay)
    scales = {}
    if layer_decay < 1:
        by_name = rates_by_depth(tuned.backbone, decay=layer_decay)
        scales = {f"backbone.{name}": scale for name, scale in by_name.items()}
    for p in tuned.parameters():
        p.requires_grad_(True)
    optimizer = build_optimizer(model, optim, lr=lr, scales=scales)
    random = np.random.default_rng(schooling.seed)
    model.train()
    with own_random_numbers():
        torch.manual_seed(schooling.seed)  # for networks that drop paths
        for views, targets, clock in schooling.lessons(split.bank.among(chosen), tuned):
            if len(views) < 2:
                continue  # BatchNorm needs two
            set_lr(optimizer, warmup_cosine(clock.step, total=clock.total, warmup=clock.total // 20, peak=lr))
            share = float(random.beta(mixup, mixup)) if mixup > 0 else 1.0
            mixed = views if share == 1 else share * views + (1 - share) * views.flip(0)
            logits = head(tuned.backbone(mixed))
            loss = share * F.cross_entropy(logits, targets)
            if share < 1:
                loss = loss + (1 - share) * F.cross_entropy(logits, targets.flip(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    features, wanted = extract(tuned, split.test)
    with torch.no_grad():
        return Score.of_ranked(head.cpu()(features), wanted)
