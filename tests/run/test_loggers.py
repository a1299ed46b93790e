"""Loggers and watches, with the real packages: what they are told is what the run recorded."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator

import pytest
import torch

import frossl
from frossl.config import Config, Data, Network, Optim, Train, ViewSpec
from frossl.errors import InputError, TrainingError
from frossl.runs import RunFolder
from frossl.types import Callback
from tests.support.runs import USUAL

TINY = Config(
    data=Data("cifar10-mini"),
    network=Network(
        "resnet18", width=0.125, stages=1, projector_hidden=16, projector_out=8, projector_layers=2
    ),
    optim=Optim(base_lr=0.01),
    train=Train(epochs=1, batch_size=32, log_every=2, checkpoint_every=2),
    views=(ViewSpec(size=16, count=2, **USUAL),),
)


def stopped_and_resumed(tmp_path, monkeypatch, name: str, lost=("step-00000004.pt",), **options):
    """Four steps, killed as it were before the checkpoint of step 4 was there; then on to step 6."""
    monkeypatch.setenv("FROSSL_MAX_STEPS", "4")
    run = frossl.pretrain(
        "cifar10-mini", out=tmp_path / "run", config=TINY, loggers=[name], quiet=True, **options
    )
    for checkpoint in lost:
        (run.path / "checkpoints" / checkpoint).unlink()
    (run.path / "encoder.safetensors").unlink()
    monkeypatch.setenv("FROSSL_MAX_STEPS", "6")
    frossl.resume(run.path, quiet=True, **options)
    assert [record["step"] for record in run.metrics] == [2, 4, 6]
    return run


@pytest.mark.parametrize("lost", [(), ("step-00000004.pt",), ("step-00000002.pt", "step-00000004.pt")])
def test_tensorboard_is_told_every_number_of_the_record_once(lost, tmp_path, monkeypatch):
    run = stopped_and_resumed(tmp_path, monkeypatch, "tensorboard", lost)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    for name in ("loss", "lr", "invariance", "effective_rank", "images_per_second"):
        told = [(event.step, event.value) for event in events.Scalars(name)]
        assert told == [(r["step"], pytest.approx(r[name], rel=1e-6)) for r in run.metrics]


def test_mlflow_keeps_one_run_through_a_resume(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = stopped_and_resumed(tmp_path, monkeypatch, "mlflow")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.path / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "frossl"]
    (kept,) = client.search_runs([experiment.experiment_id])
    told = {metric.step: metric.value for metric in client.get_metric_history(kept.info.run_id, "loss")}
    assert told == {r["step"]: pytest.approx(r["loss"]) for r in run.metrics}
    assert kept.info.status == "KILLED"  # by FROSSL_MAX_STEPS, before its end


def test_wandb_works_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = stopped_and_resumed(tmp_path, monkeypatch, "wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    told: dict[int, float] = {}
    files = sorted((run.path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len({file.name for file in files}) == 1  # one id, two sittings
    for file in files:
        for data in leveldb_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {i.key or ".".join(i.nested_key): i.value_json for i in record.history.item}
                if "loss" in items:  # else it is a look of the run at itself
                    told[int(items["_step"])] = json.loads(items["loss"])
    assert told == {r["step"]: pytest.approx(r["loss"]) for r in run.metrics}


def leveldb_records(log: bytes) -> Iterator[bytes]:
    """A file of wandb: 7 bytes, then LevelDB's log format, blocks of 32 KiB with (crc, length, type) each."""
    place, parts = 7, b""
    while place + 7 <= len(log):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", log[place + 4 : place + 7])
        parts += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_an_unknown_logger_is_refused():
    with pytest.raises(InputError, match="did you mean tensorboard"):
        frossl.pretrain("cifar10-mini", config=TINY, loggers=["tensorbord"], quiet=True)
    with pytest.raises(InputError, match="name each once"):
        frossl.pretrain("cifar10-mini", config=TINY, loggers=["wandb", "wandb"], quiet=True)


def test_a_missing_package_is_named_with_the_command_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"pip install 'frossl\[wandb\]'"):
        frossl.pretrain("cifar10-mini", out=tmp_path / "run", config=TINY, loggers=["wandb"], quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_board_that_fails_costs_a_warning_and_not_the_run(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/no-folder.db")
    monkeypatch.setenv("FROSSL_MAX_STEPS", "3")
    run = frossl.pretrain("cifar10-mini", out=tmp_path / "run", config=TINY, loggers=["mlflow"], quiet=True)
    assert run.status["step"] == 3
    assert "mlflow is told no more" in caplog.text


@pytest.mark.parametrize("answer", ["words", {"a": "words"}, {"a": torch.zeros(3)}, {"a": object()}])
def test_a_watch_that_returns_no_numbers_is_told_so(answer, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    watch = Callback(1, lambda ids, tensors, clock: answer)
    with pytest.raises(TrainingError, match="return numbers by name"):
        frossl.pretrain("cifar10-mini", out=tmp_path / "run", config=TINY, callbacks=[watch], quiet=True)


def test_a_watch_that_never_looks_is_refused():
    with pytest.raises(InputError, match="give at least 1"):
        Callback(0, lambda ids, tensors, clock: None)


def test_a_watch_looks_now_and_then_and_changes_nothing(tmp_path, monkeypatch):
    seen = []

    def look(ids, tensors, clock):
        torch.rand(7)  # a watch may draw: the run does not notice
        seen.append((clock.step, len(ids)))
        assert tensors["features"].shape == (2, 32, 8)
        assert tensors["z"].shape == (2, 32, 8)
        assert not tensors["z"].requires_grad
        return {"spread": tensors["z"].std().item()}

    monkeypatch.setenv("FROSSL_MAX_STEPS", "7")
    watched = frossl.pretrain(
        "cifar10-mini", out=tmp_path / "a", config=TINY, callbacks=[Callback(3, look)], quiet=True
    )
    alone = frossl.pretrain("cifar10-mini", out=tmp_path / "b", config=TINY, quiet=True)
    assert seen == [(2, 32), (5, 32)]
    records = [record for record in RunFolder(watched.path).diagnostics if "spread" in record]
    assert [record["step"] for record in records] == [3, 6]
    assert all(record["spread"] > 0 for record in records)
    assert (watched.path / "encoder.safetensors").read_bytes() == (
        alone.path / "encoder.safetensors"
    ).read_bytes()


def test_what_a_watch_returns_reaches_the_loggers_and_a_resume_cuts_it(tmp_path, monkeypatch):
    watch = Callback(1, lambda ids, tensors, clock: {"half": torch.tensor(clock.step / 2), "step": -1})
    run = stopped_and_resumed(tmp_path, monkeypatch, "tensorboard", callbacks=[watch])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("half")] == [1, 2, 3, 4, 5, 6]
    records = [record for record in RunFolder(run.path).diagnostics if "half" in record]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
