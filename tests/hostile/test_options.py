"""Options of methods and objectives: typed and bounded by their signatures, refused before any work."""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import frossl
from frossl.errors import ConfigError, InputError
from frossl.methods import METHODS
from frossl.objectives import OBJECTIVES
from tests.support.cli import call
from tests.support.losses import default_loss

DEFAULTS: dict[str, Any] = {"global_views": 2, "shape_eps": 1e-6}
"""Of options that are None by default."""

SHARES = ("ema", "ema_end", "freeze", "queue_from", "temperature_warmup", "momentum")


def keywords(function: Any) -> dict[str, Any]:
    """The options of a signature with their defaults."""
    return {
        name: DEFAULTS.get(name) if parameter.default is None else parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def wrong(method: str, option: str, default: Any) -> Iterator[Any]:
    """Values of another type, and values that make no sense."""
    if isinstance(default, bool):
        yield from ("False", "true", "yes", 0, 1, 0.0, [])
    elif isinstance(default, str):
        yield from ("nonsense", "", 3, True)
    elif isinstance(default, int):
        yield from ("3", 2.5, True, math.nan, math.inf, [3], -1, 10**30)
        if (method, option) != ("swav", "queue_size"):
            yield 0
    else:
        yield from ("0.5", "", True, math.nan, math.inf, -math.inf, [0.5], 10**400)
        if not option.endswith("_weight"):  # these may have any sign
            yield -0.1
        if option in SHARES or (method, option) == ("wmse", "eps"):
            yield 5
        elif option.endswith("temperature"):
            yield 0


@pytest.mark.parametrize("method", METHODS)
def test_every_option_of_every_method_is_typed_and_bounded(method, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    options = {**keywords(METHODS[method].objective), **keywords(METHODS[method].networks)}
    for option, default in options.items():
        for value in wrong(method, option, default):
            with pytest.raises(InputError) as refused:
                frossl.pretrain(
                    "cifar10-mini",
                    method=method,
                    settings={f"objective.options.{option}": value},
                    out=tmp_path / "run",
                    quiet=True,
                )
            assert f"objective.options.{option}" in str(refused.value), (option, value)
            assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_modules_and_functions_refuse_the_same_values(name):
    z, loss = torch.randn(3, 6, 4), OBJECTIVES[name]
    queue = {"queue": torch.randn(5, 4)} if name == "moco" else {}
    of_function = keywords(loss.function)
    for option, default in keywords(loss).items():
        for value in wrong(name, option, default):
            with pytest.raises(InputError, match=option):
                loss(**{option: value})
            if option in of_function:
                with pytest.raises(InputError, match=option):
                    loss.function(z, **queue, **{option: value})


@pytest.mark.parametrize("name", OBJECTIVES)
def test_zero_is_refused_or_gives_a_finite_loss(name):
    for option, default in keywords(OBJECTIVES[name].function).items():
        if isinstance(default, float):
            try:
                total = default_loss(name, torch.randn(3, 12, 5), **{option: 0.0}).total
            except InputError:
                continue
            assert total.isfinite(), option


@pytest.mark.parametrize("name", OBJECTIVES)
def test_defaults_presets_and_numbers_of_numpy_are_taken(name):
    loss = OBJECTIVES[name]
    for preset in loss.presets:
        for views in (2, 4):
            loss.preset(preset, views=views)
    for option, default in keywords(loss).items():
        loss(**{option: default})
        if type(default) in (int, float):
            number = np.float32(default) if isinstance(default, float) else np.int64(default)
            taken = loss(**{option: number})
            assert type(getattr(taken, option, taken.options.get(option))) is type(default)


def test_options_that_are_whole_numbers_may_be_written_so_where_any_number_goes():
    for alpha in (2, 2.0, np.float64(2)):
        z = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
        assert torch.equal(frossl.frossl_loss(z, alpha=alpha).total, frossl.frossl_loss(z).total)


def test_a_tensor_may_be_learned_in_place_of_a_number():
    temperature = torch.tensor(0.5, requires_grad=True)
    frossl.simclr_loss(torch.randn(2, 6, 4), temperature=temperature).total.backward()
    assert temperature.grad.abs() > 0


COMMANDS = [
    ("frossl", "log=False", "objective.options.log = 'False' cannot work; expected bool; write false"),
    ("frossl", "log=True", "write true"),
    ("frossl", "log='false'", "write false"),
    ("frossl", "log=1", "objective.options.log = 1 cannot work; expected bool"),
    ("frossl", 'alpha="2"', "objective.options.alpha = '2' cannot work; expected float"),
    ("frossl", "alpha=two", "objective.options.alpha = 'two'"),
    ("frossl", "alpha=0", "objective.options.alpha = 0 cannot work; give a number above 0"),
    ("frossl", "alpha=nan", "objective.options.alpha = nan"),
    ("frossl", "normalize=row", "did you mean rows"),
    ("matrixssl", "order=0", "objective.options.order = 0 cannot work; give at least 1"),
    ("wmse", "sub_batch=0", "objective.options.sub_batch = 0 cannot work; give at least 2"),
    ("byol", "ema=5", "objective.options.ema = 5 cannot work; give 0 to 1"),
    ("simclr", "temperature=0", "objective.options.temperature = 0 cannot work; give a number above 0"),
    ("dino", "target_temperature=-1", "objective.options.target_temperature = -1"),
    ("vicreg", "eps=inf", "objective.options.eps = inf"),
    ("moco", "queue_size=0", "objective.options.queue_size = 0"),
]


def refused(monkeypatch, capsys, *arguments: str | Path) -> str:
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err


@pytest.mark.parametrize(("method", "option", "words"), COMMANDS)
def test_the_command_line_and_files_refuse_wrong_options_in_one_line(
    method, option, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    out = ["--out", tmp_path / "run", "--quiet"]
    setting = f"objective.options.{option}"
    err = refused(monkeypatch, capsys, "pretrain", "cifar10-mini", "--method", method, "--set", setting, *out)
    assert words in err
    try:
        tomllib.loads(option)
    except tomllib.TOMLDecodeError:  # text, which a file has in quotes
        option = option.replace("=", "='") + "'"
    file = tmp_path / "config.toml"
    file.write_text(f"[objective]\nmethod = '{method}'\n[objective.options]\n{option}\n", encoding="utf-8")
    err = refused(monkeypatch, capsys, "pretrain", "cifar10-mini", "--config", file, *out)
    assert words in err
    assert not (tmp_path / "run").exists()


def test_options_that_do_not_go_together_are_refused_before_any_work(tmp_path, monkeypatch, capsys):
    both = ["--set", "objective.options.log=false", "--set", "objective.options.alpha=3"]
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    err = refused(monkeypatch, capsys, "pretrain", "cifar10-mini", *both, "--out", tmp_path / "run")
    assert "alpha = 3.0 cannot work; with log=False" in err
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"alpha = 3\.0"):
        frossl.FroSSLLoss(alpha=3.0, log=False)


@pytest.mark.parametrize("setting", ["diagnostics.probe=False", "train.together=True"])
def test_other_settings_say_how_a_boolean_is_written(setting, tmp_path, monkeypatch, capsys):
    err = refused(
        monkeypatch, capsys, "pretrain", "cifar10-mini", "--set", setting, "--out", tmp_path / "run"
    )
    assert f"write {setting.split('=')[1].lower()}" in err


def test_what_is_written_as_toml_has_it_is_taken():
    config = frossl.Config.from_toml("[objective.options]\nlog = false\ninvariance_weight = 2\n")
    again = frossl.Config.from_toml(config.to_toml())
    assert again.objective.options == {"log": False, "invariance_weight": 2}
