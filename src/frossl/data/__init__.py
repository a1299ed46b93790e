"""Anything with images in it -> Batch(images, ids). Labels are kept apart and never enter a step."""

from frossl.data.arrays import array_dataset, as_tensor
from frossl.data.check import Findings, look_through
from frossl.data.dataset import Dataset, Part, with_test
from frossl.data.datasets import LARGEST, listed_dataset, open_dataset
from frossl.data.digests import copies_within
from frossl.data.kept import Names
from frossl.data.labels import Labels, held_out, stratified
from frossl.data.loader import Loader
from frossl.data.named import NAMED
from frossl.data.pack import pack
from frossl.data.sources import ArraySource, FileSource, Source, spread

__all__ = [
    "LARGEST",
    "NAMED",
    "ArraySource",
    "Dataset",
    "FileSource",
    "Findings",
    "Labels",
    "Loader",
    "Names",
    "Part",
    "Source",
    "array_dataset",
    "as_tensor",
    "copies_within",
    "held_out",
    "listed_dataset",
    "look_through",
    "open_dataset",
    "pack",
    "spread",
    "stratified",
    "with_test",
]
