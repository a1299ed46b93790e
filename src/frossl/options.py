"""Options of a run: one table for the arguments of `pretrain` and `plan`, flags and the estimator.

An option is one line of a TypedDict, whose annotation names the configuration field that it sets. Its help is
the docstring of that field. This module does not import torch.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

from frossl import config as settings
from frossl.config import Config, Precision
from frossl.errors import unknown

F = TypeVar("F", bound=Callable[..., Any])


class Sets(NamedTuple):
    """Annotation of an option: what it sets."""

    field: str
    """Dotted name of the field of `Config`."""
    flag: str | None = None
    """Flag on the command line, if it is not the name of the option."""
    or_name: bool = False
    """For a path: whether the name of a data set is accepted too."""


class EncoderOptions(TypedDict, total=False):
    """Options of a run that `FroSSLEncoder` takes too."""

    method: Annotated[str | None, Sets("objective.method")]
    backbone: Annotated[str | None, Sets("network.backbone")]
    width: Annotated[float | None, Sets("network.width")]
    view_set: Annotated[str | None, Sets("view_set")]
    epochs: Annotated[int | None, Sets("train.epochs")]
    batch_size: Annotated[int | None, Sets("train.batch_size")]
    lr: Annotated[float | None, Sets("optim.base_lr")]


class FieldOptions(EncoderOptions, total=False):
    """All options of a run that set one field of the configuration."""

    micro_batch_size: Annotated[int | None, Sets("train.micro_batch_size")]
    precision: Annotated[Precision | None, Sets("train.precision")]
    weights: Annotated[str | Path | None, Sets("network.weights")]
    loggers: Annotated[Sequence[str], Sets("train.loggers", flag="--logger")]
    seed: Annotated[int | None, Sets("train.seed")]
    threads: Annotated[int | None, Sets("train.threads")]
    devices: Annotated[int | None, Sets("train.devices")]
    num_nodes: Annotated[int | None, Sets("train.num_nodes")]
    workers: Annotated[int | None, Sets("data.workers")]
    checkpoint_every: Annotated[int | None, Sets("train.checkpoint_every")]
    checkpoint_minutes: Annotated[float | None, Sets("train.checkpoint_minutes")]
    root: Annotated[str | Path | None, Sets("data.root")]
    fraction: Annotated[float | None, Sets("data.fraction")]
    max_bad: Annotated[float | None, Sets("data.max_bad")]
    labels: Annotated[str | Path | None, Sets("data.labels")]
    test: Annotated[str | Path | None, Sets("data.test", or_name=True)]


@dataclass(frozen=True)
class Option:
    """Option of a run."""

    name: str
    """Name of the Python argument."""
    hint: Any
    """Type of the Python argument."""
    sets: Sets

    @property
    def help(self) -> str:
        """Description, from the docstring of the field."""
        return field_docs()[self.sets.field]

    @property
    def default(self) -> Any:
        """Value that means "not given": the empty tuple for sequences, else None."""
        return () if self.is_sequence else None

    @property
    def is_sequence(self) -> bool:
        """Whether the option may be given several times."""
        return typing.get_origin(self.hint) is Sequence

    @property
    def is_path(self) -> bool:
        """Whether the value is a path, which is stored as an absolute one."""
        return Path in typing.get_args(self.hint)

    @property
    def flag_type(self) -> Any:
        """Type on the command line; text where the configuration checks the value."""
        if self.is_sequence:
            return list[str] | None
        kinds = [kind for kind in typing.get_args(self.hint) if kind in (int, float, bool)]
        return (kinds[0] if kinds else str) | None


def _table(options: type) -> dict[str, Option]:
    """Return the options of a TypedDict that set a field."""
    hints = typing.get_type_hints(options, include_extras=True)
    annotated = {name: typing.get_args(hint) for name, hint in hints.items()}
    return {name: Option(name, *args) for name, args in annotated.items() if isinstance(args[-1], Sets)}


OPTIONS = _table(FieldOptions)
"""Options of a run by name."""
ENCODER_OPTIONS = _table(EncoderOptions)
"""Options of the estimator by name."""


def settings_of(options: Mapping[str, Any], *, names: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that options stand for.

    Args:
        options: Arguments of `pretrain`. Those that are None, an empty sequence, or not in `OPTIONS` are
            left out.
        names: Names of data sets, which are not taken for paths.

    Returns:
        Values by dotted name, as `Config.with_settings` takes them; paths are absolute.
    """
    chosen = {}
    for name, option in OPTIONS.items():
        value = options.get(name)
        if option.is_sequence:
            value = list(value or ()) or None
        elif option.is_path and value is not None and str(value):
            value = absolute_source(value, names) if option.sets.or_name else absolute(value)
        if value is not None and not (option.is_path and not str(value)):  # an empty path is not given
            chosen[option.sets.field] = value
    return chosen


def absolute(path: str | Path) -> str:
    """Return an absolute path, so that a run finds its files from any working directory."""
    return str(Path(os.path.expanduser(path)).absolute())


def absolute_source(source: str | Path, names: Collection[str]) -> str:
    """Return an existing path as absolute; the name of a data set, or what does not exist, unchanged."""
    name = str(source)
    is_path = name.strip() and name not in names and Path(os.path.expanduser(source)).exists()
    return absolute(source) if is_path else name


def check_names(options: Mapping[str, Any], known: type) -> None:
    """Raise an error for an option that does not exist."""
    names = typing.get_type_hints(known)
    if strange := sorted(set(options) - set(names)):
        raise unknown("option of a run", strange[0], names)


@cache
def field_docs() -> dict[str, str]:
    """Return the docstrings of all configuration fields as one line each, by dotted name."""
    classes = {
        node.name: _attribute_docs(node)
        for node in ast.parse(inspect.getsource(settings)).body
        if isinstance(node, ast.ClassDef)
    }
    docs = dict(classes["Config"])
    for part in dataclasses.fields(Config):
        kind = typing.get_type_hints(Config)[part.name]
        for inner in (kind, *typing.get_args(kind)):  # `views` is a tuple of them
            if dataclasses.is_dataclass(inner) and isinstance(inner, type):
                docs |= {f"{part.name}.{name}": text for name, text in classes[inner.__name__].items()}
    return docs


def _attribute_docs(node: ast.ClassDef) -> dict[str, str]:
    """Return the strings that follow annotated attributes in the body of a class."""
    docs = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = text.value if isinstance(text, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs[field.target.id] = " ".join(value.value.split())
    return docs


def takes_options(options: type) -> Callable[[F], F]:
    """Return a decorator for a function of `**options`: its signature and docstring list every option.

    Args:
        options: TypedDict of the options. The docstring of the function has a line that begins with
            `**options:`, which is replaced by those that set a field.
    """

    def decorate(function: F) -> F:
        table, signature = _table(options), inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        defaults = {name: table[name].default if name in table else None for name in options.__annotations__}
        hints = typing.get_type_hints(options)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
            for name, default in defaults.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        function.__doc__ = list_options(function.__doc__ or "", table)
        return function

    return decorate


def list_options(doc: str, options: Mapping[str, Option]) -> str:
    """Return a docstring with the line `**options: …` replaced by one entry for each option."""
    lines = []
    for line in doc.splitlines():
        if not line.lstrip().startswith("**options:"):
            lines.append(line)
            continue
        margin = " " * (len(line) - len(line.lstrip()))
        for option in options.values():
            text = f"{margin}{option.name}: {option.help}"
            lines += textwrap.wrap(text, 110, subsequent_indent=margin + "    ", break_long_words=False)
    return "\n".join(lines)
