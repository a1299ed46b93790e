"""Figures that say what is so: labels, splits, intervals, arms, and what an encoder is given."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from PIL import Image
from scipy.stats import binomtest

import frossl
from frossl.errors import InputError
from frossl.evaluation import Score

SMALL = {
    "network.width": 0.125,
    "network.stages": 1,
    "network.projector_hidden": 8,
    "network.projector_out": 8,
    "train.checkpoint_every": 1,
}


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FROSSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def noise(count: int, *, seed: int = 0) -> np.ndarray:
    """Images that have nothing to do with each other, (N, 8, 8, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of two steps, on 32 images with labels."""
    folder = tmp_path_factory.mktemp("run")
    np.savez(folder / "data.npz", images=noise(32), labels=np.arange(32) % 2)
    made = frossl.pretrain(
        folder / "data.npz", out=folder / "seed-0", epochs=1, batch_size=16, settings=SMALL, quiet=True
    )
    return made.path


@pytest.fixture(scope="module")
def encoder(run):
    return frossl.load_encoder(run)


# --- labels ---------------------------------------------------------------------------------------------


def test_an_image_of_a_class_that_nobody_learned_is_never_right():
    """Classes 0 and 2 are learned; half of the test images are of class 1, and look as class 2 does."""
    random = np.random.default_rng(0)
    learned = np.repeat([0, 2], 30)
    train = torch.tensor(np.eye(3)[learned] + 0.05 * random.normal(size=(60, 3)), dtype=torch.float32)
    asked = np.repeat([1, 2], 20)
    test = torch.tensor(np.eye(3)[np.full(40, 2)] + 0.05 * random.normal(size=(40, 3)), dtype=torch.float32)
    rows = (train, torch.from_numpy(learned), test, torch.from_numpy(asked))
    assert frossl.logistic_accuracy(*rows).percent == 50
    assert frossl.few_label_accuracy(*rows, per_class=5).percent == 50
    assert frossl.knn_accuracy(*rows, k=5).percent == 50


def write_files(folder: Path, images: np.ndarray, classes: list[str]) -> None:
    for i, (image, name) in enumerate(zip(images, classes, strict=True)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name / f"{i:03}.png")


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory) -> Path:
    """Colors: `b` looks as `c` does, and none of its six images to learn from can be read."""
    folder = tmp_path_factory.mktemp("unreadable")
    colors = {"a": (200, 40, 40), "b": (40, 40, 200), "c": (40, 40, 200)}
    for part, each in (("train", 6), ("test", 10)):
        names = [name for name in colors for _ in range(each)]
        images = np.array([colors[name] for name in names])[:, None, None] + noise(len(names)) // 8
        write_files(folder / part, images.astype(np.uint8), names)
    for file in (folder / "train" / "b").iterdir():
        file.write_bytes(b"\x89PNG, or so it says")
    return folder


def test_a_probe_of_files_counts_a_class_without_a_readable_image_as_wrong(run, unreadable):
    found = frossl.probe(run, data=unreadable, per_class=[5])
    for name in ("probe", "probe5"):
        assert found[name].pixels.percent == pytest.approx(100 * 2 / 3)
    assert frossl.knn(run, data=unreadable, k=3).pixels.percent == pytest.approx(100 * 2 / 3)


def test_one_class_that_can_be_read_is_an_error_of_one_line(run, unreadable, tmp_path):
    shutil.copytree(unreadable, tmp_path / "data")
    for part in ("train", "test"):
        shutil.rmtree(tmp_path / "data" / part / "c")
    with pytest.raises(InputError, match=r"fewer than two classes; .*frossl check") as error:
        frossl.probe(run, data=tmp_path / "data", per_class=[])
    assert "\n" not in str(error.value)


def test_names_of_classes_mean_the_same_in_both_parts_of_an_archive_of_arrays(run, tmp_path):
    """The test part lacks the first class: its own numbers would be others."""
    classes, random = np.array(["ant", "bee", "cow"]), np.random.default_rng(0)
    train, test = np.arange(30) % 3, 1 + np.arange(20) % 2
    shades = np.array([20, 120, 220])

    def images(labels):
        return (shades[labels][:, None, None, None] + random.integers(0, 20, (len(labels), 8, 8, 3))).astype(
            np.uint8
        )

    np.savez(
        tmp_path / "names.npz",
        train_images=images(train),
        train_labels=classes[train],
        test_images=images(test),
        test_labels=classes[test],
    )
    found = frossl.probe(run, data=tmp_path / "names.npz", per_class=[])["probe"]
    assert found.pixels.percent == 100


# --- intervals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", [0, 20])
def test_draws_that_agree_have_the_interval_of_their_count(right):
    score = Score.over([Score.of(torch.arange(20) < right)] * 10)
    expected = binomtest(right, 20).proportion_ci(method="wilson")
    assert score.interval == (
        pytest.approx(100 * expected.low, abs=0.01),
        pytest.approx(100 * expected.high, abs=0.01),
    )


@pytest.mark.parametrize(("accuracy", "between"), [(0.98, 0.0), (0.98, 0.01), (0.02, 0.01), (0.6, 0.05)])
def test_the_interval_over_draws_covers_the_truth_in_nine_of_ten_simulations_and_more(accuracy, between):
    """50 test images, the same for ten draws; each draw is right on an image with the draw's own accuracy."""
    random, inside, times = np.random.default_rng(0), 0, 400
    for _ in range(times):
        difficulty = random.uniform(size=50)
        of_draw = np.clip(accuracy + between * random.normal(size=10), 0, 1)
        draws = [Score.of(torch.from_numpy(difficulty < share)) for share in of_draw]
        low, high = Score.over(draws).interval
        inside += low <= 100 * accuracy <= high
    assert inside / times > 0.9  # Wilson's own, of one count at 0.98, is 0.92


# --- splits ---------------------------------------------------------------------------------------------


def held_out_by_hand(labels: np.ndarray) -> np.ndarray:
    """The split of 0.1.0: of every class the fifth whose ids have the lowest hashes."""
    chosen = np.zeros(len(labels), bool)
    for value in np.unique(labels):
        ids = sorted(
            np.flatnonzero(labels == value), key=lambda i: hashlib.sha256(f"held out {i}".encode()).digest()
        )
        chosen[ids[: round(0.2 * len(ids))]] = True
    return chosen


def nearest_right(images: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> float:
    """Percent of the chosen whose nearest by cosine, among the others, has their label: in float64."""
    rows = images.reshape(len(images), -1) / 255 - 0.5
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    nearest = (rows[chosen] @ rows[~chosen].T).argmax(1)
    return 100 * np.mean(labels[~chosen][nearest] == labels[chosen])


def test_data_without_copies_has_the_split_of_0_1_0(run, tmp_path):
    images, labels = noise(300), np.random.default_rng(1).integers(0, 3, 300)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    found = frossl.knn(run, data=tmp_path / "data.npz", k=1)
    expected = nearest_right(images, labels, held_out_by_hand(labels))
    assert found.pixels.percent == pytest.approx(expected)


TWICE = 150
"""Different images; every one is there a second time, with the same label, drawn at random."""


def twice(folder: Path, kind: str) -> Path:
    images = np.concatenate([noise(TWICE, seed=5)] * 2)
    names = np.array(["a", "b", "c"])[np.tile(np.random.default_rng(2).integers(0, 3, TWICE), 2)].tolist()
    if kind == "array":
        np.savez(folder / "data.npz", images=images, labels=np.array(names))
        return folder / "data.npz"
    write_files(folder / "files", images, names)
    paths = sorted(folder.glob("files/*/*.png"))
    if kind == "folder":
        return folder / "files"
    if kind == "zip":
        with zipfile.ZipFile(folder / "data.zip", "w") as archive:
            for path in paths:
                archive.write(path, path.relative_to(folder / "files"))
        return folder / "data.zip"
    if kind == "list":
        lines = ["path,label", *(f"{path},{path.parent.name}" for path in paths)]
        (folder / "data.csv").write_text("\n".join(lines))
        return folder / "data.csv"
    if kind == "packed":
        frossl.pack(folder / "files", out=folder / "packed", quiet=True)
        return folder / "packed"
    datasets = pytest.importorskip("datasets")
    rows = {"image": [str(path) for path in paths], "label": [path.parent.name for path in paths]}
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b", "c"]))
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder / "hub")
    return folder / "hub"


@pytest.mark.parametrize("kind", ["array", "folder", "zip", "list", "packed", "hub"])
def test_copies_with_random_labels_are_told_by_chance_only(run, tmp_path, kind):
    """A third is chance; 60 test images err by 6 percent. The second time, digests come from the cache."""
    data = twice(tmp_path, kind)
    for _ in range(2):
        found = frossl.knn(run, data=data, k=1)
        assert found.pixels.percent < 33.4 + 4 * 6.1
        assert found.pixels.images == pytest.approx(60, abs=6)
        assert "150 exact copies" in found.note
    last = json.loads((run / "evaluation.jsonl").read_text().splitlines()[-1])
    assert last["split"] == "hash, copies together"


def test_a_file_that_becomes_a_copy_of_another_moves_to_its_side(run, tmp_path):
    """Of the same length and the same time as before: nothing that was kept may say otherwise."""
    data = twice(tmp_path, "folder")
    files = sorted(data.glob("*/*.png"))
    raw = [np.asarray(Image.open(file)) for file in files]
    for i, file in enumerate(files):  # bitmaps are of one length
        Image.fromarray(noise(1, seed=1000 + i)[0]).save(file.with_suffix(".bmp"))
        file.unlink()
    assert "copies" not in frossl.knn(run, data=data, k=1).note
    for file, image in zip(files, raw, strict=True):
        Image.fromarray(image).save(file.with_suffix(".bmp"))
    found = frossl.knn(run, data=data, k=1)
    assert "150 exact copies" in found.note
    assert found.pixels.percent < 33.4 + 4 * 6.1


def test_copies_with_other_labels_are_on_one_side_and_every_class_keeps_its_share(run, tmp_path):
    """Every image three times, with labels that have nothing to do with each other."""
    images = np.concatenate([noise(100, seed=6)] * 3)
    labels = np.random.default_rng(3).integers(0, 2, 300)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    found = frossl.knn(run, data=tmp_path / "data.npz", k=1)
    assert found.pixels.images == pytest.approx(60, abs=6)
    assert found.pixels.percent < 50 + 4 * 6.5


def test_copies_in_an_own_test_part_are_counted_and_stay(run, tmp_path):
    train, test = noise(40, seed=7), noise(20, seed=8)
    test[:3] = train[[5, 6, 6]]
    for part, images in (("train", train), ("test", test)):
        write_files(tmp_path / "data" / part, images, [f"c{i % 2}" for i in range(len(images))])
    found = frossl.knn(run, data=tmp_path / "data", k=1)
    assert found.pixels.images == 20
    assert "(3 of its images are exact copies of images to learn from" in found.note
    test[:3] = noise(3, seed=9)
    write_files(tmp_path / "data" / "test", test, [f"c{i % 2}" for i in range(20)])
    assert "cop" not in frossl.knn(run, data=tmp_path / "data", k=1).note
    assert "(3 of" in frossl.knn(run, data=twice(tmp_path, "folder"), test=some_of_them(tmp_path), k=1).note


def some_of_them(folder: Path) -> Path:
    images = np.concatenate([noise(TWICE, seed=5)[:3], noise(9, seed=10)])
    write_files(folder / "tested", images, ["a", "b", "c"] * 4)
    return folder / "tested"


# --- compare --------------------------------------------------------------------------------------------


def like(run: Path, out: Path, *, records=(), origin=None, settings=None) -> Path:
    """The run again, with other settings, origin and figures."""
    shutil.copytree(run, out)
    table = tomllib.loads((out / "config.toml").read_text())
    for name, value in (settings or {}).items():
        room, key = name.split(".")
        table[room][key] = value
    (out / "config.toml").write_text(tomli_w.dumps(table))
    known = json.loads((out / "provenance.json").read_text())
    (out / "provenance.json").write_text(json.dumps(known | (origin or {})))
    figures = [{"step": 2, "protocol": "kNN, k 20", "data": "toys", **record} for record in records]
    (out / "evaluation.jsonl").write_text("".join(json.dumps(record) + "\n" for record in figures))
    (out / "diagnostics.jsonl").write_text("")
    return out


FIGURE = {"percent": {"trained": 50.0}, "interval": {"trained": [40.0, 60.0]}}
OLD = "tested on 20% of the labelled images, held out by a hash (seen in training, unlabelled)"


@pytest.mark.parametrize(
    "settings",
    [
        {"data.size": 4},
        {"data.labels": "other.csv"},
        {"data.test": "other"},
        {"data.root": "other"},
        {"data.fraction_seed": 3},
        {"train.steps": 1},
        {"optim.weight_decay": 0.1},
    ],
    ids=str,
)
def test_runs_that_differ_by_more_than_their_seed_are_two_arms(run, tmp_path, settings):
    runs = [
        like(run, tmp_path / "a", records=[FIGURE]),
        like(run, tmp_path / "b", records=[FIGURE], settings={"train.seed": 1, **settings}),
    ]
    assert len(frossl.compare(runs).arms) == 2


def test_runs_that_differ_by_their_seed_and_what_is_told_of_them_are_one_arm(run, tmp_path):
    told = {"train.seed": 1, "train.log_every": 3, "train.keep_checkpoints": 5, "data.workers": 1}
    runs = [
        like(run, tmp_path / "a", records=[FIGURE]),
        like(run, tmp_path / "b", records=[FIGURE], settings=told),
    ]
    assert len(frossl.compare(runs).arms) == 1


def test_seeds_of_one_budget_are_one_arm_and_another_budget_is_another(run, tmp_path):
    def timed(name, steps, seed, **origin):
        settings = {"train.steps": steps, "train.epochs": 1 + steps // 2, "train.seed": seed}
        settings["train.settlements"] = [{"step": 50, "total": 2 * steps}]
        return like(run, tmp_path / name, records=[FIGURE], settings=settings, origin=origin)

    runs = [
        timed("a", 100, 0, budget="10m"),
        timed("b", 117, 1, budget="10m"),
        timed("c", 1100, 2, budget="100m"),
    ]
    assert sorted(len(arm.runs) for arm in frossl.compare(runs).arms) == [1, 2]
    for path in runs:  # as 0.1.0 wrote it
        origin = json.loads((path / "provenance.json").read_text())
        origin["command"] = f"frossl pretrain data.npz --budget {origin.pop('budget')} --quiet"
        (path / "provenance.json").write_text(json.dumps(origin))
    assert sorted(len(arm.runs) for arm in frossl.compare(runs).arms) == [1, 2]


def test_a_run_keeps_the_budget_that_it_was_given(run):
    assert json.loads((run / "provenance.json").read_text())["budget"] is None


@pytest.mark.slow
def test_two_seeds_of_a_real_budget_are_one_arm(run, tmp_path):
    runs = [
        frossl.pretrain(
            run.parent / "data.npz",
            out=tmp_path / f"seed-{seed}",
            budget="12s",
            seed=seed,
            batch_size=16,
            settings=SMALL,
            quiet=True,
        ).path
        for seed in (0, 1)
    ]
    assert len({(path / "config.toml").read_text() for path in runs}) == 2
    assert [len(arm.runs) for arm in frossl.compare(runs).arms] == [2]


def test_figures_of_the_old_split_are_not_ranked_with_those_of_the_new(run, tmp_path):
    old = like(run, tmp_path / "old", records=[{**FIGURE, "note": OLD}])
    new = like(run, tmp_path / "new", records=[{**FIGURE, "note": OLD, "split": "hash, copies together"}])
    same = like(run, tmp_path / "same", records=[{**FIGURE, "note": OLD, "split": "hash"}])
    with pytest.raises(InputError, match="other splits of the images"):
        frossl.compare([old, new])
    assert frossl.compare([old, same]).protocol == "kNN, k 20 on toys"
    both = like(
        run,
        tmp_path / "both",
        records=[
            {**FIGURE, "note": OLD, "split": "hash"},
            {**FIGURE, "percent": {"trained": 90.0}, "note": OLD, "split": "hash, copies together"},
        ],
    )
    found = frossl.compare([old, both])
    assert [arm.percent for arm in found.arms] == [50]


def test_online_figures_of_different_splits_are_not_ranked(run, tmp_path):
    def online(name, **more):
        path, look = like(run, tmp_path / name), {"step": 2, "seconds": 1.0, "knn": 100.0, "tested": 50}
        (path / "diagnostics.jsonl").write_text(json.dumps(look | more) + "\n")
        return path

    with pytest.raises(InputError, match="no accuracy in common"):
        frossl.compare([online("old"), online("new", copies=12)])
    (arm,) = frossl.compare([online("a"), online("b")]).arms
    low, high = binomtest(50, 50).proportion_ci(method="wilson")
    assert arm.runs[0].error == pytest.approx(100 * (high - low) / 2 / 1.96, rel=1e-3)


# --- what an encoder is given ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.from_numpy(noise(4)).permute(0, 3, 1, 2).contiguous()


def wrong(images: torch.Tensor) -> dict[str, object]:
    shares = images.float() / 255
    nan = shares.clone()
    nan[1, 2, 3, 4] = torch.nan
    return {
        "int64": images.long(),
        "int8": (images // 2).to(torch.int8),
        "bool": images > 100,
        "floats to 255": images.float(),
        "standardized": (shares - 0.5) / 0.25,
        "NaN": nan,
        "one image": shares[0],
        "gray": shares[:, :1],
        "channels last": shares.permute(0, 2, 3, 1),
        "no pixels": shares[..., :0],
        "numpy": images.numpy(),
    }


@pytest.mark.parametrize("kind", wrong(torch.zeros(4, 3, 8, 8, dtype=torch.uint8)))
def test_an_encoder_refuses_what_is_no_batch_of_images(encoder, images, kind):
    for door in (encoder, encoder.feature_map, encoder.patch_tokens):
        with pytest.raises(InputError, match="; give ") as error:
            door(wrong(images)[kind])
        assert "\n" not in str(error.value)


def test_bytes_and_shares_have_the_same_features(encoder, images):
    with torch.no_grad():
        expected = encoder(images)
        torch.testing.assert_close(encoder(images.float() / 255), expected)
        torch.testing.assert_close(
            encoder(images.double().div(255).float() + 1e-6), expected, atol=1e-3, rtol=1e-3
        )
        compiled = torch.compile(encoder, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(images.float() / 255), expected)


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_views_are_made_of_bytes_only(images, kernel):
    if kernel == "numba":
        pytest.importorskip("numba")
    augment = frossl.Augment(
        frossl.view_set("gentle", size=8), mean=(0.5,) * 3, std=(0.25,) * 3, kernel=kernel
    )
    clock = frossl.Clock(step=0, total=1, epoch=0, seed=0)
    for given in (images.float() / 255, images.long(), images[0], images[:, :1]):
        with pytest.raises(InputError, match=re.escape("give uint8 (N, 3, H, W)")):
            augment(frossl.Batch(given, torch.arange(len(given))), clock)


# --- where it is measured -------------------------------------------------------------------------------


def test_a_run_of_a_device_that_is_not_here_is_measured_by_all_on_one_that_is(run, tmp_path):
    if torch.backends.mps.is_available():
        pytest.skip("a device is wanted that this machine lacks")
    other = shutil.copytree(run, tmp_path / "other")
    text = (other / "config.toml").read_text()
    (other / "config.toml").write_text(re.sub(r'device = "\w+"', 'device = "mps"', text))
    assert 'device = "mps"' in (other / "config.toml").read_text()
    newest = frossl.checkpoints(other).saved[-1]
    assert newest.knn.percent == frossl.knn(other).trained.percent == frossl.knn(run).trained.percent
