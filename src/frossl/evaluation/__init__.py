"""Did it learn? Encoder and data arrive as arguments; labels are looked up here."""

from frossl.evaluation.difference import Difference
from frossl.evaluation.features import bag_of_features, colors, extract, pixels
from frossl.evaluation.finetune import finetune_accuracy
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.online import OnlineKnn, OnlineProbe, online_labels
from frossl.evaluation.probe import few_label_accuracy, linear_probe, logistic_accuracy
from frossl.evaluation.split import Labelled, Score, Split, labelled_split
from frossl.evaluation.supervised import Schooling

__all__ = [
    "Difference",
    "Labelled",
    "OnlineKnn",
    "OnlineProbe",
    "Schooling",
    "Score",
    "Split",
    "bag_of_features",
    "colors",
    "extract",
    "few_label_accuracy",
    "finetune_accuracy",
    "knn_accuracy",
    "labelled_split",
    "linear_probe",
    "logistic_accuracy",
    "online_labels",
    "pixels",
]
