"""Configurations as TOML."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest

from frossl.augment.operations import OPERATIONS
from frossl.config import (
    Config,
    Count,
    Data,
    Diagnostics,
    Network,
    Objective,
    Optim,
    Share,
    Train,
    ViewSpec,
    parse_settings,
)
from frossl.errors import ConfigError, InputError
from tests.support import ROOT

FULL = Config(
    data=Data("photos ü", size=96),
    network=Network("convnext_atto", width=0.5, stem="small", projector_out=64),
    objective=Objective("frossl", {"normalize": "rows", "invariance_weight": 0.7, "log": False}),
    optim=Optim("lars", base_lr=0.3, weight_decay=1e-6),
    train=Train(epochs=3, batch_size=64, seed=7, precision="bf16-mixed", channels_last=False),
    views=(ViewSpec(size=96, count=2), ViewSpec(size=48, count=6, scale=(0.05, 0.25), solarize=0.2)),
)


@pytest.mark.parametrize("config", [Config(), FULL])
def test_toml_round_trip_gives_the_same_configuration(config):
    assert Config.from_toml(config.to_toml()) == config


def test_whole_numbers_are_read_as_floats_where_a_float_is_meant():
    config = Config.from_toml("[optim]\nbase_lr = 1\n[[views]]\nscale = [1, 1]\n")
    assert (config.optim.base_lr, config.views[0].scale) == (1.0, (1.0, 1.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nepoch = 3", "train.epoch.*did you mean train.epochs"),
        ("[trian]\nepochs = 3", "trian.*did you mean train"),
        ("[train]\nepochs = '3'", "train.epochs = '3'.*expected int"),
        ("[train]\nepochs = true", "train.epochs = True.*expected int"),
        ("[network]\nstem = 'fats'", "network.stem.*did you mean fast"),
        ("[[views]]\nscale = [0.1]", r"views.scale = \[0.1\]"),
        ("train = 3", "train = 3.*expected Train"),
        ("epochs = = 3", "not TOML.*line 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_a_hint(text, words):
    with pytest.raises(InputError, match=words):
        Config.from_toml(text)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Train, "epochs", 0),
        (Train, "batch_size", 1),
        (Train, "checkpoint_every", 0),
        (Data, "size", 3),
        (Train, "seed", -1),
        (Network, "stages", 0),
        (Network, "projector_out", 0),
        (Network, "width", float("inf")),
        (Optim, "lr_batch", 0),
        (Optim, "base_lr", 0.0),
        (Optim, "weight_decay", -1.0),
        (Optim, "warmup", 1.0),
        (Network, "width", 0.0),
        (Network, "projector_layers", 0),
        (ViewSpec, "size", 0),
        (ViewSpec, "count", 0),
        (ViewSpec, "scale", (0.0, 1.0)),
        (ViewSpec, "scale", (0.5, 0.2)),
        (ViewSpec, "ratio", (0.0, 1.0)),
        (ViewSpec, "sigma", (0.0, 1.0)),
        (ViewSpec, "flip", 1.5),
        (ViewSpec, "brightness", -0.1),
        (ViewSpec, "hue", 0.6),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(kind, field, value):
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(kind(), **{field: value})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", OPERATIONS)
def test_probabilities_of_views_are_checked_by_their_annotation(name, value):
    with pytest.raises(ConfigError, match=rf"views\.{name} = .*give 0 to 1"):
        ViewSpec(**{name: value})


@pytest.mark.parametrize("part", [ViewSpec, Data, Network, Optim, Train, Diagnostics])
def test_a_new_setting_is_checked_by_its_annotation(part):
    @dataclasses.dataclass(frozen=True)
    class More(part):
        share: Share = 0.0
        number: Count | None = None

    assert More(share=1.0, number=1).number == 1
    for name, value in (("share", 1.5), ("number", 0)):
        with pytest.raises(ConfigError, match=rf"\.{name} = {value}"):
            More(**{name: value})


def test_stored_views_name_every_operation():
    """Their meaning does not change with the defaults, neither that of files of 0.1.0 nor of today's."""
    stored = tomllib.loads((ROOT / "tests/fixtures/v0.1.0/run/config.toml").read_text())["views"]
    assert all({"flip", "jitter", "gray", "blur", "solarize"} <= set(view) for view in stored)
    written = tomllib.loads(FULL.to_toml())["views"]
    assert all(set(view) == {field.name for field in dataclasses.fields(ViewSpec)} for view in written)


def test_the_rate_is_linear_in_the_batch():
    assert Optim(base_lr=0.3).lr(1024) == pytest.approx(1.2)


RECIPE = """
view_set = "weak"
[objective]
method = "frossl"
[objective.options]
normalize = "rows"
[optim]
base_lr = 0.1
weight_decay = 0.5
[methods.byol]
view_set = "asymmetric"
[methods.byol.objective.options]
ema = 0.9
[methods.byol.optim]
base_lr = 1
"""


def test_a_recipe_says_what_each_method_changes():
    own, byol, other = (Config.from_toml(RECIPE, method=method) for method in (None, "byol", "vicreg"))
    assert own.objective == Objective("frossl", {"normalize": "rows"})
    assert byol.objective == Objective("byol", {"ema": 0.9})
    assert other.objective == Objective("vicreg")  # another method's options are not its own
    assert [c.optim.base_lr for c in (own, byol, other)] == [0.1, 1.0, 0.1]
    assert {c.optim.weight_decay for c in (own, byol, other)} == {0.5}
    assert [c.view_set for c in (own, byol, other)] == ["weak", "asymmetric", "weak"]


def test_a_misspelt_method_is_named():
    with pytest.raises(InputError, match="did you mean byol"):
        Config.from_toml("[methods.byoll.optim]\nbase_lr = 1", known=["byol", "frossl"])


def test_views_and_a_view_set_are_two_ways_to_say_it():
    base = "[[views]]\nsize = 8\ncount = 2\n[methods.empssl]\nview_set = 'patches'\n"
    assert Config.from_toml(base).views[0].size == 8
    assert Config.from_toml(base, method="empssl").views == ()
    back = "view_set = 'weak'\n[[methods.byol.views]]\nsize = 8\n"
    assert Config.from_toml(back, method="byol").view_set is None
    with pytest.raises(ConfigError, match="views are given too"):
        Config.from_toml("view_set = 'weak'\n[[views]]\nsize = 8\n")


@pytest.mark.parametrize("text", ["objective = 'byol'", "methods = 3", "[methods]\nfrossl = 3"])
def test_what_should_be_a_table_is_refused_in_words(text):
    with pytest.raises(ConfigError, match="expected a table"):
        Config.from_toml(text)


def test_what_a_method_changes_is_checked_like_the_rest():
    with pytest.raises(InputError, match="did you mean optim"):
        Config.from_toml("[methods.byol.optim]\nbase_rate = 1", method="byol")


def test_settings_by_their_dotted_names_change_those_and_nothing_else():
    settings = parse_settings(
        ["optim.clip=3", "train.seed = 5", "objective.options.normalize=rows", "data.source=my photos"]
    )
    changed = FULL.with_settings(settings)
    assert (changed.optim.clip, changed.train.seed) == (3.0, 5)
    assert changed.objective.options == {**FULL.objective.options, "normalize": "rows"}
    assert changed.data.source == "my photos"
    restored = dataclasses.replace(
        changed,
        data=FULL.data,
        objective=FULL.objective,
        optim=dataclasses.replace(changed.optim, clip=None),
        train=dataclasses.replace(changed.train, seed=7),
    )
    assert restored == FULL


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("optim.wieght_decay=1", "did you mean optim.weight_decay"),
        ("optm.clip=1", "did you mean optim"),
        ("train.seed=x", "train.seed = 'x'.*expected int"),
        ("views.size=3", "views is no table"),
        ("train.seed.more=3", "train.seed is no table"),
        ("train.seed", "'train.seed' is no setting"),
        ("=3", "'=3' is no setting"),
    ],
)
def test_settings_that_do_not_exist_are_named(setting, words):
    with pytest.raises(InputError, match=words):
        FULL.with_settings(parse_settings([setting]))


def test_another_view_set_takes_the_place_of_views():
    changed = FULL.with_settings({"view_set": "multicrop"})
    assert (changed.view_set, changed.views) == ("multicrop", ())


@pytest.mark.parametrize(
    ("view", "warned"),
    [
        ("size = 32", True),
        ("size = 32\nblur = 0.0", True),
        ("size = 32\nflip = 0.5", False),
        ("size = 32\nflip = 0.0\njitter = 0.0\ngray = 0.0\nblur = 0.0", False),
    ],
)
def test_views_that_only_crop_are_mentioned_unless_the_file_says_so(view, warned, caplog):
    """Files for version 0.1.0 may rely on operations that were on by default."""
    config = Config.from_toml(f"[[views]]\n{view}\ncount = 2\n")
    assert ("only cropped" in caplog.text) == warned
    caplog.clear()
    Config.from_toml(config.to_toml())
    assert not caplog.text
