"""Save and restore checkpoints: the state that a configuration alone does not give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from frossl.config import Config, Settlement
from frossl.engine.build import State, initial_backbone
from frossl.errors import InputError
from frossl.methods import METHODS, Method
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically


def save(state: State, folder: RunFolder, *, spare: Path | None = None) -> Path:
    """Write checkpoints/step-N.pt atomically, and remove all but the newest and `spare`.

    No random state and no position in the data: both are functions of the step (`Clock`).
    """
    content = {
        "step": state.step,
        "run": folder.identity(),
        "processes": state.loader.processes,
        "encoder": _name_of(state.method.encoder, state.method),
        "method": state.method.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "observer": state.monitor.state_dict(),
        "settlements": [[one.step, one.total] for one in state.loader.settlements],
        "spent": None if state.pacer is None else state.pacer.budget.gone,
    }
    path = folder.checkpoints / f"step-{state.step:08d}.pt"
    write_atomically(path, lambda file: torch.save(content, file))
    for old in folder.checkpoint_files()[: -state.config.train.keep_checkpoints]:
        if old != spare:
            old.unlink()
    return path


def forget_after(folder: RunFolder, good: Path | None) -> None:
    """Remove the checkpoints that are newer than `good`."""
    for saved in folder.checkpoint_files():
        if good is not None and saved > good:
            saved.unlink()


def restore(state: State, folder: RunFolder) -> int:
    """Load the newest checkpoint, if there is one, and return the number of processes that wrote it."""
    saved, processes = folder.checkpoint_files(), state.loader.processes
    if saved:
        content = _load(saved[-1])
        _check_run(saved[-1], content, folder)
        try:
            state.method.load_state_dict(content["method"])
            state.optimizer.load_state_dict(content["optimizer"])
            state.step, processes = content["step"], content.get("processes", 1)
            if "settlements" in content and state.config.train.steps is not None:
                state.settle([Settlement(*pair) for pair in content["settlements"]])
            if state.pacer is not None:
                state.pacer.add_spent(content.get("spent") or 0.0)
        except Exception as error:  # another network: torch has no one error for that
            raise _unreadable(saved[-1], error) from None
        state.monitor.load_state_dict(content.get("observer", {}))
    if state.pacer is not None:  # it decides anew about the steps ahead
        state.settle([one for one in state.loader.settlements if one.step <= state.step])
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
    """Refuse a checkpoint of another run; checkpoints of version 0.1.0 do not name their run."""
    written_by, identity = content.get("run"), folder.identity()
    unsaid = written_by is None and "format" not in folder.provenance() if identity else not written_by
    if written_by != identity and not unsaid:
        raise InputError(f"{path} belongs to another run; remove it, or put it back where it came from")


def checkpoint_steps(folder: RunFolder) -> list[int]:
    """Return the steps that have a checkpoint."""
    return [int(path.stem.removeprefix("step-")) for path in folder.checkpoint_files()]


def backbone_at(config: Config, folder: RunFolder, step: int) -> nn.Module:
    """Return the backbone that the checkpoint of a step would export."""
    if step not in (steps := checkpoint_steps(folder)):
        raise InputError(f"there is no checkpoint of step {step}; there are {', '.join(map(str, steps))}")
    path, backbone = folder.checkpoints / f"step-{step:08d}.pt", initial_backbone(config, pretrained=False)
    content = _load(path)
    _check_run(path, content, folder)
    try:
        prefix = content.get("encoder") or _encoder_name(config)
        weights, start = content["method"], f"{prefix}."
        backbone.load_state_dict({k[len(start) :]: v for k, v in weights.items() if k.startswith(start)})
    except Exception as error:  # as in `restore`
        raise InputError(f"{path} cannot be read ({type(error).__name__}); take another step") from None
    return backbone


def _name_of(module: nn.Module, method: Method) -> str:
    """Return the name of a submodule of a method, which may override `encoder`."""
    return next((name for name, one in method.named_modules() if one is module), method.encoder_name)


def _encoder_name(config: Config) -> str:
    """Return the name of the encoder in a checkpoint of an earlier version, which does not say it."""
    entry = METHODS.get(config.objective.method)
    return Method.encoder_name if entry is None else entry.networks.encoder_name


def newest(folder: RunFolder) -> Path | None:
    return max(folder.checkpoint_files(), default=None)
