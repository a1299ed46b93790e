"""Features of every image of a data set, in blocks: an end at any moment costs no more than those under way.

Any order of blocks, any number of threads and processes, and any number of starts give the same bits: every
forward pass is one batch of the same images, computed by one thread.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from frossl.artifacts.encoder import load_encoder
from frossl.config import Data
from frossl.data import Dataset, FileSource, Part, open_dataset
from frossl.errors import InputError, NotFiniteError, TrainingError
from frossl.networks import Encoder

BLOCK = 512
"""Images, or a little fewer, that are written and remembered as done together."""
PARTS = ("train/", "test/")


@dataclass(frozen=True)
class Block:
    """Images of one part, one after the other."""

    number: int
    part: int
    start: int
    """The first id in its part."""
    row: int
    """Where it stands among all images."""
    count: int


@dataclass(frozen=True)
class Done:
    """What is remembered of a block."""

    block: int
    checksum: int
    """Of its features as bytes."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Rows whose files could not be read, with the reason."""


class Images:
    """All images of a data set by row: those to learn from, then those to be tested on."""

    def __init__(self, data: Dataset) -> None:
        self.parts = [data.train, *([data.test] if data.test is not None else [])]
        self.ends = list(accumulate(len(part.source) for part in self.parts))
        otherwise = PARTS if len(self.parts) > 1 else ("",)
        self.within = [_within(*pair) for pair in zip(self.parts, otherwise, strict=True)]
        """What the names of each part begin with."""
        digests = [part.source.digest for part in self.parts]
        self.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def __len__(self) -> int:
        return self.ends[-1]

    def name(self, row: int) -> str:
        """As it lies below the data; those of parts begin with the part's."""
        part, id = self._place(row)
        return self.within[part] + self.parts[part].source.name(id)

    def label(self, row: int) -> str | None:
        part, id = self._place(row)
        labels = self.parts[part].labels
        value = -1 if labels is None else int(labels.values[id])
        return labels.names[value] if labels is not None and value >= 0 else None

    def _place(self, row: int) -> tuple[int, int]:
        part = bisect_right(self.ends, row)
        return part, row - (self.ends[part - 1] if part else 0)

    def blocks(self, batch_size: int) -> list[Block]:
        """Whole batches; none holds images of two parts, whose sizes may differ."""
        size, blocks = max(1, BLOCK // batch_size) * batch_size, list[Block]()
        for number, (part, end) in enumerate(zip(self.parts, self.ends, strict=True)):
            before = end - len(part.source)
            for start in range(0, len(part.source), size):
                count = min(size, len(part.source) - start)
                blocks.append(Block(len(blocks), number, start, before + start, count))
        return blocks

    def check_channels(self, encoder: Encoder) -> None:
        takes = len(encoder.mean)
        for part in self.parts:
            if part.source.channels != takes:
                raise InputError(
                    f"the images have {part.source.channels} channels, and the encoder takes {takes}; give "
                    "images of the kind it was trained on"
                )

    def closed(self) -> dict[str, str]:
        """What could not even be listed, with the reason; asked before any image is read."""
        found = zip(self.within, self.parts, strict=True)
        return {within + name: why for within, part in found for name, why in part.source.bad_files().items()}


def _within(part: Part, otherwise: str) -> str:
    known = part.source.files.within if isinstance(part.source, FileSource) else None
    return otherwise if known is None else known


def fingerprint(encoder: Encoder) -> str:
    """Of all that its features depend on."""
    digest = hashlib.sha256(f"{encoder.size}".encode())
    tensors = {**encoder.state_dict(), "mean": encoder.mean, "std": encoder.std}
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


@dataclass(frozen=True)
class Job:
    """All that a process needs to know to compute blocks."""

    encoder: str
    """Where `load_encoder` finds it."""
    data: Data
    images: str
    """Their digest."""
    weights: str
    """The encoder's fingerprint."""
    features: str
    """The file that they go to."""
    device: str
    batch_size: int


class Bench:
    """Images and an encoder: where blocks are computed."""

    def __init__(self, job: Job, images: Images, encoder: Encoder, *, device: str) -> None:
        self.job, self.images, self.device = job, images, device
        self.encoder = encoder.ready_on(device)

    @classmethod
    def open(cls, job: Job, rank: int) -> Bench:
        """In a process that has nothing yet."""
        images = Images(open_dataset(**vars(job.data), keep=False))
        encoder = load_encoder(job.encoder)
        if (images.digest, fingerprint(encoder)) != (job.images, job.weights):
            raise TrainingError(f"{job.data.source} or {job.encoder} has changed meanwhile; start again")
        device = f"cuda:{rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device
        return cls(job, images, encoder, device=device)

    @torch.inference_mode()
    def compute(self, block: Block) -> Done:
        """Write a block's features; a row whose file cannot be read is NaN, never its replacement's."""
        source = self.images.parts[block.part].source
        rows, unreadable = [], dict[str, str]()
        for ids in torch.arange(block.start, block.start + block.count).split(self.job.batch_size):
            batch = source.read(ids)
            features = self.encoder(batch.images.to(self.device)).float().cpu()
            if broken := int((~features.isfinite()).any(1).sum()):
                raise NotFiniteError(
                    f"features of {broken} of {len(ids)} images are not finite; the encoder is broken: train "
                    "again with a lower rate"
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
        return Done(block.number, zlib.crc32(written), unreadable)
