"""A finished run, measured as its users do: few labels, fine-tuning, other data, other encoders."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import frossl
from frossl.config import Network, Objective, Train
from frossl.data import ArraySource
from frossl.errors import InputError
from frossl.evaluation import KNN, FeatureCache, FineTune, Labelled, LinearProbe, SGDProbe, extract
from frossl.exporting import read_encoder, write_encoder
from frossl.networks import Encoder, build_backbone
from tests.support.cli import call
from tests.support.runs import THREE_EPOCHS, train


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Three classes of colored noise, 60 + 24 images, as arrays; others of the same kind beside them."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, count in (("train", 60), ("test", 24), ("more", 24)):
        labels = np.arange(count) % 3
        images = random.integers(0, 120, (count, 16, 16, 3))
        images[np.arange(count), :, :, labels] += 100
        np.savez(folder / f"{name}.npz", images=images.astype(np.uint8), labels=labels)
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> frossl.Run:
    return train(tmp_path_factory.mktemp("runs") / "a", config=THREE_EPOCHS, data=str(data / "train.npz"))


def test_probes_with_few_labels_and_with_all(run):
    found = run.probe()
    assert list(found) == ["probe1", "probe5", "probe10", "probe"]  # no class has 50
    assert found["probe1"].trained.draws == 10
    for comparison in found.values():
        low, high = comparison.trained.interval
        assert low <= comparison.trained.percent <= high
    lines = (run.path / "evaluation.jsonl").read_text().splitlines()
    assert [json.loads(line)["protocol"] for line in lines[-4:]] == [c.protocol for c in found.values()]
    assert json.loads(lines[-1])["interval"]["trained"] == [
        round(x, 2) for x in found["probe"].trained.interval
    ]
    with pytest.raises(InputError, match="99 labels a class cannot be drawn"):
        run.probe(per_class=[99])


def test_nothing_that_is_measured_changes_the_encoder(run):
    before = (run.path / "encoder.safetensors").read_bytes()
    frossl.linear(run.path, epochs=2, quiet=True)
    tuned = frossl.finetune(run.path, fraction=0.5, epochs=2, layer_decay=0.7, mixup=0.2, quiet=True)
    assert set(tuned.scores) == {"untrained", "trained"}
    assert tuned.protocol == "fine-tuned, 0.5 of the labels, 2 epochs, rate 0.001, layer decay 0.7, mixup 0.2"
    assert (run.path / "encoder.safetensors").read_bytes() == before
    assert (
        frossl.linear(run.path, epochs=2, quiet=True).scores
        == frossl.linear(run.path, epochs=2, quiet=True).scores
    )


def test_any_mix_of_protocols_gives_the_figures_of_each_alone(run):
    protocols = [FineTune(fraction=0.5, epochs=1), "knn3", LinearProbe(2), KNN(crops=2), SGDProbe(epochs=1)]
    found = run.measure(protocols, quiet=True)
    assert list(found) == ["finetune", "knn3", "probe2", "knn", "linear"]
    alone = {
        "finetune": run.finetune(fraction=0.5, epochs=1, quiet=True),
        "knn3": run.knn(k=3),
        "probe2": run.probe(per_class=[2])["probe2"],
        "knn": run.knn(crops=2),
        "linear": run.linear(epochs=1, quiet=True),
    }
    assert dict(found) == alone
    for one in found.values():
        assert found.of(one.spec) is one
    lines = (run.path / "evaluation.jsonl").read_text().splitlines()[-11:-6]
    order = ["knn3", "probe2", "knn", "finetune", "linear"]  # those that train last
    assert [json.loads(line)["protocol"] for line in lines] == [found[key].protocol for key in order]


def test_every_function_of_a_run_is_a_method(run, tmp_path):
    functions = [
        value
        for name in frossl.__all__
        if inspect.isfunction(value := getattr(frossl, name))
        and next(iter(inspect.signature(value).parameters), "") == "run"
    ]
    assert {"knn", "probe", "linear", "finetune", "measure", "resume", "embed"} <= {
        f.__name__ for f in functions
    }
    for function in [*functions, frossl.report, frossl.spectrum]:
        method = getattr(frossl.Run, function.__name__)
        expected = list(inspect.signature(function).parameters.values())[1:]
        assert list(inspect.signature(method).parameters.values())[1:] == expected, function.__name__
        assert f"frossl.{function.__name__}" in method.__doc__
    assert run.checkpoints() == frossl.checkpoints(run.path)
    assert run.spectrum(out=None) == frossl.spectrum([run.path], out=None)[0]
    assert run.report(out=tmp_path / "page.html") == tmp_path / "page.html"


def test_former_names_of_arguments_warn_where_they_are_given(run):
    with pytest.warns(DeprecationWarning, match="labels= is now per_class=") as warned:
        found = run.probe(labels=[2])
    assert found == run.probe(per_class=[2])
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="labels= is now fraction=") as warned:
        tuned = frossl.finetune(run.path, labels=0.5, epochs=1, quiet=True)
    assert tuned == run.finetune(fraction=0.5, epochs=1, quiet=True)
    assert warned[0].filename == __file__
    for both in (
        lambda: run.probe(per_class=[1], labels=[1]),
        lambda: run.finetune(fraction=0.5, labels=0.5, quiet=True),
    ):
        with (
            pytest.warns(DeprecationWarning, match="labels= is now"),
            pytest.raises(InputError, match="both given"),
        ):
            both()


def test_other_data_and_other_images_to_test_on(run, data):
    transfer = run.knn(data=data / "more.npz")
    assert transfer.trained.images == 6
    assert "20%" in transfer.note
    tested = run.knn(test=data / "test.npz", k=3)
    assert tested.trained.images == 24
    with pytest.raises(InputError, match="give its name, too"):
        run.knn(root=data)
    gray = np.random.default_rng(0).integers(0, 255, (20, 16, 16, 1)).astype(np.uint8)
    np.savez(data / "gray.npz", images=gray, labels=np.arange(20) % 2)
    with pytest.raises(InputError, match="images of 1 channels"):
        run.knn(data=data / "gray.npz")


def test_against_a_run_and_against_local_weights_of_timm(run, data, tmp_path):
    """The same weights by another way must give the same figures."""
    network = Network("resnet18", width=1.0, stem="native", channels=3)
    torch.manual_seed(1)
    backbone = build_backbone(network, size=64)
    file = tmp_path / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in backbone.state_dict().items()}, file)
    found = run.knn(against=[str(run.path), f"resnet18={file}"])
    others = [str(run.path), f"resnet18={file}"]
    assert list(found.scores) == ["pixels", "colors", "untrained", "trained", *others]
    assert found.scores[str(run.path)] == found.trained
    with pytest.raises(InputError, match="there is no file"):
        run.knn(against=["resnet18=missing.safetensors"])
    with pytest.raises(InputError, match="did you mean resnet18"):
        run.knn(against=["resnet81=missing.safetensors"])


def test_a_public_encoder_sees_images_as_timm_says(tmp_path):
    import timm
    from timm.data import resolve_model_data_config

    from frossl.networks import public_encoder

    model = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    encoder = public_encoder("vit_tiny_patch16_224", weights=str(tmp_path / "vit.safetensors"))
    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    known = resolve_model_data_config(model)
    mean, std = (torch.tensor(known[key]).view(3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        expected = model((images / 255 - mean) / std)
        torch.testing.assert_close(encoder(images), expected, atol=1e-4, rtol=1e-4)
    assert encoder.mean.flatten().tolist() == pytest.approx([0.5, 0.5, 0.5])  # not ImageNet's: its own


@pytest.mark.slow  # waits for a network that is not there
def test_a_public_encoder_that_cannot_be_fetched_says_what_to_give(monkeypatch):
    from frossl.networks import public_encoder

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="give a local file: resnet18=FILE"):
        public_encoder("resnet18")


def test_fewer_labelled_images_than_neighbours(run):
    with pytest.raises(InputError, match="k = 61 with 48"):
        run.knn(k=61)
    assert list(frossl.measure(run.path)) == ["knn"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["knn", "--against", "resnet81"], "did you mean resnet18"),
        (["knn", "--crops", "4", "--against", "{run}"], "without --crops"),
        (["knn", "--step", "7"], "no checkpoint of step 7"),
        (["probe", "--paper", "--lr", "-1"], "lr = -1"),
        (["probe", "--paper", "--epochs", "0"], "epochs = 0"),
        (["finetune", "--seed", "-1"], "seed = -1"),
        (["finetune", "--fraction", "0"], "share of the labels"),
        (["finetune", "--layer-decay", "2"], "optim.layer_decay"),
        (["finetune", "--fraction", "1", "--labels", "1"], "--labels is the former name of --fraction"),
        (["probe", "--per-class", "1", "--labels", "1"], "--labels is the former name of --per-class"),
        (["probe", "--per-class", "0"], "per_class = 0"),
        (["knn", "--k", "-1"], "k = -1"),
        (["knn", "--data", "nowhere/at/all"], "there is no folder"),
        (["spectrum", "--out", "nowhere/s.png"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(options, words, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    verb, *rest = (option.replace("{run}", str(run.path)) for option in options)
    code, _, err = call(monkeypatch, capsys, verb, run.path, *rest)
    assert (code, err.count("\n")) == (2, 1), err
    assert words in err


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """Sizes of the batches of every forward pass."""
    sizes, forward = list[int](), Encoder.forward

    def watched(self, images):
        sizes.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Encoder, "forward", watched)
    return sizes


def test_another_call_and_another_protocol_need_no_forward_pass(run, data, tmp_path, passes):
    copy = shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(copy / "features")
    computed = frossl.knn(copy, against=[str(run.path)]), frossl.knn(copy, crops=2)
    assert passes == [64] * 6  # of three networks; crops do not go through the encoder as whole images do
    passes.clear()
    stored = frossl.knn(copy, against=[str(run.path)]), frossl.knn(copy, crops=2)
    found = frossl.probe(copy, per_class=2)
    assert passes == []
    assert stored == computed
    shutil.rmtree(copy / "features")
    assert frossl.probe(copy, per_class=2) == found
    records = [json.loads(line) for line in (copy / "evaluation.jsonl").read_text().splitlines()]
    assert records[-4]["percent"] == records[-2]["percent"]
    passes.clear()
    frossl.knn(copy, data=data / "more.npz")
    assert passes == [64] * 4


def test_the_end_of_a_run_stores_what_it_computes(data, tmp_path, passes):
    run = train(tmp_path / "run", config=THREE_EPOCHS, data=str(data / "train.npz"))
    passes.clear()
    first = run.knn()
    assert passes == []
    shutil.rmtree(run.path / "features")
    assert run.knn() == first


def test_features_of_other_weights_are_never_used(run, data, tmp_path):
    copy = shutil.copytree(run.path, tmp_path / "run")
    before = frossl.knn(copy, k=3)
    encoder, design = read_encoder(copy)
    with torch.no_grad():
        encoder.backbone.bn1.weight[0] += 1
    write_encoder(copy / "encoder.safetensors", encoder, design)
    after = frossl.knn(copy, k=3)
    shutil.rmtree(copy / "features")
    assert frossl.knn(copy, k=3) == after
    assert after.trained.right is not None
    assert after.untrained == before.untrained
    again = train(copy, config=THREE_EPOCHS, data=str(data / "more.npz"), overwrite=True, seed=1)
    kept = {path.name for path in (copy / "features").iterdir()}
    shutil.rmtree(copy / "features")
    again.knn()
    assert {path.name for path in (copy / "features").iterdir()} == kept


def test_features_that_cannot_be_stored_are_computed(run, tmp_path):
    copy = shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(copy / "features")
    expected = run.knn()
    (copy / "features").write_text("mine")
    assert frossl.knn(copy) == expected
    assert (copy / "features").read_text() == "mine"


def test_an_unknown_protocol_is_named(run):
    with pytest.raises(InputError, match="did you mean probe"):
        frossl.measure(run.path, ["prob"])


def test_a_checkpoint_is_measured_where_there_is_no_encoder_yet(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    (copy / "encoder.safetensors").unlink()
    assert frossl.knn(copy, step=3).trained == run.knn().trained
    assert [saved.step for saved in frossl.checkpoints(copy).saved] == [3]
    broken = next((copy / "checkpoints").iterdir())
    broken.write_bytes(broken.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be read"):
        frossl.knn(copy, step=3)


def test_fine_tuning_a_teacher_learns_statistics_too(data, tmp_path):
    """DINO's teacher is made not to learn; what is fine-tuned must be a network of its own."""
    config = replace(THREE_EPOCHS, objective=Objective("dino", {"outputs": 64}))
    run = train(tmp_path / "run", config=config, data=str(data / "train.npz"))
    tuned = frossl.finetune(run.path, epochs=20, lr=0.01, quiet=True)
    assert tuned.untrained.percent > 60


def test_the_command_line_ends_in_one_json_object(run, data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def ask(*arguments) -> dict:
        code, out, err = call(monkeypatch, capsys, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    found = ask("knn", run.path, "--k", "5", "--k", "20", "--against", run.path)
    assert found["knn5"]["protocol"] == "kNN, k 5"
    assert found["knn20"]["percent"]["trained"] == found["knn20"]["percent"][str(run.path)]
    for option in ("--per-class", "--labels"):
        assert set(ask("probe", run.path, option, "2")) == {"run", "probe2", "probe"}
    assert "paper" in ask("probe", run.path, "--paper", "--epochs", "1", "--quiet")["linear"]["protocol"]
    tuned = ask(
        "finetune", run.path, "--fraction", "0.5", "--epochs", "1", "--data", data / "more.npz", "--quiet"
    )
    assert tuned["finetune"]["images"] == 6
    assert ask("checkpoints", run.path)["checkpoints"][-1]["step"] == 3
    spectrum = ask("spectrum", run.path, "--out", "s.png")
    assert spectrum["runs"][0]["steps"] == 3
    assert (tmp_path / "s.png").is_file()
    assert (tmp_path / "s.svg").is_file()
    other = train(
        tmp_path / "b",
        config=replace(THREE_EPOCHS, network=replace(THREE_EPOCHS.network, projector_out=32)),
        data=str(data / "train.npz"),
    )
    other.knn()
    run.knn()
    compared = ask("compare", run.path, other.path, "--out", "c.png")
    assert len(compared["pairs"]) == 1
    assert (tmp_path / "c.svg").is_file()


def test_tables_for_people(run, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = call(monkeypatch, capsys, "probe", run.path, "--per-class", "2")
    assert "95% interval" in out
    assert "trained network" in out
    assert "±" in out
    _, out, _ = call(monkeypatch, capsys, "checkpoints", run.path)
    assert "no checkpoint is measurably better than the newest" in out  # there is but one


def test_a_run_without_labels_has_only_numbers_without(photos, tmp_path, monkeypatch, capsys):
    config = replace(THREE_EPOCHS, train=Train(epochs=2, batch_size=4, checkpoint_every=3))
    run = train(tmp_path / "run", config=config, data=str(photos))
    assert not {"knn", "probe"} & {name for record in run.diagnostics for name in record}
    found = frossl.checkpoints(run.path)
    assert not found.labelled
    assert found.best_by_labels is None
    assert found.best_without in found.saved
    code, out, _ = call(monkeypatch, capsys, "checkpoints", run.path)
    assert (code, "a hint and not a measurement" in out) == (0, True)
    for verb in ("knn", "probe", "finetune"):
        code, _, err = call(monkeypatch, capsys, verb, run.path)
        assert (code, "no labels" in err) == (2, True)


def test_an_encoder_that_is_broken_is_named(run, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    encoder, design = read_encoder(copy)
    encoder.backbone.state_dict()["conv1.weight"].fill_(float("nan"))
    write_encoder(copy / "encoder.safetensors", encoder, design)
    code, _, err = call(monkeypatch, capsys, "knn", copy)
    assert code == 1
    assert "are not finite" in err


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0", "vit_tiny_patch16_224"])
def test_features_do_not_depend_on_the_images_that_are_computed_with_them(name, tmp_path):
    """To the bit: an evaluation with some stored features equals one that computes all."""
    import timm

    options = {"img_size": 32} if name.startswith("vit") else {}
    backbone = timm.create_model(name, num_classes=0, **options)
    encoder = Encoder(backbone, size=32, mean=(0.5,) * 3, std=(0.25,) * 3).ready_on("cpu")
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (100, 3, 32, 32), dtype=np.uint8))
    images = Labelled(ArraySource(values), torch.arange(100), torch.arange(100))
    found = []
    for number, parts in enumerate([[slice(None)], [slice(0, 100, 7), slice(40, 60), slice(None)]]):
        stored = FeatureCache(tmp_path / str(number)).open(encoder.num_features)
        for part in parts:
            features, _ = extract(encoder, images.subset(images.ids[part]), stored=stored)
        found.append(features)
    assert torch.equal(*found)
