"""Features of all images of a data set, computed in blocks; an interruption loses only those in progress.

The result is the same to the bit for any order of blocks, number of threads and processes, and number of
restarts, because every forward pass is one batch of the same images, computed by one thread.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from frossl.config import Data
from frossl.data import Dataset, FileSource, Split, open_dataset
from frossl.errors import InputError, NotFiniteError, TrainingError
from frossl.exporting.encoder import load_encoder
from frossl.networks import Encoder

BLOCK_IMAGES = 512
"""Images per block, rounded down to whole batches (at least one); a block is recorded as done at once."""
SPLIT_PREFIXES = ("train/", "test/")
"""Default prefixes of image names, by split, in data sets with a test split."""


@dataclass(frozen=True)
class Block:
    """Consecutive images of one split."""

    number: int
    """Index among all blocks."""
    part: int
    """Index of the split: 0 for train, 1 for test."""
    start: int
    """Id of the first image in its split."""
    row: int
    """Row of the first image in the file of features."""
    count: int
    """Number of images."""


@dataclass(frozen=True)
class BlockResult:
    """Record of a computed block."""

    block: int
    """Number of the block."""
    checksum: int
    """CRC-32 of the bytes of its features."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Reasons why files could not be read, by row."""


class Images:
    """All images of a data set, indexed by row: first the train split, then the test split."""

    def __init__(self, data: Dataset) -> None:
        self.splits = [data.train, *([data.test] if data.test is not None else [])]
        self.ends = list(accumulate(len(split.source) for split in self.splits))
        defaults = SPLIT_PREFIXES if len(self.splits) > 1 else ("",)
        self.prefixes = [_prefix(*pair) for pair in zip(self.splits, defaults, strict=True)]
        """Prefixes of the image names, by split."""
        digests = [split.source.digest for split in self.splits]
        self.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def __len__(self) -> int:
        return self.ends[-1]

    def name(self, row: int) -> str:
        """Return the name of an image: its path below the data folder, or split and name."""
        split, id = self._locate(row)
        return self.prefixes[split] + self.splits[split].source.name(id)

    def label(self, row: int) -> str | None:
        """Return the class name of an image, or None without a label."""
        split, id = self._locate(row)
        labels = self.splits[split].labels
        value = -1 if labels is None else int(labels.values[id])
        return labels.names[value] if labels is not None and value >= 0 else None

    def _locate(self, row: int) -> tuple[int, int]:
        split = bisect_right(self.ends, row)
        return split, row - (self.ends[split - 1] if split else 0)

    def blocks(self, batch_size: int) -> list[Block]:
        """Return all blocks: whole batches of one split, because image sizes of splits may differ."""
        size, blocks = max(1, BLOCK_IMAGES // batch_size) * batch_size, list[Block]()
        for number, (split, end) in enumerate(zip(self.splits, self.ends, strict=True)):
            first_row = end - len(split.source)
            for start in range(0, len(split.source), size):
                count = min(size, len(split.source) - start)
                blocks.append(Block(len(blocks), number, start, first_row + start, count))
        return blocks

    def check_channels(self, encoder: Encoder) -> None:
        """Raise an `InputError` if the images do not have the channels that the encoder takes."""
        expected = len(encoder.mean)
        for split in self.splits:
            if split.source.channels != expected:
                raise InputError(
                    f"the images have {split.source.channels} channels, and the encoder takes {expected}; "
                    "give images of the kind it was trained on"
                )

    def bad_files(self) -> dict[str, str]:
        """Return the reasons why files cannot be read, by name.

        Before any image is read, these are the files and folders that could not be listed.
        """
        return {
            prefix + name: reason
            for prefix, split in zip(self.prefixes, self.splits, strict=True)
            for name, reason in split.source.bad_files().items()
        }


def _prefix(split: Split, default: str) -> str:
    prefix = split.source.files.prefix if isinstance(split.source, FileSource) else None
    return default if prefix is None else prefix


def fingerprint(encoder: Encoder) -> str:
    """Return a digest of everything that the encoder's features depend on."""
    digest = hashlib.sha256(f"{encoder.size}".encode())
    tensors = {**encoder.state_dict(), "mean": encoder.mean, "std": encoder.std}
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


@dataclass(frozen=True)
class Job:
    """Everything that a worker process needs to compute blocks."""

    encoder: str
    """Path for `load_encoder`."""
    data: Data
    images: str
    """Digest of the images."""
    weights: str
    """Fingerprint of the encoder."""
    features: str
    """Path of the file of features."""
    device: str
    batch_size: int


class BlockComputer:
    """Computes and writes the features of blocks."""

    def __init__(self, job: Job, images: Images, encoder: Encoder, *, device: str) -> None:
        self.job, self.images, self.device = job, images, device
        self.encoder = encoder.ready_on(device)

    @classmethod
    def open(cls, job: Job, rank: int) -> BlockComputer:
        """Open images and encoder in a worker process.

        Args:
            job: The job, as the parent process has it.
            rank: Number of the process, which selects its GPU.

        Raises:
            TrainingError: If images or encoder are not those of the job.
        """
        images = Images(open_dataset(**job.data.opening(), keep=False))
        encoder = load_encoder(job.encoder)
        if (images.digest, fingerprint(encoder)) != (job.images, job.weights):
            raise TrainingError(f"{job.data.source} or {job.encoder} has changed meanwhile; start again")
        device = f"cuda:{rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device
        return cls(job, images, encoder, device=device)

    @torch.inference_mode()
    def compute(self, block: Block) -> BlockResult:
        """Compute and write the features of a block; rows of unreadable files are NaN.

        Raises:
            NotFiniteError: If a feature is NaN or infinite.
        """
        source = self.images.splits[block.part].source
        rows, unreadable = [], dict[str, str]()
        for ids in torch.arange(block.start, block.start + block.count).split(self.job.batch_size):
            batch = source.read(ids)
            features = self.encoder(batch.images.to(self.device)).float().cpu()
            if not_finite := int((~features.isfinite()).any(1).sum()):
                raise NotFiniteError(
                    f"features of {not_finite} of {len(ids)} images are not finite; the encoder is broken: "
                    "train again with a lower rate"
                )
            replaced = batch.ids != ids
            features[replaced] = torch.nan
            for id in ids[replaced].tolist():
                reason = source.bad_files().get(source.name(id), "cannot be read")
                unreadable[str(block.row + id - block.start)] = reason
            rows.append(features)
        written = torch.cat(rows).numpy().tobytes()
        with open(self.job.features, "r+b") as file:
            file.seek(block.row * (len(written) // block.count))
            file.write(written)
            file.flush()
            os.fsync(file.fileno())
        return BlockResult(block.number, zlib.crc32(written), unreadable)
