"""Checkpoints: everything that the next step depends on and that the configuration does not give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from frossl.engine.build import State
from frossl.errors import InputError
from frossl.runs.folder import write_atomically


def save(state: State) -> Path:
    """Write checkpoints/step-N.pt whole or not at all, and drop all but the newest.

    No random state and no position in the data: both are functions of the step (`Clock`).
    """
    content = {
        "step": state.step,
        "processes": state.loader.processes,
        "method": state.method.state_dict(),
        "optimizer": state.optimizer.state_dict(),
    }
    path = state.folder.checkpoints / f"step-{state.step:08d}.pt"
    write_atomically(path, lambda file: torch.save(content, file))
    for old in _all(state)[: -state.config.train.keep_checkpoints]:
        old.unlink()
    return path


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
    return processes


def _all(state: State) -> list[Path]:
    return sorted(state.folder.checkpoints.glob("step-*.pt"))
