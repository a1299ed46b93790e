"""The table of options: what each one sets; signatures, flags and the estimator follow from it."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import frossl
from frossl import options as table
from frossl._api.options import configure
from frossl.cli import common
from frossl.cli.common import app
from frossl.cli.train import _steps_or_minutes
from frossl.config import Config
from frossl.errors import InputError
from frossl.options import ENCODER_OPTIONS, OPTIONS, FieldOptions, Sets, field_docs

COMMAND = typer.main.get_command(app)

EXAMPLES: dict[str, Any] = {
    "method": "byol", "backbone": "resnet34", "view_set": "multicrop", "loggers": ["wandb"], "devices": 1,
    "num_nodes": 1,
}  # fmt: skip
"""Valid values of the options whose type does not give one."""


def example(name: str) -> Any:
    """Return a valid value of an option that is not its default."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    option = OPTIONS[name]
    if option.is_path:
        return "mine"
    default, (kind, *_) = value_at(Config(), option.sets.field), typing.get_args(option.hint)
    by_type = {int: [8, 9], float: [0.25, 0.5], bool: [True, False]}
    values = by_type.get(kind) or typing.get_args(kind)
    assert values, f"add a value of {name} to EXAMPLES"
    return next(value for value in values if value != default)


REPLACED = {"backbone": {"network.width", "network.stages", "network.stem"}, "view_set": {"views"}}
"""Settings that belong to what an option replaces."""


def value_at(config: Config, field: str) -> Any:
    value: Any = config
    for part in field.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_sets_its_field_and_no_other(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    before, given = configure("photos", {}), example(name)
    after = configure("photos", typing.cast(frossl.RunOptions, {name: given}))
    option = OPTIONS[name]
    expected = tuple(given) if option.is_sequence else str(tmp_path / given) if option.is_path else given
    assert value_at(after, option.sets.field) == expected
    if name == "method":  # the recipe has settings for each method
        return
    parts = {part.name for part in dataclasses.fields(Config) if part.name not in ("view_set", "views")}
    others = field_docs().keys() - parts - {option.sets.field} - REPLACED.get(name, set())
    others = {field for field in others if not field.startswith("views.")}  # `views` is compared whole
    assert {field: value_at(after, field) for field in others} == {
        field: value_at(before, field) for field in others
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_an_argument_and_a_flag_with_the_help_of_its_field(name):
    for function in (frossl.pretrain, frossl.plan):
        assert inspect.signature(function).parameters[name].default == OPTIONS[name].default
        assert f"        {name}: {OPTIONS[name].help}"[:60] in inspect.getdoc(function).replace(
            "\n", "\n    "
        )
    (flag,) = [p for p in COMMAND.commands["pretrain"].params if p.name == name]
    assert flag.opts == [OPTIONS[name].sets.flag or f"--{name.replace('_', '-')}"]
    assert flag.help.startswith(OPTIONS[name].help.removesuffix("."))


def test_the_estimator_takes_the_options_of_an_encoder():
    params = frossl.FroSSLEncoder().get_params()
    assert set(ENCODER_OPTIONS) <= set(params)
    assert all(params[name] is None for name in ENCODER_OPTIONS)
    assert frossl.FroSSLEncoder(width=0.25).get_params()["width"] == 0.25
    assert "width: Width of the backbone" in inspect.getdoc(frossl.FroSSLEncoder)
    with pytest.raises(TypeError, match="seed"):
        frossl.FroSSLEncoder(seed=3)


def test_every_field_of_the_configuration_has_a_docstring():
    for part in dataclasses.fields(Config):
        kind = typing.get_type_hints(Config)[part.name]
        kinds = [inner for inner in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(inner)]
        inner = [f"{part.name}.{field.name}" for kind in kinds for field in dataclasses.fields(kind)]
        for name in (part.name, *inner):
            assert field_docs()[name].endswith("."), name


def test_a_new_option_is_one_line(monkeypatch):
    """A line of the TypedDict is all that arguments, help and settings need."""

    class More(FieldOptions, total=False):
        clip: Annotated[float | None, Sets("optim.clip")]
        norm: Annotated[bool | None, Sets("network.projector_norm")]

    more = table._table(More)
    monkeypatch.setattr(table, "OPTIONS", more)
    monkeypatch.setattr(common, "OPTIONS", more)
    assert table.settings_of({"clip": 3.0, "width": None}) == {"optim.clip": 3.0}

    @table.takes_options(More)
    def train(**options: Any) -> None:
        """Train.

        Args:
            **options: Options.
        """

    assert "clip: Largest norm of the gradient" in inspect.getdoc(train)
    told: dict[str, Any] = {}
    trial = typer.Typer()

    @trial.command()
    @common.run_flags
    def tell(**options: Any) -> None:
        told.update(options)

    done = CliRunner().invoke(trial, ["--clip", "3", "--logger", "wandb", "--logger", "mlflow"])
    assert done.exit_code == 0, done.output
    assert told["clip"] == 3.0
    assert told["loggers"] == ["wandb", "mlflow"]
    for words, norm in (([], None), (["--norm"], True), (["--no-norm"], False)):
        assert CliRunner().invoke(trial, words).exit_code == 0
        assert told["norm"] is norm
    printed = CliRunner().invoke(trial, ["--help"], env={"COLUMNS": "200"}).output
    assert "Largest norm of the gradient" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("text", "minutes", "expected"),
    [
        ("200", None, {"checkpoint_every": 200, "checkpoint_minutes": None}),
        ("10m", None, {"checkpoint_minutes": 10.0}),  # the spelling of 0.1.0
        (None, 2.5, {"checkpoint_minutes": 2.5}),
        ("200", 2.5, {"checkpoint_every": 200, "checkpoint_minutes": 2.5}),
    ],
)
def test_steps_and_minutes_between_checkpoints_are_two_flags(text, minutes, expected):
    options = {"checkpoint_minutes": minutes}
    assert options | _steps_or_minutes(text, options) == expected


@pytest.mark.parametrize(("text", "minutes"), [("often", None), ("m", None), ("1m", 2.0)])
def test_checkpoints_that_cannot_be_meant_are_refused(text, minutes):
    with pytest.raises(InputError, match="--checkpoint-every"):
        _steps_or_minutes(text, {"checkpoint_minutes": minutes})


def test_a_name_of_a_data_set_is_not_taken_for_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "other").mkdir()
    assert configure("photos", {"test": "cifar10"}).data.test == "cifar10"
    assert configure("photos", {"test": "other"}).data.test == str(tmp_path / "other")
    assert configure("photos", {"test": Path("nowhere")}).data.test == "nowhere"


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.is_path])
def test_an_empty_path_is_not_given(name):
    """Scripts pass --weights "$W" with an empty variable."""
    given = configure("photos", typing.cast(frossl.RunOptions, {name: ""}))
    assert given == configure("photos", {})
