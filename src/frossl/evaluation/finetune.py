"""Fine-tuning of all layers of an encoder, with few labels or all of them."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from frossl.config import Optim
from frossl.data import stratified
from frossl.errors import InputError
from frossl.evaluation.features import extract
from frossl.evaluation.split import EvalSplit, Score
from frossl.evaluation.supervised import SupervisedData, zero_head
from frossl.networks import Encoder, layerwise_lr_scales
from frossl.optim import build_optimizer, set_lr, warmup_cosine
from frossl.types import isolated_rng


def finetune_accuracy(
    encoder: Encoder,
    split: EvalSplit,
    supervised: SupervisedData,
    *,
    fraction: float = 1.0,
    lr: float = 1e-3,
    weight_decay: float = 0.05,
    layer_decay: float = 1.0,
    mixup: float = 0.0,
) -> Score:
    """Fine-tune a copy of the encoder with a linear classifier, and test it on whole images.

    Both are trained on random crops and flips by AdamW, with 5% of the steps as linear warmup and a cosine
    decay. The encoder passed in is not changed.

    Args:
        encoder: The encoder to start from.
        split: Images to train on and to test on.
        supervised: Epochs, batch size and seed of the training.
        fraction: Fraction of every class to train on, 0 < fraction ≤ 1; the same images for every encoder.
        lr: Peak learning rate.
        weight_decay: Weight decay of AdamW.
        layer_decay: Learning rate of each layer relative to that of the next one.
        mixup: Parameter of Beta(mixup, mixup), from which mixing weights are drawn; 0 turns mixup off.

    Returns:
        Accuracy on the test images.

    Raises:
        InputError: If `fraction` or `mixup` is out of range.
    """
    check_fraction(fraction)
    check_mixup(mixup)
    chosen = stratified(split.train.labels, len(split.train.ids), fraction=fraction, seed=0)
    tuned = copy.deepcopy(encoder)
    head = zero_head(tuned.num_features, split.classes, tuned.mean.device)
    model = nn.ModuleDict({"backbone": tuned.backbone, "head": head})
    optim = Optim(optimizer="adamw", base_lr=lr, weight_decay=weight_decay, layer_decay=layer_decay)
    scales = {}
    if layer_decay < 1:
        by_name = layerwise_lr_scales(tuned.backbone, decay=layer_decay)
        scales = {f"backbone.{name}": scale for name, scale in by_name.items()}
    for p in tuned.parameters():
        p.requires_grad_(True)
    optimizer = build_optimizer(model, optim, lr=lr, scales=scales)
    random = np.random.default_rng(supervised.seed)
    model.train()
    with isolated_rng():
        torch.manual_seed(supervised.seed)  # for networks with stochastic depth
        for views, targets, clock in supervised.batches(split.train.subset(chosen), tuned):
            if len(views) < 2:
                continue  # BatchNorm needs two images
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
    features, targets = extract(tuned, split.test)
    with torch.no_grad():
        return Score.of_ranked(head.cpu()(features), targets)


def check_fraction(fraction: float) -> None:
    """Raise `InputError` unless a fraction of the labels is positive and at most 1."""
    if not 0 < fraction <= 1:
        raise InputError(f"fraction = {fraction:g}; give a share of the labels, 0 < share ≤ 1")


def check_mixup(mixup: float) -> None:
    """Raise `InputError` unless the parameter of mixup is 0 or positive."""
    if not 0 <= mixup < math.inf:
        raise InputError(f"mixup = {mixup:g}; give 0 for none, or such as 0.2")
