"""Evaluation of encoders: features, labelled splits, kNN, probes, fine-tuning and confidence intervals.

Encoder and data are passed as arguments; no run folder is read here.
"""

from frossl.evaluation.difference import Difference
from frossl.evaluation.feature_cache import FeatureCache
from frossl.evaluation.features import (
    Extractor,
    bag_of_features,
    baseline_extractors,
    colors,
    extract,
    extract_all,
    pixels,
)
from frossl.evaluation.finetune import finetune_accuracy
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.online import OnlineKnn, OnlineProbe, online_labels
from frossl.evaluation.probe import few_label_accuracy, linear_probe, logistic_accuracy
from frossl.evaluation.protocols import (
    KNN,
    PROTOCOLS,
    EvalProtocol,
    FeatureProtocol,
    FineTune,
    LinearProbe,
    SGDProbe,
    TrainingProtocol,
    parse_protocol,
)
from frossl.evaluation.result import Evaluation, Evaluations
from frossl.evaluation.split import EvalSplit, Labelled, Score, labelled_split
from frossl.evaluation.supervised import SupervisedData

__all__ = [
    "KNN",
    "PROTOCOLS",
    "Difference",
    "EvalProtocol",
    "EvalSplit",
    "Evaluation",
    "Evaluations",
    "Extractor",
    "FeatureCache",
    "FeatureProtocol",
    "FineTune",
    "Labelled",
    "LinearProbe",
    "OnlineKnn",
    "OnlineProbe",
    "SGDProbe",
    "Score",
    "SupervisedData",
    "TrainingProtocol",
    "bag_of_features",
    "baseline_extractors",
    "colors",
    "extract",
    "extract_all",
    "few_label_accuracy",
    "finetune_accuracy",
    "knn_accuracy",
    "labelled_split",
    "linear_probe",
    "logistic_accuracy",
    "online_labels",
    "parse_protocol",
    "pixels",
]
