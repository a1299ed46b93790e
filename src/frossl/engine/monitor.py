"""Monitor a run while it trains: diagnostics, online probe and online kNN within a share of its time."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from frossl.config import Diagnostics
from frossl.data import Dataset
from frossl.diagnostics import diagnose, log_spaced
from frossl.errors import FrosslError, InputError
from frossl.evaluation import OnlineKnn, OnlineProbe, Score, labelled_split, online_labels
from frossl.methods import Method
from frossl.networks import Encoder
from frossl.types import Clock, LossTerms

report = logging.getLogger("frossl")

KNN_STEPS = 10
"""Assumed cost of online kNN in steps, before it has been measured."""


class Monitor:
    """Diagnostics of embeddings at chosen steps; with labels, an online probe and online kNN.

    Nothing here changes the run: features and projections arrive detached, and no random number is drawn.
    """

    def __init__(self, config: Diagnostics, data: Dataset, networks: Method, encoder: Encoder) -> None:
        """Create a monitor; `encoder` is the exported one, possibly a teacher."""
        self.config, self.networks, self.encoder = config, networks, encoder
        self.learner = encoder.with_backbone(networks.backbone).to(encoder.mean.device)
        self.probe: OnlineProbe | None = None
        self.knn: OnlineKnn | None = None
        self._start: Encoder | None = None
        """Encoder before the first step, kept until online kNN has measured it."""
        if data.train.labels is not None and config.share > 0 and (config.probe or config.knn):
            try:
                split = labelled_split(data)
            except InputError:
                split = None  # too few labels to tell anything
            if split is not None and config.probe:
                device = next(encoder.parameters()).device
                labels = online_labels(split, len(data.train.source))
                self.probe = OnlineProbe(encoder.num_features, labels, device=device)
            if split is not None and config.knn:
                self.knn = OnlineKnn(split)
                start = encoder.with_backbone(copy.deepcopy(encoder.backbone))
                self._start = start.to(encoder.mean.device)
        self.seconds = 0.0
        """Seconds spent on monitoring since the start of this process."""
        self._began = time.perf_counter()
        self._cost: dict[str, float] = {"look": 0.0}
        self._loss, self._steps, self._seen = torch.zeros(()), 0, 0

    def wants(self, clock: Clock) -> set[str]:
        """Return the names of the tensors that `step` needs; the same on every process."""
        if self._looks(clock):
            return {"features", "z"}
        return set() if self.probe is None else {"features"}

    def step(
        self, ids: Tensor, tensors: Mapping[str, Tensor], terms: LossTerms, clock: Clock
    ) -> dict[str, Any] | None:
        """Return a diagnostic record, or None; `tensors` are those it `wants`, of the global batch."""
        self._loss, self._steps = self._loss + terms.total.detach(), self._steps + 1
        self._seen += 1
        record: dict[str, Any] = {}
        if self.probe is not None:
            with self._timed():
                self.probe.step(ids, tensors["features"])
        if self._looks(clock) and (log_spaced(clock.step + 1) or self._affords("look")):
            with self._timed("look"):
                record |= diagnose(tensors)
            if record:
                record["mean_loss"] = self._loss.item() / self._steps
                record["weight_norm"] = nn.utils.get_total_norm(self.networks.parameters()).item()
                self._loss, self._steps = torch.zeros(()), 0
                record["share"] = round(self.share(), 4)
                if self.probe is not None and (percent := self.probe.seen()) is not None:
                    record["probe_views"] = percent
        if self.knn is not None and self._affords("knn"):
            record |= self._ask(self.knn)
        return record or None

    def _ask(self, knn: OnlineKnn) -> dict[str, float]:
        """Measure online kNN; an error in reading test images must not end the training."""
        try:
            if self._start is not None:
                with self._timed():
                    knn.start, self._start = knn.score(self._start), None
            with self._timed("knn"):
                numbers = knn.measure(self.encoder)
                if self.probe is not None:
                    numbers["probe"] = self.probe.accuracy(*knn.tested(self.learner)).percent
        except FrosslError as error:
            report.warning("online neighbours are asked no more: %s", error)
            self.knn = None
            return {}
        return numbers

    def share(self) -> float:
        """Share of the time since its creation that was spent on monitoring."""
        return self.seconds / max(time.perf_counter() - self._began, 1e-9)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {} if self.probe is None else {"probe": self.probe.state_dict()}
        if self.knn is not None and self.knn.start is not None:
            state["start"] = self.knn.start.right
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint; the networks are then no longer those before the first step."""
        self._start = None
        if self.knn is not None and "start" in state:
            self.knn.start = Score.of(state["start"])
        if self.probe is not None and "probe" in state and not self.probe.load_state_dict(state["probe"]):
            report.warning("the online probe begins anew: its checkpoint is of other labels, or not finite")

    def _looks(self, clock: Clock) -> bool:
        return self.config.share > 0 and (log_spaced(clock.step + 1) or clock.due(self.config.every))

    def _affords(self, what: str) -> bool:
        if self.config.share == 1:
            return True
        passed = time.perf_counter() - self._began
        cost = self._cost.get(what, KNN_STEPS * passed / self._seen)
        if what == "knn" and self._start is not None:
            cost *= 2
        return self.seconds + cost <= self.config.share * passed

    @contextmanager
    def _timed(self, what: str | None = None) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.seconds += seconds
        if what is not None:
            self._cost[what] = seconds
