"""Checkpoints: everything that the next step depends on and that the configuration does not give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from frossl.config import Config
from frossl.engine.build import State, build_method
from frossl.errors import InputError
from frossl.methods import JointEmbedding
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically


def save(state: State, *, spare: Path | None = None) -> Path:
    """Write checkpoints/step-N.pt whole or not at all, and drop all but the newest and `spare`.

    No random state and no position in the data: both are functions of the step (`Clock`).
    """
    content = {
        "step": state.step,
        "run": state.folder.identity(),
        "processes": state.loader.processes,
        "method": state.method.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "observer": state.observer.state_dict(),
    }
    path = state.folder.checkpoints / f"step-{state.step:08d}.pt"
    write_atomically(path, lambda file: torch.save(content, file))
    for old in state.folder.checkpoint_files()[: -state.config.train.keep_checkpoints]:
        if old != spare:
            old.unlink()
    return path


def forget_after(state: State, good: Path | None) -> None:
    """Remove what was saved after the last good checkpoint, if there is one."""
    for saved in state.folder.checkpoint_files():
        if good is not None and saved > good:
            saved.unlink()


def restore(state: State) -> int:
    """Continue from the newest checkpoint; with none, from the start. Returns how many processes wrote it."""
    saved, processes = state.folder.checkpoint_files(), state.loader.processes
    if saved:
        content = _load(saved[-1])
        _check_run(saved[-1], content, state.folder)
        try:
            state.method.load_state_dict(content["method"])
            state.optimizer.load_state_dict(content["optimizer"])
            state.step, processes = content["step"], content.get("processes", 1)
        except Exception as error:  # another network: torch has no one error for that
            raise _unreadable(saved[-1], error) from None
        state.observer.load_state_dict(content.get("observer", {}))
    return processes


def _load(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a torn archive: torch has no one error for these
        raise _unreadable(path, error) from None
    if not isinstance(content, dict):
        raise _unreadable(path, TypeError("not a checkpoint"))
    return content


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read ({type(error).__name__}); if config.toml was not changed, "
        "delete that checkpoint to continue from the one before"
    )


def _check_run(path: Path, content: dict[str, Any], folder: RunFolder) -> None:
    """Refuse a checkpoint of another run; those of version 0.1.0 do not say whose they are."""
    written_by, identity = content.get("run"), folder.identity()
    unsaid = written_by is None and "format" not in folder.provenance() if identity else not written_by
    if written_by != identity and not unsaid:
        raise InputError(f"{path} belongs to another run; remove it, or put it back where it came from")


def checkpoint_steps(folder: RunFolder) -> list[int]:
    """Steps of which there is a checkpoint."""
    return [int(path.stem.removeprefix("step-")) for path in folder.checkpoint_files()]


def method_at(config: Config, folder: RunFolder, step: int) -> JointEmbedding:
    """The networks as a checkpoint has them."""
    if step not in (steps := checkpoint_steps(folder)):
        raise InputError(f"there is no checkpoint of step {step}; there are {', '.join(map(str, steps))}")
    path, method = folder.checkpoints / f"step-{step:08d}.pt", build_method(config, pretrained=False)
    content = _load(path)
    _check_run(path, content, folder)
    try:
        method.load_state_dict(content["method"])
    except Exception as error:  # as in `restore`
        raise InputError(f"{path} cannot be read ({type(error).__name__}); take another step") from None
    return method


def newest(folder: RunFolder) -> Path | None:
    return max(folder.checkpoint_files(), default=None)
