"""Encoder files and exports, each read back by the library it is for."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import frossl
import frossl.compat  # before timm, which imports torchvision
from frossl.config import Network
from frossl.errors import FrosslError, InputError
from frossl.exporting import EncoderSpec, load_encoder, read_encoder, write_encoder
from frossl.exporting.formats import FORMATS
from frossl.exporting.formats.record import ExportFormat
from frossl.health.environment import EXTRAS
from tests.support import ROOT
from tests.support.images import write_image

import timm  # isort: skip

NETWORKS = {
    "native": Network(backbone="resnet18", stem="native", channels=3),
    "narrow": Network(backbone="resnet18", width=0.25, stem="native", channels=1),
    "cut": Network(backbone="resnet18", width=0.25, stages=3, stem="fast", channels=3),
    "small": Network(backbone="resnet34", width=0.25, stem="small", channels=2),
    "bottleneck": Network(backbone="resnet50", width=0.25, stem="fast", channels=3),
    "vit": Network(backbone="vit_tiny_patch16_224", width=0.34, stem="fast", channels=3),
    "convnext": Network(backbone="convnext_atto", width=0.5, stem="fast", channels=3),
    "mobile": Network(backbone="mobilenetv3_small_050", stem="small", channels=3),
    "same": Network(backbone="tf_efficientnet_b0", stem="small", channels=3),
    "swin": Network(backbone="swin_tiny_patch4_window7_224", stem="native", channels=3),
}


def design_of(network: Network, size: int = 32) -> EncoderSpec:
    channels = network.channels or 3
    view_size = 224 if network.backbone.startswith("swin") else 24
    size = 224 if network.backbone.startswith("swin") else size
    return EncoderSpec(network, view_size, size, (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels])


def lively(design: EncoderSpec) -> frossl.networks.Encoder:
    """An encoder whose every weight and statistic is its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder, random = design.build(), torch.Generator().manual_seed(1)
    for name, tensor in encoder.backbone.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=random)
            tensor.add_(0.1 * noise if "running_var" in name else 0.1 * (noise - 0.5))
    return encoder.eval()


SIZE = 20
"""Pixels of the views of the runs below, at which their encoders read images."""


def images_for(design: EncoderSpec, count: int = 3, *, seed: int = 0) -> torch.Tensor:
    shape = (count, len(design.mean), design.size, design.size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("photos")
    for i in range(12):
        write_image(place / "ab"[i % 2] / f"{i}.png", width=40 + i, height=36, seed=i)
    return place


def train(photos: Path, name: str, **settings) -> Path:
    """settings: of the network."""
    out = photos.parent / f"{photos.name}-{name}"
    small = {"data.size": 32, "network.projector_hidden": 16, "network.projector_out": 16}
    small |= {f"network.{name}": value for name, value in settings.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FROSSL_MAX_STEPS", "2")
        frossl.pretrain(photos, settings=small, out=out, batch_size=6, quiet=True)
    return out


@pytest.fixture(scope="module")
def whole(photos) -> Path:
    """A run of an architecture as others have it."""
    return train(photos, "whole", width=1.0, stem="native")


@pytest.fixture(scope="module")
def changed(photos) -> Path:
    """A run of a network with a stem of ours, and fewer stages."""
    return train(photos, "changed", width=0.25, stem="fast", stages=3)


@pytest.mark.parametrize("name", NETWORKS)
def test_plain_timm_rebuilds_it_by_the_lines_of_the_card(name, tmp_path, monkeypatch):
    design = design_of(NETWORKS[name])
    encoder = lively(design)
    write_encoder(tmp_path / "encoder.safetensors", encoder, design)
    monkeypatch.chdir(tmp_path)
    made: dict[str, torch.nn.Module] = {}
    exec("\n".join(FORMATS["safetensors"].usage(design)), made)
    prepared = encoder.preprocess(images_for(design))
    with torch.no_grad():
        assert torch.equal(made["model"](prepared), encoder.backbone(prepared))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_is_enough(name, tmp_path):
    design = design_of(NETWORKS[name])
    encoder, images = lively(design), images_for(design)
    write_encoder(tmp_path / "anything", encoder, design)
    again, read = read_encoder(tmp_path / "anything")
    assert read == design
    with torch.no_grad():
        assert torch.equal(again(images), encoder(images))


@pytest.mark.parametrize("name", ["native", "cut", "vit", "convnext", "swin"])
def test_places_have_features_too(name):
    """Against timm's own pooling, and against the tokens in their order."""
    design = design_of(NETWORKS[name], size=32 if name == "vit" else 96)
    encoder, images = lively(design), images_for(design)
    with torch.no_grad():
        maps, tokens, pooled = encoder.feature_map(images), encoder.patch_tokens(images), encoder(images)
        raw = encoder.backbone.forward_features(encoder.preprocess(images))
    N, F, h, w = maps.shape
    assert N == 3
    assert encoder.num_features == F
    assert torch.equal(tokens[1, 1 * w + 2], maps[1, :, 1, 2])
    if name == "vit":  # 32 pixels by patches of 4; the class token is the first
        assert (h, w) == (8, 8)
        assert torch.equal(tokens, raw[:, 1:])
    elif name == "convnext":  # normalizes after it has pooled
        expected = encoder.backbone.head.norm(maps.mean((2, 3), keepdim=True)).flatten(1)
        torch.testing.assert_close(expected, pooled)
    else:
        torch.testing.assert_close(maps.mean((2, 3)), pooled)


def test_timm_reads_the_file_of_a_run(whole):
    """As the issue of everyone: create_model(..., checkpoint_path=...)."""
    encoder = load_encoder(whole)
    model = timm.create_model("resnet18", num_classes=0, checkpoint_path=str(whole / "encoder.safetensors"))
    prepared = encoder.preprocess(torch.randint(0, 256, (4, 3, 50, 40), dtype=torch.uint8))
    with torch.no_grad():
        assert torch.equal(model.eval()(prepared), encoder.backbone(prepared))


def test_torchvision_loads_it_strictly(whole):
    from torchvision.models import resnet18

    file = frossl.export(whole, format="torchvision")
    model = resnet18()
    model.load_state_dict(load_file(file), strict=True)
    model.fc = torch.nn.Identity()
    encoder = load_encoder(whole)
    prepared = encoder.preprocess(torch.randint(0, 256, (4, 3, SIZE, SIZE), dtype=torch.uint8))
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(prepared), encoder.backbone(prepared))


@pytest.mark.parametrize("format", ["torchvision", "hf"])
def test_what_cannot_be_said_elsewhere_is_refused(format, changed):
    with pytest.raises(InputError, match="stem fast, the first 3 stages only"):
        frossl.export(changed, format=format)
    assert not (changed / "export" / format).exists()


def test_onnx_takes_any_batch(changed, tmp_path):
    import onnxruntime

    file = frossl.export(changed, format="onnx", out=tmp_path / "onnx")
    assert sorted(p.name for p in file.parent.iterdir()) == [
        "encoder.onnx",
        "model_card.md",
        "preprocess.json",
    ]
    session, encoder = onnxruntime.InferenceSession(file), load_encoder(changed)
    for count in (1, 2, 7, 64):
        images = torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8)
        (features,) = session.run(None, {"images": images.numpy()})
        with torch.no_grad():
            expected = encoder(images).numpy()
        np.testing.assert_allclose(features, expected, atol=1e-4 * np.abs(expected).max(), rtol=0)


WITHOUT = """
import runpy, sys
for name in {names!r}:
    sys.modules[name] = None
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_without(names: list[str], argv: list[str]) -> str:
    """A script where some packages cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=names, argv=argv)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_serving_needs_neither_torch_nor_frossl(changed, photos, tmp_path):
    """Files by Pillow and onnxruntime give what frossl reads: pixels may be rounded otherwise."""
    file = frossl.export(changed, format="onnx", out=tmp_path / "onnx")
    paths = sorted(str(path) for path in photos.rglob("*.png"))
    script = str(ROOT / "examples" / "serve_onnx.py")
    printed = run_without(["torch", "frossl", "timm", "torchvision"], [script, str(file), *paths])
    served = torch.tensor([[float(x) for x in line.split()] for line in printed.splitlines()])
    from frossl.data import open_dataset

    source = open_dataset(str(photos), size=SIZE).train.source
    names = [str(photos / source.name(i)) for i in range(len(source))]
    with torch.no_grad():
        own = load_encoder(changed)(source.read(torch.arange(len(source))).images)
    own = own[[names.index(path) for path in paths]]
    assert torch.nn.functional.cosine_similarity(served, own).min() > 0.999


def test_torch_export_is_loaded_without_frossl(changed, tmp_path):
    file = frossl.export(changed, format="torch-export", out=tmp_path / "pt2")
    images = torch.randint(0, 256, (5, 3, SIZE, SIZE), dtype=torch.uint8)
    np.save(tmp_path / "images.npy", images.numpy())
    script = tmp_path / "load.py"
    script.write_text(
        "import sys, numpy, torch\n"
        "model = torch.export.load(sys.argv[1]).module()\n"
        "with torch.no_grad():\n"
        "    features = model(torch.from_numpy(numpy.load(sys.argv[2])))\n"
        "numpy.save(sys.argv[3], features.numpy())\n"
    )
    out = tmp_path / "features.npy"
    run_without(["frossl", "timm"], [str(script), str(file), str(tmp_path / "images.npy"), str(out)])
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(np.load(out)), load_encoder(changed)(images))


def test_timm_loads_the_folder_for_the_hub(whole, photos, tmp_path):
    vit = train(photos, "vit", backbone="vit_tiny_patch16_224", width=0.34, stem="fast")
    for run in (whole, vit):
        folder = frossl.export(run, format="hf", out=tmp_path / run.name)
        model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        encoder = load_encoder(folder)
        images = torch.randint(0, 256, (3, 3, SIZE, SIZE), dtype=torch.uint8)
        with torch.no_grad():
            assert torch.equal(model(encoder.preprocess(images)), load_encoder(run)(images))
        prepare = timm.data.resolve_model_data_config(model)
        assert prepare["mean"] == pytest.approx(encoder.mean.flatten().tolist())
        assert list(prepare["input_size"]) == [3, SIZE, SIZE]
        assert (folder / "README.md").read_text().startswith("---\nlibrary_name: timm\n")


def ran(card: Path, **given) -> dict[str, object]:
    """What the Python of a card leaves, block after block."""
    known: dict[str, object] = dict(given)
    blocks = re.findall(r"```python\n(.*?)```", card.read_text(), re.DOTALL)
    assert blocks
    with torch.no_grad():
        for block in blocks:
            exec(block, known)
    return known


@pytest.mark.parametrize("run", ["whole", "changed"])
def test_the_blocks_of_a_card_run(run, request, monkeypatch):
    folder = request.getfixturevalue(run)
    monkeypatch.chdir(folder)
    images = torch.randint(0, 256, (2, 3, SIZE, SIZE), dtype=torch.uint8)
    known = ran(folder / "model_card.md", images=images)
    with torch.no_grad():
        prepared = load_encoder(folder).preprocess(images)
        assert torch.equal(known["model"](prepared), known["features"])
    assert "12 of `" in (folder / "model_card.md").read_text()


@pytest.mark.parametrize("run", ["whole", "changed"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_card_of_an_export_is_for_what_lies_beside_it(format, run, request, tmp_path, monkeypatch):
    folder, state = request.getfixturevalue(run), torch.random.get_rng_state()
    try:
        frossl.export(folder, format=format, out=tmp_path)
    except InputError:  # the format cannot hold a network of ours
        assert (run, list(tmp_path.iterdir())) == ("changed", [])
        return
    assert torch.equal(torch.random.get_rng_state(), state)
    monkeypatch.chdir(tmp_path)
    card = tmp_path / FORMATS[format].card
    images = torch.randint(0, 256, (2, 3, SIZE, SIZE), dtype=torch.uint8)
    known = ran(card, images=images.numpy() if format == "onnx" else images)
    encoder = load_encoder(folder)
    with torch.no_grad():
        expected, found = encoder(images), [known["features"]] if "features" in known else []
        if FORMATS[format].takes == "preprocessed":
            found.append(known["model"](encoder.preprocess(images)))
    assert found
    for features in found:
        torch.testing.assert_close(torch.as_tensor(features), expected, rtol=1e-4, atol=1e-5)


def test_a_card_has_the_figures_and_survives_names(photos, changed, tmp_path):
    folder = tmp_path / "`<b>|\u202erun"
    folder.symlink_to(changed)
    frossl.knn(changed, data=photos)
    file = frossl.export(folder, out=tmp_path / "out")
    card = (file.parent / "model_card.md").read_text()
    assert "| raw pixels |" in card
    assert "| this encoder |" in card
    assert card.startswith("# `\ufffd<b>\ufffd\ufffdrun`")


def test_damaged_files_are_told_in_a_line(tmp_path, changed):
    good = (changed / "encoder.safetensors").read_bytes()
    design = design_of(NETWORKS["cut"])
    cases = {
        "cut": good[: len(good) // 2],
        "empty": b"",
        "pickle": pickle.dumps({"weight": 1}),
        "flipped": good[:200] + b"\xff" * 8 + good[208:],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as an encoder") as told:
            load_encoder(tmp_path / name)
        assert "\n" not in str(told.value)
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(InputError, match="does not say what network"):
        load_encoder(tmp_path / "foreign")
    other = replace(design, network=replace(design.network, width=0.5))
    weights = lively(design).backbone.state_dict()
    for header in (other.to_json(), "[]", "{", json.dumps({"network": {"backbone": "hf-hub:x/y"}})):
        save_file(weights, tmp_path / "lies", metadata={"frossl": header})
        with pytest.raises(InputError):
            load_encoder(tmp_path / "lies")


def test_bytes_repeat(tmp_path):
    design = design_of(NETWORKS["cut"])
    for name in "ab":
        write_encoder(tmp_path / name, lively(design), design)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bad_wishes(changed, tmp_path):
    with pytest.raises(InputError, match="onnx"):
        frossl.export(changed, format="onx")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="not empty and not an export"):
            frossl.export(changed, out=tmp_path / "full", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    frossl.export(changed, out=tmp_path / "export")
    (tmp_path / "export" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds an export"):
        frossl.export(changed, out=tmp_path / "export")
    frossl.export(changed, out=tmp_path / "export", overwrite=True)
    assert (tmp_path / "export" / "thesis.txt").read_text() == "mine"
    with pytest.raises(InputError, match="neither a run nor an encoder"):
        load_encoder(tmp_path)


def test_what_a_killed_export_left_is_removed(whole, tmp_path):
    """A process is killed while it writes; exporting again completes the folder and leaves nothing else."""
    target = tmp_path / "exported"
    target.mkdir()
    code = (
        "import os, pathlib, signal, sys, tempfile; from frossl.runs.lock import temporary_prefix;"
        "tempfile.mkstemp(prefix=temporary_prefix('encoder.safetensors'), dir=sys.argv[1]);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -9
    assert [path.name.startswith(".writing-") for path in target.iterdir()] == [True]
    frossl.export(whole, out=target)
    names = {"encoder.safetensors", "preprocess.json", "model_card.md"}
    assert {path.name for path in target.iterdir()} == names


def fail(*given):
    raise FrosslError("a part of this format fails")


def shifted(files, spec):
    model = FORMATS["safetensors"].load(files, spec)
    return lambda images: model(images) + 1


BROKEN = {
    "usage": {"usage": fail},
    "network": {"check_network": fail},
    "package": {"extra": "toy", "packages": ("frossl_has_no_such_package",)},
    "conversion": {"convert": fail},
    "another file": {"files": ("toy.bin",)},
    "loading": {"load": fail},
    "other features": {"load": shifted},
    "other images": {"takes": "uint8"},
}
"""Formats with one wrong part: what is wrong, and the fields of the record."""


@pytest.mark.parametrize("part", BROKEN)
def test_a_format_that_fails_in_any_part_has_written_nothing(part, changed, tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "toy", replace(FORMATS["safetensors"], name="toy", **BROKEN[part]))
    with pytest.raises((FrosslError, RuntimeError)):
        frossl.export(changed, format="toy", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    earlier = frossl.export(changed, out=tmp_path / "earlier").parent
    before = {path.name: path.read_bytes() for path in earlier.iterdir()}
    with pytest.raises((FrosslError, RuntimeError)):
        frossl.export(changed, format="toy", out=earlier, overwrite=True)
    assert {path.name: path.read_bytes() for path in earlier.iterdir()} == before


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_a_record_is_complete(format: ExportFormat):
    """What the types cannot say; extras are those of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert FORMATS[format.name] is format
    assert format.files
    assert format.encoder_file in (None, *format.files)
    assert "\n" not in format.summary
    assert bool(format.extra) == bool(format.packages)
    if format.extra:
        installed = {re.split(r"\W", wanted)[0] for wanted in project["optional-dependencies"][format.extra]}
        assert set(format.packages) <= installed
        assert format.extra in EXTRAS


def test_a_missing_package_is_named_with_its_extra(changed, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"onnxscript is not installed; pip install 'frossl\[onnx\]'"):
        frossl.export(changed, format="onnx")
    assert not (changed / "export" / "onnx").exists()


def test_a_new_run_in_the_folder_removes_its_exports(photos):
    run = train(photos, "again", width=0.25, stem="native")
    for format in FORMATS.values():
        for name in (*format.files, format.card, "preprocess.json", "mine.txt"):
            (run / "export" / format.name).mkdir(parents=True, exist_ok=True)
            (run / "export" / format.name / name).write_text(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FROSSL_MAX_STEPS", "1")
        frossl.pretrain(photos, out=run, batch_size=6, width=0.25, overwrite=True, quiet=True)
    assert {path.name for path in (run / "export").rglob("*") if path.is_file()} == {"mine.txt"}
