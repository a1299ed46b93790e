"""Protocols: ways to measure accuracy, as objects that hold their settings and compute a score.

A `FeatureProtocol` scores features that are computed once and shared by all of them; a `TrainingProtocol`
trains on random crops. A new protocol is one class here and one line in `PROTOCOLS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import ClassVar, Self

from torch import Tensor

from frossl.config import Optim
from frossl.errors import InputError, unknown
from frossl.evaluation.finetune import check_fraction, check_mixup, finetune_accuracy
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.probe import few_label_accuracy, linear_probe, logistic_accuracy
from frossl.evaluation.split import EvalSplit, Score
from frossl.evaluation.supervised import SupervisedData
from frossl.networks import Encoder

DEFAULT_K = 20
"""Neighbours of kNN, if no number is given."""
MAX_CROPS = 1000


class EvalProtocol(ABC):
    """Way to measure accuracy, with its settings."""

    kind: ClassVar[str]
    """Start of `key`; unique among `PROTOCOLS`."""
    key_number: ClassVar[str | None] = None
    """Field that `key` ends with unless it is None, such as `k` in `knn200`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name with all settings, such as `kNN, k 20`: accuracies of the same name can be compared."""

    @property
    def key(self) -> str:
        """Short name, such as `knn200`: the key of `Evaluations` and of `--json`."""
        number = getattr(self, self.key_number) if self.key_number else None
        return self.kind if number is None else f"{self.kind}{number}"


@dataclass(frozen=True)
class FeatureProtocol(EvalProtocol):
    """Protocol that scores features of whole images, or the mean of the features of random crops."""

    crops: int | None = field(default=None, kw_only=True)
    """Number of random crops whose features are averaged, cut like the run's largest views; None for the
    whole image."""

    def __post_init__(self) -> None:
        if self.crops is not None and self.crops not in range(1, MAX_CROPS + 1):
            raise InputError(f"crops = {self.crops}; give 1 to {MAX_CROPS} crops of each image")

    @property
    def name(self) -> str:
        return self._title + (f", bag of {self.crops} crops" if self.crops else "")

    @property
    @abstractmethod
    def _title(self) -> str:
        """Name without the crops."""

    @abstractmethod
    def settle(self, labels: Tensor) -> Self:
        """Return the protocol with every None that depends on the training labels (N,) replaced by a number.

        Raises:
            InputError: If there are too few labels.
        """

    @abstractmethod
    def accuracy(self, train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
        """Fit to training features (N, F) with labels (N,), and score test features (M, F) with labels (M,).

        Call it on what `settle` returns.
        """


@dataclass(frozen=True)
class TrainingProtocol(EvalProtocol):
    """Protocol that trains on random crops and flips of the labelled images."""

    scores_untrained: ClassVar[bool] = True
    """Whether the untrained network is evaluated, too."""

    epochs: int
    """Number of passes over the labelled images."""
    lr: float
    """Peak learning rate."""
    seed: int = field(default=0, kw_only=True)
    """Seed of image order and crops."""

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise InputError(f"lr = {self.lr:g}; give a positive learning rate")
        _check_whole("epochs", self.epochs, 1)
        _check_whole("seed", self.seed, 0)

    @property
    def _seed(self) -> str:
        return f", seed {self.seed}" if self.seed else ""

    @abstractmethod
    def accuracy(self, encoder: Encoder, split: EvalSplit, supervised: SupervisedData) -> Score:
        """Train on the images of a split and score on its test images.

        Args:
            encoder: The encoder, which is not changed.
            split: Images to train on and to test on.
            supervised: Batches of `epochs` epochs in the order of `seed`.
        """


@dataclass(frozen=True)
class KNN(FeatureProtocol):
    """Weighted k nearest neighbours by cosine similarity."""

    kind: ClassVar[str] = "knn"
    key_number: ClassVar[str | None] = "k"

    k: int | None = None
    """Number of neighbours; 20 if None, or all labelled training images if there are fewer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None:
            _check_whole("k", self.k, 1)

    @property
    def _title(self) -> str:
        return f"kNN, k {DEFAULT_K if self.k is None else self.k}"

    def settle(self, labels: Tensor) -> Self:
        if self.k is None:
            return replace(self, k=min(DEFAULT_K, len(labels)))
        if self.k > len(labels):
            raise InputError(f"k = {self.k} with {len(labels)} labelled images; give fewer neighbours")
        return self

    def accuracy(self, train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
        k = DEFAULT_K if self.k is None else self.k
        return knn_accuracy(train, train_labels, test, test_labels, k=k)


@dataclass(frozen=True)
class LinearProbe(FeatureProtocol):
    """Logistic regression on features, with few labels of each class (mean of ten draws) or with all."""

    kind: ClassVar[str] = "probe"
    key_number: ClassVar[str | None] = "per_class"

    per_class: int | None = None
    """Number of labels of each class; None for all labels, a fifth of which choose the regularization."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_class is not None:
            _check_whole("per_class", self.per_class, 1)

    @property
    def _title(self) -> str:
        if self.per_class is None:
            return "probe, all labels"
        return f"probe, {self.per_class} {'label' if self.per_class == 1 else 'labels'} a class"

    def settle(self, labels: Tensor) -> Self:
        smallest = int(labels.unique(return_counts=True)[1].min())
        if self.per_class is not None and self.per_class > smallest:
            raise InputError(
                f"{self.per_class} labels a class cannot be drawn: the smallest class has {smallest}; "
                "give fewer"
            )
        return self

    def accuracy(self, train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
        if self.per_class is None:
            return logistic_accuracy(train, train_labels, test, test_labels)
        return few_label_accuracy(train, train_labels, test, test_labels, per_class=self.per_class)


@dataclass(frozen=True)
class SGDProbe(TrainingProtocol):
    """Linear probe of the FroSSL paper: a linear layer on the frozen encoder, trained by SGD."""

    kind: ClassVar[str] = "linear"
    scores_untrained: ClassVar[bool] = False

    epochs: int = 100
    lr: float = 0.3

    @property
    def name(self) -> str:
        return f"linear probe as in the paper, {self.epochs} epochs, rate {self.lr:g}{self._seed}"

    def accuracy(self, encoder: Encoder, split: EvalSplit, supervised: SupervisedData) -> Score:
        return linear_probe(encoder, split, supervised, lr=self.lr)


@dataclass(frozen=True, kw_only=True)
class FineTune(TrainingProtocol):
    """Fine-tuning of all layers of a copy of the encoder, by AdamW with warm-up and cosine schedule."""

    kind: ClassVar[str] = "finetune"

    fraction: float = 1.0
    """Fraction of the labels of every class to train on; 0.01 is 1%."""
    epochs: int = 30
    lr: float = 1e-3
    layer_decay: float = 1.0
    """Learning rate of each layer as a multiple of that of the next layer; 1 for none."""
    mixup: float = 0.0
    """Parameter of the Beta distribution from which mixup draws its shares; 0 for no mixup."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self.fraction)
        check_mixup(self.mixup)
        Optim(optimizer="adamw", layer_decay=self.layer_decay)  # raises if it is out of range

    @property
    def name(self) -> str:
        settings = f"{self.fraction:.3g} of the labels, {self.epochs} epochs, rate {self.lr:g}"
        settings += f", layer decay {self.layer_decay:g}" if self.layer_decay < 1 else ""
        settings += f", mixup {self.mixup:g}" if self.mixup else ""
        return f"fine-tuned, {settings}{self._seed}"

    def accuracy(self, encoder: Encoder, split: EvalSplit, supervised: SupervisedData) -> Score:
        return finetune_accuracy(
            encoder,
            split,
            supervised,
            fraction=self.fraction,
            lr=self.lr,
            layer_decay=self.layer_decay,
            mixup=self.mixup,
        )


PROTOCOLS: tuple[type[EvalProtocol], ...] = (
    KNN,
    LinearProbe,
    SGDProbe,
    FineTune,
)
"""All protocols that `parse_protocol` knows."""


def parse_protocol(key: str | EvalProtocol) -> EvalProtocol:
    """Return the protocol of a key such as `knn`, `knn200`, `probe10` or `finetune`.

    Args:
        key: Key of a protocol; a protocol is returned as it is.

    Raises:
        InputError: If there is no such protocol, or its number is out of range.
    """
    if isinstance(key, EvalProtocol):
        return key
    kind = str(key).rstrip("0123456789")
    digits = str(key).removeprefix(kind)
    for protocol in PROTOCOLS:
        if protocol.kind == kind and not digits:
            return protocol()
        if protocol.kind == kind and protocol.key_number and len(digits) < 20:  # int() refuses thousands
            return protocol(**{protocol.key_number: int(digits)})
    numbered = [f"{protocol.kind}10" for protocol in PROTOCOLS if protocol.key_number]
    raise unknown("protocol", str(key), [*(protocol.kind for protocol in PROTOCOLS), *numbered])


def _check_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, Integral):
        raise InputError(f"{name} = {value}; give a whole number")
    if value < least:
        raise InputError(f"{name} = {value}; give {'at least 1' if least == 1 else '0 or more'}")
