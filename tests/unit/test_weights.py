"""Weights from local files: timm's own, wrapped, with heads, for other channels, and hostile ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from frossl.config import Network
from frossl.errors import InputError
from frossl.networks import build_backbone


def images(channels: int = 3, size: int = 64) -> torch.Tensor:
    return torch.randn(2, channels, size, size)


def features(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(x)


@pytest.fixture(scope="module")
def source() -> torch.nn.Module:
    return timm.create_model("resnet18", num_classes=7)


def bare(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().forward_head(model.forward_features(x), pre_logits=True)


@pytest.mark.parametrize("kind", ["safetensors", "plain", "wrapped", "prefixed"])
def test_a_file_gives_the_features_it_had(kind, source, tmp_path):
    state, path = source.state_dict(), tmp_path / "weights.pth"
    if kind == "safetensors":
        path = tmp_path / "weights.safetensors"
        save_file(state, path)
    elif kind == "plain":
        torch.save(state, path)
    elif kind == "wrapped":
        torch.save({"epoch": 3, "state_dict": state}, path)
    else:
        torch.save({"model": {f"module.{name}": value for name, value in state.items()}}, path)
    backbone = build_backbone(Network("resnet18", weights=str(path)), size=64)
    x = images()
    torch.testing.assert_close(features(backbone, x), bare(source, x))


def test_a_vision_transformer_is_adapted_to_another_size(tmp_path):
    model = timm.create_model("vit_tiny_patch16_224", num_classes=7)
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    network = Network("vit_tiny_patch16_224", weights=str(tmp_path / "vit.safetensors"))
    same = build_backbone(network, size=224)
    x = images(size=224)
    torch.testing.assert_close(features(same, x), bare(model, x))
    smaller = build_backbone(network, size=64)
    assert features(smaller, images()).isfinite().all()
    torch.testing.assert_close(smaller.blocks[3].mlp.fc1.weight, model.blocks[3].mlp.fc1.weight)


def test_one_channel_sees_what_three_equal_ones_would(source, tmp_path):
    torch.save(source.state_dict(), tmp_path / "w.pth")
    backbone = build_backbone(Network("resnet18", weights=str(tmp_path / "w.pth"), channels=1), size=64)
    x = images(1)
    torch.testing.assert_close(
        features(backbone, x), bare(source, x.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4
    )


class Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_no_file_can_run_code(tmp_path):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Harm(tmp_path / "harmed")))
    torch.save({"state_dict": Harm(tmp_path / "harmed")}, tmp_path / "evil2.pth")
    for name in ("evil.pth", "evil2.pth"):
        with pytest.raises(InputError, match="cannot be read as plain weights"):
            build_backbone(Network("resnet18", weights=str(tmp_path / name)), size=64)
    assert not (tmp_path / "harmed").exists()


def test_what_does_not_fit_is_refused_in_words(source, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(source.state_dict(), path)
    whole = path.read_bytes()
    for network, words in (
        (Network("resnet34", weights=str(path)), "does not fit .*missing"),
        (Network("convnext_atto", weights=str(path)), "does not fit"),
        (Network("resnet18", width=0.5, weights=str(path)), "does not fit"),
        (Network("resnet18", stem="fast", weights=str(path)), "does not fit"),
        (Network("resnet18", weights=str(tmp_path / "none.pth")), "there is no file"),
        (Network("resnet18", weights=str(tmp_path)), "is a folder; give the file in it"),
    ):
        with pytest.raises(InputError, match=words):
            build_backbone(network, size=64)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        build_backbone(Network("resnet18", weights=str(path)), size=64)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(InputError, match="holds no state dict"):
        build_backbone(Network("resnet18", weights=str(tmp_path / "list.pth")), size=64)
