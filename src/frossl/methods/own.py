"""Methods of the user's own: a class in a Python file, or an entry point of an installed package.

Only `find_method` executes their code, and only the code that the configuration's digest names. It is called
by what trains; what reads a run folder never needs the method.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from frossl.config import Objective as MethodConfig
from frossl.errors import InputError, first_line, unknown
from frossl.methods import METHODS, Method, MethodEntry
from frossl.objectives import Objective
from frossl.text import method_title, split_method

NO_PARAMETER = inspect.Parameter("z", inspect.Parameter.KEYWORD_ONLY)
"""Stands for the first parameter of a loss that has none."""

GROUP = "frossl.methods"
"""Group of entry points by which an installed package adds methods."""


def installed_methods() -> dict[str, EntryPoint]:
    """Return the methods of other installed packages by name, without importing them."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in METHODS}


def method_names() -> list[str]:
    """Return the names of all methods, built in and installed."""
    return sorted([*METHODS, *installed_methods()])


def is_own(name: str) -> bool:
    """Return whether a method is not built in, but in a file or an installed package."""
    return name not in METHODS and (split_method(name) is not None or name in installed_methods())


def pin_method(given: MethodConfig) -> MethodConfig:
    """Return the configuration of a new run's method, with what identifies its code.

    A path becomes absolute. A digest that is already given is kept, and checked by `find_method`.
    """
    if given.method in METHODS:
        return replace(given, digest=None)
    if (parts := split_method(given.method)) is not None:
        digest = given.digest or _digest(_read(parts[0].expanduser()))
        return replace(given, method=absolute_method(given.method), digest=digest)
    if (point := installed_methods().get(given.method)) is not None:
        return replace(given, digest=given.digest or origin(point))
    return given


def absolute_method(method: str) -> str:
    """Return a method given as `FILE.py:NAME` with an absolute path, and other names unchanged."""
    parts = split_method(method)
    return method if parts is None else f"{parts[0].expanduser().absolute()}:{parts[1]}"


def find_method(given: MethodConfig) -> MethodEntry:
    """Return networks and objective of a method, and execute its file or package if it is not built in.

    Raises:
        InputError: If there is no such method, its code is not what the digest names, or it does not work.
    """
    if given.method in METHODS:
        return METHODS[given.method]
    if (parts := split_method(given.method)) is not None:
        file, name = parts
        source = _read(file)
        _check_digest(given, _digest(source), f"{file} has changed since the run was configured")
        return _as_entry(_member(_execute(file, source), name, str(file)), given.method)
    if (point := installed_methods().get(given.method)) is not None:
        _check_digest(given, origin(point), f"{given.method} now comes from {origin(point)}")
        return _as_entry(_load(point), given.method)
    if given.method.endswith(".py"):
        raise InputError(f"method {given.method!r} names no class; give {given.method}:NAME")
    raise unknown("method", given.method, method_names())


def origin(point: EntryPoint) -> str:
    """Return name and version of the package that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _check_digest(given: MethodConfig, found: str, change: str) -> None:
    if given.digest is None:
        raise InputError(
            f"this run names {given.method} without objective.digest, so its code is not executed; "
            "start a new run"
        )
    if found != given.digest:
        raise InputError(
            f"{change} (objective.digest is {given.digest[:32]}); put the old one back, or start a new run "
            "with --method"
        )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the method's file {file} cannot be read ({reason}); put it there") from None


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _execute(file: Path, source: bytes) -> ModuleType:
    """Execute a file once per process as a module of its own; its folder is not searched for imports."""
    name = "frossl_own_" + _digest(bytes(file) + source)[:16]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (Exception, SystemExit)):
            raise _broken(file, error) from error
        raise
    return module


def _broken(file: Path, error: BaseException) -> InputError:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
    place = f"{file}, line {line}" if line else str(file)
    return InputError(f"{place}: {type(error).__name__}: {first_line(error)}; correct the file of the method")


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f"{point.value} of {origin(point)} cannot be imported ({first_line(error)}); "
            "correct or reinstall it"
        ) from error


def _member(module: ModuleType, name: str, file: str) -> Any:
    if not hasattr(module, name):
        fitting = [
            key
            for key, value in vars(module).items()
            if isinstance(value, MethodEntry)
            or (inspect.isclass(value) and value.__module__ == module.__name__)
        ]
        raise unknown(f"method in {file}", name, fitting)
    return getattr(module, name)


def _as_entry(found: Any, name: str) -> MethodEntry:
    """Return the entry of a method that is given as such, as its networks or as its objective."""
    title = method_title(name)
    if isinstance(found, MethodEntry):
        entry = found
        if not _is_subclass(entry.networks, Method) or not _is_subclass(entry.objective, Objective):
            raise InputError(f"{title} is no pair of a Method and an Objective; give subclasses of both")
    elif _is_subclass(found, Objective):
        entry = MethodEntry(Method, found)
    elif _is_subclass(found, Method):
        if not _is_subclass(found.objective_class, Objective):
            raise InputError(
                f"{title} names no objective; set objective_class = YourLoss in the class, a subclass of "
                "Objective"
            )
        entry = MethodEntry(found, found.objective_class)
    else:
        raise InputError(f"{title} is a {type(found).__name__}; give a subclass of Method or Objective")
    _check_signatures(entry, title)
    return entry


def _is_subclass(found: object, of: type) -> bool:
    return inspect.isclass(found) and issubclass(found, of)


def _check_signatures(entry: MethodEntry, title: str) -> None:
    if "default" not in entry.objective.presets:
        raise InputError(f"the presets of {title} have no 'default'; add it, such as lambda V: {{}}")
    try:
        inspect.signature(entry.networks).bind(None, None, None)
    except TypeError as error:
        raise InputError(
            f"{title} cannot be built ({error}); __init__ takes backbone, projector and objective, and its "
            "options are keyword-only with defaults"
        ) from None
    first, *others = inspect.signature(entry.objective.function).parameters.values() or [NO_PARAMETER]
    given = entry.networks.inputs is not Method.inputs  # the method passes further arguments
    passed = {"rng", *entry.objective.state, *(p.name for p in others if given)}
    free = [
        p.name
        for p in others
        if p.kind is not p.KEYWORD_ONLY or (p.default is p.empty and p.name not in passed)
    ]
    if first.kind is first.KEYWORD_ONLY or free:
        raise InputError(
            f"the loss of {title} takes z, and then keyword-only options with defaults "
            f"(*, weight: float = 1.0); change {', '.join(free) or first.name}"
        )
