"""Did it learn? Encoder and data arrive as arguments; labels are looked up here."""

from frossl.evaluation.features import bag_of_features, extract, pixels
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.probe import few_label_accuracy, logistic_accuracy
from frossl.evaluation.split import Labelled, Score, Split, labelled_split

__all__ = [
    "Labelled",
    "Score",
    "Split",
    "bag_of_features",
    "extract",
    "few_label_accuracy",
    "knn_accuracy",
    "labelled_split",
    "logistic_accuracy",
    "pixels",
]
