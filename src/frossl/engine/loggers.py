"""Loggers for TensorBoard, Weights & Biases and MLflow: they receive what the JSON-lines files receive.

Each is an extra, imported when it is asked for. A resumed run goes on in the same place. A board that cannot
be reached costs a warning, never the run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

from frossl.config import Config
from frossl.errors import InputError
from frossl.runs import RunFolder
from frossl.runs.records import Record

report = logging.getLogger("frossl")


class Logger(Protocol):
    def log(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def close(self, *, finished: bool) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard. What a stopped run wrote after its checkpoint is hidden on resume."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1)
        self.writer.add_text("config", f"```toml\n{config.to_toml()}```", step)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        self.writer.close()


class WandB:
    """A run of Weights & Biases, kept in RUN/wandb too. Project, entity and mode come from wandb's own
    environment variables; WANDB_MODE=offline needs no account."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
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

    def close(self, *, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run of MLflow, at MLFLOW_TRACKING_URI or in RUN/mlflow.db."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.absolute() / 'mlflow.db'}"
        self.client, self.metric = MlflowClient(tracking_uri=store), Metric
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "frossl")
        experiment = self.client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self.client.create_experiment(name)
        identity = _identity(folder)
        known = self.client.search_runs([number], f"tags.frossl = '{identity}'")
        run = known[0] if known else self.client.create_run(number, run_name=folder.path.name)
        self.run: str = run.info.run_id
        self.client.update_run(self.run, status="RUNNING")
        self.client.set_tag(self.run, "frossl", identity)
        self.client.set_tag(self.run, "config", config.to_toml())

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self.metric(name, value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def close(self, *, finished: bool) -> None:
        self.client.set_terminated(self.run, status="FINISHED" if finished else "KILLED")


LOGGERS: dict[str, Callable[[RunFolder, Config, int], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def check_logger(name: str) -> None:
    """Raise an error if the package of a logger is not installed."""
    try:
        found = find_spec(name) is not None
    except ValueError:  # a name that was put into sys.modules without a module
        found = False
    if not found:
        raise InputError(f"the package {name} is not installed; pip install 'frossl[{name}]'")


class Loggers:
    """Open the loggers that the configuration names; a resumed run continues after `step`."""

    def __init__(self, folder: RunFolder, config: Config, step: int) -> None:
        self.told: dict[str, Logger] = {}
        for name in config.train.loggers:
            with self._guarded(name):
                self.told[name] = LOGGERS[name](folder, config, step)

    def log(self, record: Record) -> None:
        """Log the numbers of a record at its step."""
        numbers = record.numbers()
        for name, logger in list(self.told.items()):
            with self._guarded(name):
                logger.log(record.step, numbers)

    def close(self, *, finished: bool) -> None:
        for name, logger in list(self.told.items()):
            with self._guarded(name):
                logger.close(finished=finished)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # other people's code, and often a network behind it
            self.told.pop(name, None)
            report.warning("%s is told no more (%s: %s); the run goes on", name, type(error).__name__, error)


def _identity(folder: RunFolder) -> str:
    """Return an id that a run and its resumed continuation share."""
    return str(folder.provenance()["id"])
