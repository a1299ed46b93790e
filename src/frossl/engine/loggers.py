"""Other people's boards: what `metrics.jsonl` and `diagnostics.jsonl` record, told to them too.

Each is an extra, imported when it is asked for. A resumed run goes on in the same place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from frossl.config import Config
from frossl.errors import InputError
from frossl.runs import RunFolder


class Logger(Protocol):
    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard. What a stopped run wrote after its checkpoint is hidden on resume."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1 if step else None)
        self.writer.add_text("config", f"```toml\n{config.to_toml()}```", step)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run of Weights & Biases, kept in RUN/wandb too. Project, entity and mode come from wandb's own
    environment variables; WANDB_MODE=offline needs no account."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "frossl"),
            name=folder.path.name,
            id=_identity(folder),
            resume="allow",
            dir=str(folder.path),
            config={"toml": config.to_toml(), "method": config.objective.method},
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow, at MLFLOW_TRACKING_URI or in RUN/mlflow.db."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        from mlflow.tracking import MlflowClient

        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.absolute() / 'mlflow.db'}"
        self.client = MlflowClient(tracking_uri=store)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "frossl")
        experiment = self.client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self.client.create_experiment(name)
        identity = _identity(folder)
        known = self.client.search_runs([number], f"tags.frossl = '{identity}'")
        run = known[0] if known else self.client.create_run(number, run_name=folder.path.name)
        self.run: str = run.info.run_id
        self.client.set_tag(self.run, "frossl", identity)
        self.client.set_tag(self.run, "config", config.to_toml())

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run)


LOGGERS: dict[str, Callable[[RunFolder, Config, int], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def open_loggers(folder: RunFolder, config: Config, step: int) -> list[Logger]:
    """Those that the configuration names, going on after `step`."""
    opened = []
    for name in config.train.loggers:
        try:
            opened.append(LOGGERS[name](folder, config, step))
        except ImportError as error:
            raise InputError(f"{name} cannot be used ({error}); pip install 'frossl[{name}]'") from None
    return opened


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn of a record, without its step."""
    return {
        name: value
        for name, value in record.items()
        if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _identity(folder: RunFolder) -> str:
    """The same for a run and what resumes it: from its provenance, which is written once."""
    return hashlib.sha256((folder.path / "provenance.json").read_bytes()).hexdigest()[:16]
