"""Backbones by name, at small and larger sizes."""

from __future__ import annotations

import pytest
import torch
from timm.layers import DropPath
from torch import nn

from frossl.config import Network
from frossl.errors import InputError
from frossl.networks import (
    Encoder,
    build_backbone,
    build_projector,
    features_of,
    freeze_layers,
    keep_frozen,
    layers_of,
    layerwise_lr_scales,
    make_teacher,
)

BACKBONES = (
    "resnet18",
    "resnet50",
    "convnext_atto",
    "vit_tiny_patch16_224",
    "efficientnet_b0",
    "mobilenetv3_small_100",
)


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_give_pooled_features_that_carry_gradient(name, size):
    backbone = build_backbone(Network(name), size=size).train()
    features = backbone(torch.randn(4, 3, size, size))
    assert features.shape == (4, features_of(backbone))
    features.square().sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())


def first_map(backbone: nn.Module, size: int) -> int:
    """Pixels along the side of what reaches the first stage."""
    seen = []
    stage = backbone.layer1 if hasattr(backbone, "layer1") else backbone.stages
    stage.register_forward_pre_hook(lambda module, given: seen.append(given[0].shape[-1]))
    backbone.eval()(torch.randn(1, 3, size, size))
    return seen[0]


@pytest.mark.parametrize(("stem", "side"), [("small", 32), ("fast", 16), ("native", 8), (None, 16)])
@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_stems_keep_the_resolution_they_promise(name, stem, side):
    assert first_map(build_backbone(Network(name, stem=stem), size=32), 32) == side


def test_large_images_keep_the_stem_of_timm():
    assert first_map(build_backbone(Network("resnet18"), size=96), 96) == 24


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_width_scales_the_features(name):
    def features(width: float) -> int:
        return features_of(build_backbone(Network(name, width=width), size=32))

    assert features(0.5) == pytest.approx(features(1.0) / 2, rel=0.35)
    assert features(0.5) < features(1.0)


def test_a_resnet_can_be_cut_after_a_stage():
    backbone = build_backbone(Network("resnet18", width=0.75, stages=3), size=32)
    assert backbone(torch.randn(2, 3, 24, 24)).shape == (2, 192)
    assert not any(name.startswith("layer4") for name, _ in backbone.named_parameters())


def test_a_vision_transformer_takes_views_of_another_size():
    backbone = build_backbone(Network("vit_tiny_patch16_224"), size=24)
    assert backbone(torch.randn(2, 3, 32, 32)).shape == (2, 192)


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_any_number_of_channels_works(name, channels):
    backbone = build_backbone(Network(name, channels=channels), size=32)
    assert backbone(torch.randn(2, channels, 32, 32)).shape == (2, features_of(backbone))


def test_blocks_are_skipped_in_the_student_only():
    student = build_backbone(Network("convnext_atto", drop_path=0.9), size=32).train()
    teacher = make_teacher(student).train()
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(student(x), student(x))
    torch.testing.assert_close(teacher(x), teacher(x))


def test_layers_run_from_the_stem_on():
    layers = layers_of(build_backbone(Network("resnet18"), size=96))
    assert {name for name, layer in layers.items() if layer == 0} == {
        "conv1.weight",
        "bn1.weight",
        "bn1.bias",
    }
    rates = layerwise_lr_scales(build_backbone(Network("resnet18"), size=96), decay=0.5)
    assert rates["layer4.1.conv2.weight"] == 1.0
    assert rates["layer4.0.conv1.weight"] == 0.5
    assert rates["conv1.weight"] == 0.5**8  # eight blocks later comes the last


def test_frozen_layers_stay_statistics_included():
    backbone = build_backbone(Network("resnet18", width=0.125, drop_path=0.1), size=96)
    freeze_layers(backbone, 3)
    keep_frozen(backbone.train())
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in backbone.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        backbone(torch.randn(4, 3, 96, 96) + 1).square().mean().backward()
        optimizer.step()
    moved = {name for name, value in backbone.state_dict().items() if not torch.equal(value, before[name])}
    frozen = {name for name in before if name.startswith(("conv1", "bn1", "layer1"))}
    assert not moved & frozen
    assert {name for name in before if name.startswith("layer2.0.bn")} <= moved
    drops = {name: part for name, part in backbone.named_modules() if isinstance(part, DropPath)}
    assert {name for name, part in drops.items() if part.training} == drops.keys() - {"layer1.1.drop_path"}


def test_what_has_no_layers_or_too_few_of_them_cannot_be_frozen():
    with pytest.raises(InputError, match="has 9 layers"):
        freeze_layers(build_backbone(Network("resnet18"), size=96), 10)
    with pytest.raises(InputError, match="leave out network"):
        freeze_layers(nn.Linear(2, 2), 1)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Network("resnet81"), "did you mean .*resnet"),
        (Network("efficientnet_b0", width=0.5), "width 1 only"),
        (Network("convnext_atto", stages=2), "only ResNets"),
        (Network("resnet18", stages=5), "has 4"),
        (Network("regnety_002", stem="small"), "only the stem 'native'"),
        (Network("vgg11", drop_path=0.1), "no blocks to skip"),
    ],
)
def test_what_cannot_be_built_is_refused(network, words):
    with pytest.raises(InputError, match=words):
        build_backbone(network, size=32)


def test_the_projector_has_the_papers_layers():
    kinds = [type(module).__name__ for module in build_projector(8, hidden=16, out=4)]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    out = build_projector(8, hidden=16, out=4, norm=True)(torch.randn(32, 8))
    torch.testing.assert_close(out.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(0, correction=0), torch.ones(4), atol=1e-2, rtol=0)


def test_an_encoder_prepares_images_of_any_size():
    encoder = Encoder(nn.Flatten(), size=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    flat = torch.full((2, 3, 50, 70), 51, dtype=torch.uint8)
    torch.testing.assert_close(encoder(flat), torch.full((2, 3 * 32 * 32), (51 / 255 - 0.5) / 0.25))
    same = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(encoder(same), ((same - 0.5) / 0.25).flatten(1))
