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
        "processes": state.loader.processes,
        "method": state.method.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "observer": state.observer.state_dict(),
    }
    path = state.folder.checkpoints / f"step-{state.step:08d}.pt"
    write_atomically(path, lambda file: torch.save(content, file))
    for old in _all(state)[: -state.config.train.keep_checkpoints]:
        if old != spare:
            old.unlink()
    return path


def forget_after(state: State, good: Path | None) -> None:
    """Remove what was saved after the last good checkpoint, if there is one."""
    for saved in _all(state):
        if good is not None and saved > good:
            saved.unlink()


def restore(state: State) -> int:
    """Continue from the newest checkpoint; with none, from the start. Returns how many processes wrote it."""
    saved, processes = _all(state), state.loader.processes
    if saved:
        try:
            content: dict[str, Any] = torch.load(saved[-1], map_location="cpu", weights_only=True)
            state.method.load_state_dict(content["method"])
            state.optimizer.load_state_dict(content["optimizer"])
            state.step, processes = content["step"], content.get("processes", 1)
        except Exception as error:  # a torn archive, another network: torch has no one error for these
            raise InputError(
                f"{saved[-1]} cannot be read ({type(error).__name__}); if config.toml was not changed, "
                "delete that checkpoint to continue from the one before"
            ) from None
        state.observer.load_state_dict(content.get("observer", {}))
    return processes


def checkpoint_steps(folder: RunFolder) -> list[int]:
    """Steps of which there is a checkpoint."""
    return [int(path.stem.removeprefix("step-")) for path in _in(folder)]


def method_at(config: Config, folder: RunFolder, step: int) -> JointEmbedding:
    """The networks as a checkpoint has them."""
    if step not in (steps := checkpoint_steps(folder)):
        raise InputError(f"there is no checkpoint of step {step}; there are {', '.join(map(str, steps))}")
    path, method = folder.checkpoints / f"step-{step:08d}.pt", build_method(config, pretrained=False)
    try:
        method.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["method"])
    except Exception as error:  # as in `restore`
        raise InputError(f"{path} cannot be read ({type(error).__name__}); take another step") from None
    return method


def newest(folder: RunFolder) -> Path | None:
    return max(_in(folder), default=None)


def _all(state: State) -> list[Path]:
    return _in(state.folder)


def _in(folder: RunFolder) -> list[Path]:
    return sorted(folder.checkpoints.glob("step-*.pt"))
