"""Does anything that a file or a command line can hold end in a traceback, a hang or a full memory?

    python -m benchmarks.fuzz [--minutes 10] [--cases N] [--seed 0] [--targets config,records,archives,...]
    python -m benchmarks.fuzz --replay fuzz-found/FILE.json

Each case is one command on mutated files, in a forked child with a scratch folder of its own. A case fails by
a traceback (any exception that is not an error of frossl or of the command line), a signal, more than 60 s,
more than 2 GB, an error of more than one line, or a control character on its way to the terminal. Failures
are counted once for each kind, exception and place; the first input of each is kept under --keep. The last
line printed is one JSON object.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1", COLUMNS="200")

import argparse
import base64
import contextlib
import gc
import io
import json
import math
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import time
import tomllib
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from PIL import Image

from benchmarks.hostile import TINY, write_images

SECONDS, MEMORY, ADDRESSES = 60.0, 2 << 30, 12 << 30
"""Limits of a case: time, resident bytes (it is ended beyond), and addresses (a net below that)."""
FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "TIFF": "tif", "BMP": "bmp"}
IMPORTED = (
    "lightning_fabric", "torch.optim", "frossl.cli", "frossl.engine", "frossl.estimator",
    "frossl._api.finish", "matplotlib.figure", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg", "sklearn.cluster", "sklearn.decomposition", "sklearn.linear_model",
    "sklearn.manifold", "rich.table", "rich.progress", "pyarrow.parquet", "faiss", "simplejpeg", "numba",
    "frossl.augment.fused",
)  # fmt: skip
FEATURES = ("csv", "npy", "parquet")
MODES = ("RGB", "L", "P", "RGBA", "CMYK", "I;16", "1", "LA", "F")


@dataclass
class Case:
    """A command, and the files that are not as they were. `load_encoder FILE` calls that function."""

    target: str
    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    steps: int = 2
    """FROSSL_MAX_STEPS"""

    def to_json(self) -> dict[str, Any]:
        files = {name: base64.b64encode(content).decode() for name, content in self.files.items()}
        return {**vars(self), "files": files}

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Case:
        files = {name: base64.b64decode(content) for name, content in known.pop("files").items()}
        return cls(**{name: known[name] for name in ("target", "arguments", "steps")}, files=files)


@dataclass(frozen=True)
class Failure:
    """kind: traceback, signal, hang, memory, exit, lines or control. where: the innermost line of ours."""

    kind: str
    what: str
    where: str
    message: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.what, self.where


class Bench:
    """A folder with a few images and two tiny runs, copied for each case; and a parent to fork from."""

    def __init__(self, place: Path) -> None:
        self.place, self.base = place, place / "base"
        self.base.mkdir(parents=True)
        write_images(self.base / "photos", 12)
        (self.base / "list.txt").write_text("".join(f"photos/class-{i % 3}/{i:05d}.png\n" for i in range(12)))
        rows = "".join(f"class-{i % 3}/{i:05d}.png,{i % 3}\n" for i in range(12))
        (self.base / "labels.csv").write_text("path,label\n" + rows)
        _import_everything()
        short = [*TINY, "--batch-size", "6", "--set", "diagnostics.share=1"]
        for name, steps in (("run", 0), ("stopped", 2)):
            options = ["--epochs", "2" if steps == 0 else "4", "--checkpoint-every", "1", "--out", name]
            failed, _ = self.run(
                Case("", ["pretrain", "photos", *short, *options], steps=steps), inside=self.base
            )
            if failed or not (self.base / name / "encoder.safetensors").is_file():
                raise SystemExit(f"the run to begin with failed: {failed}")
        failed, _ = self.run(Case("", ["pack", "photos", "--out", "packed", "--quiet"]), inside=self.base)
        self.contents = {
            str(path.relative_to(self.base)): path.read_bytes()
            for path in sorted(self.base.rglob("*"))
            if path.is_file()
        }

    def run(self, case: Case, *, inside: Path | None = None) -> tuple[Failure | None, int]:
        """What a case came to: how it failed, if it did, and its exit code."""
        with tempfile.TemporaryDirectory(dir=self.place, ignore_cleanup_errors=True) as scratch:
            folder = inside or Path(scratch) / "work"
            if inside is None:
                shutil.copytree(self.base, folder)
                for name, content in case.files.items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(content)
            said = Path(scratch) / "said"
            child = os.fork()
            if child == 0:
                _child(case, folder, said)
            failure, code = _watched(child, said)
            if failure is not None and not failure.where:  # no line of ours is known: the verb is
                failure = replace(failure, where=case.arguments[0])
            return failure, code

    def base_images(self, rng: random.Random) -> bytes:
        i = rng.randrange(12)
        return self.contents[f"photos/class-{i % 3}/{i:05d}.png"]


def _import_everything() -> None:
    """So that a fork has it: what commands import when they are needed."""
    import importlib

    for name in IMPORTED:
        importlib.import_module(name)
    import torch

    import frossl

    Image.init()
    torch.set_num_threads(1)
    for name in frossl.__all__:
        getattr(frossl, name)
    gc.freeze()  # or each child would copy what its collector touches


def _child(case: Case, folder: Path, said: Path) -> None:
    """Never returns: what happened is left in files beside `said`."""
    code = 0
    try:
        os.setsid()
        here = resource.getrlimit(resource.RLIMIT_AS)[1]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, here))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        home = folder.parent / "home"
        home.mkdir(exist_ok=True)
        away = "http://127.0.0.1:9"
        os.environ.update(HOME=str(home), FROSSL_CACHE=str(home / "cache"), http_proxy=away, https_proxy=away)
        os.environ.pop("FROSSL_MAX_STEPS", None)
        if case.steps:
            os.environ["FROSSL_MAX_STEPS"] = str(case.steps)
        os.chdir(folder)
        handle = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8", errors="strict")
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "utf-8", errors="backslashreplace")
        warnings.simplefilter("ignore")
        code = _called(case)
    except BaseException as error:
        known = {
            "what": type(error).__name__,
            "where": _place(error),
            "message": traceback.format_exc()[-3000:],
        }
        said.with_name("traceback").write_text(json.dumps(known), encoding="utf-8", errors="replace")
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _called(case: Case) -> int:
    from frossl.cli import main
    from frossl.errors import FrosslError

    if case.arguments[0] == "load_encoder":
        import frossl

        with contextlib.suppress(FrosslError):
            frossl.load_encoder(case.arguments[1])
        return 0
    sys.argv = ["frossl", *case.arguments]
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    return 0


def _place(error: BaseException) -> str:
    """The innermost line of frossl's, and of whom it called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/frossl/" in frame.filename]
    if not own:
        return "outside"
    return f"{own[-1].filename.rpartition('/frossl/')[2]}:{own[-1].lineno}"


def _watched(child: int, said: Path) -> tuple[Failure | None, int]:
    """Wait for a child, within its limits."""
    until, pause, over = time.monotonic() + SECONDS, 0.001, ""
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if not over and time.monotonic() > until:
            over = "hang"
        if not over and _resident(child) > MEMORY:
            over = "memory"
        if over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(pause := min(0.02, pause * 1.3))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it may have started
    text = said.read_bytes() if said.is_file() else b""
    if over or usage.ru_maxrss * 1024 > MEMORY:
        return Failure(over or "memory", over or "memory", "", text[-2000:].decode(errors="replace")), -1
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Failure("signal", name, "", text[-2000:].decode(errors="replace")), -1
    code, left = os.WEXITSTATUS(status), said.with_name("traceback")
    if left.is_file():
        return Failure("traceback", **json.loads(left.read_text(encoding="utf-8"))), code
    return _judged(text, code), code


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _judged(text: bytes, code: int) -> Failure | None:
    """What was said may be wrong too."""
    shown = text.decode(errors="replace")
    if b"Traceback (most recent call last)" in text:  # of a thread
        return Failure("traceback", shown.strip().splitlines()[-1][:60], "thread", shown[-3000:])
    if code not in (0, 1, 2):
        return Failure("exit", str(code), "", shown[-2000:])
    if any(byte < 32 and byte not in b"\n\r\t" for byte in text):
        line = next(one for one in shown.splitlines() if any(ord(c) < 32 and c not in "\t" for c in one))
        return Failure("control", line[:25], "", shown[-2000:])
    start = shown.rfind("\nfrossl: ") + 1 if "\nfrossl: " in shown else shown.find("frossl: ")
    if code and start >= 0 and len(shown[start:].strip().splitlines()) > 1:
        return Failure("lines", shown[start : start + 40], "", shown[-2000:])
    return None


# Mutations.

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.5, -0.0, 1e-320, 1e308,
    math.inf, -math.inf, math.nan, "", "x", "0", "nan", "true", "../x", "/", ".", "\x1b[31mred", "[/red]",
    "[bold]", "<b>", "\ud800", "é", "a" * 5000, "\n", "\0", [], {}, [[]], [1, 2], [None], {"a": 1},
    [1.5, "x"], {"step": "x"},
)  # fmt: skip


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, moved, doubled, lost or added."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        i, n = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(7):
            case 0 if data:
                data[i % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                data[i : i + n] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * n
            case 2:
                del data[i : i + n]
            case 3:
                data[i:i] = rng.randbytes(n)
            case 4:
                data[i:i] = data[i : i + n]
            case 5 if rng.random() < 0.3:
                del data[i:]
            case _ if data:
                data[i % len(data)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(data)


def mutated_value(value: Any, rng: random.Random) -> Any:
    """Something somewhere in lists and tables is another number, of another kind, missing, or there too."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.15:
        return _near(value, rng) if rng.random() < 0.4 else rng.choice(ODD)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    match rng.randrange(8):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, dict):
            copy[rng.choice(("extra", "", "step", str(key) + "x"))] = rng.choice(ODD)
        case 2 if isinstance(copy, list):
            copy.insert(key, rng.choice(ODD))
        case 3 if isinstance(copy, list):
            copy += copy
        case _:
            copy[key] = mutated_value(copy[key], rng)
    return copy


def _near(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice((value + 1, value - 1, -value, 2 * value, 1000 * value, value / 3))
    if isinstance(value, str):
        return rng.choice((value[:-1], value * 2, value.upper(), f" {value}"))
    return rng.choice(ODD)


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def mutated_json(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.25:
        return mutated_bytes(content, rng)
    try:
        value = json.loads(content)
    except ValueError:
        return mutated_bytes(content, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = mutated_value(value, rng)
    text = as_json(value)
    if rng.random() < 0.1:
        text = text.replace(b"1", b"1" * rng.choice((1, 400, 5000)), 1)  # Python refuses to read the longest
    return text


def mutated_records(content: bytes, rng: random.Random) -> bytes:
    """Lines: one of another kind, lost, doubled, torn, in another order, empty, or no JSON."""
    rows = content.splitlines() or [b"{}"]
    i = rng.randrange(len(rows))
    match rng.randrange(8):
        case 0:
            return b"\n".join(rows)[: rng.randrange(len(content) + 1)]
        case 1:
            del rows[i]
        case 2:
            rows[i : i + 1] = [rows[i]] * 2
        case 3:
            rng.shuffle(rows)
        case 4:
            rows[i] = rng.choice(
                (b"", b"[]", b"1", b"null", b"{}", b'"x"', b"NaN", b"\xff\xfe", b"[" * 100_000)
            )
        case _:
            rows[i] = mutated_json(rows[i], rng)
    return b"\n".join(rows) + b"\n" * (rng.random() < 0.9)


def mutated_toml(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return mutated_bytes(content, rng)
    table = tomllib.loads(content.decode())
    for _ in range(rng.choice((1, 1, 2, 3))):
        table = mutated_value(table, rng)
        if not isinstance(table, dict):
            return mutated_bytes(content, rng)
    try:
        return tomli_w.dumps(_tomlable(table)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return mutated_bytes(content, rng)


def _tomlable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _tomlable(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_tomlable(inner) for inner in value if inner is not None]
    return value


# Targets: each makes a case.


def config_case(bench: Bench, rng: random.Random) -> Case:
    """A TOML file of a run, or a recipe, changed."""
    from importlib import resources

    folder = resources.files("frossl") / "recipes"
    recipes = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    name = rng.choice(("run", "run", "run", *recipes))
    content = bench.contents["run/config.toml"]
    if name != "run":
        content = (folder / name).read_bytes()
        content = re.sub(rb"size = 2\d\d", b"size = 64", content)  # steps at 224 px take more than the limit
    files = {"mine.toml": mutated_toml(content, rng)}
    if rng.random() < 0.2:
        settings = [f"{key}={rng.choice(ODD)}" for key in rng.sample(_settings(), rng.choice((1, 2)))]
        start = [part for one in settings for part in ("--set", one.replace("\0", ""))]
        return Case("config", ["pretrain", "photos", *TINY, "--epochs", "1", "--dry-run", *_printable(start)])
    more = rng.choice(([], [], ["--method", rng.choice(("byol", "dino", "swav", "moco"))], ["--views", "3"]))
    verb = rng.choice(
        (["pretrain", "photos", "--dry-run"], ["pretrain", "photos", "--out", "o"], ["views", "photos"])
    )
    small = ["--backbone", "resnet10t", "--width", "0.25"] if name != "run" and verb[0] == "pretrain" else []
    return Case("config", [*verb, "--config", "mine.toml", *more, *small], files)


def _settings() -> list[str]:
    import dataclasses

    from frossl.config import Config

    names = []
    for section in dataclasses.fields(Config):
        inner = getattr(Config(), section.name)
        fields = dataclasses.fields(inner) if dataclasses.is_dataclass(inner) else ()
        names += [f"{section.name}.{one.name}" for one in fields] or [section.name]
    options = ("log", "normalize", "invariance_weight", "alpha", "temperature", "ema", "nothing")
    return names + [f"objective.options.{name}" for name in options]


def records_case(bench: Bench, rng: random.Random) -> Case:
    """A file of a run folder, changed; and a command that reads it."""
    run = rng.choice(("run", "run", "stopped"))
    own = [n for n in bench.contents if n.startswith(f"{run}/") and not n.endswith((".png", ".html", ".md"))]
    lines = [n for n in own if n.endswith((".jsonl", ".json", ".toml"))]
    name = rng.choice((*lines, *lines, *lines, *own))
    change: Callable[[bytes, random.Random], bytes] = mutated_bytes
    for ending, mutation in ((".jsonl", mutated_records), (".json", mutated_json), (".toml", mutated_toml)):
        change = mutation if name.endswith(ending) else change
    files = {name: change(bench.contents[name], rng)}
    if rng.random() < 0.1:
        files[f"{run}/{rng.choice(('bad_batch.json', 'bad_files.txt'))}"] = mutated_json(b'{"step": 1}', rng)
    command = rng.choice(
        (
            ["report", run], ["report", "run", "stopped", "--out", "c.html"],
            ["compare", "run", "stopped"], ["compare", run, "--out", "c.png"],
            ["list", "runs", "--under", "."], ["knn", run], ["probe", run], ["watch", run, "--once"],
            ["resume", run], ["resume", run, "--epochs", "6"], ["resume", run, "--replay"],
            ["export", run], ["checkpoints", run], ["knn", run, "--step", "2"], ["spectrum", run],
            ["embed", run, "--out", "e.csv"], ["list", "runs", "--under", ".", "--json"],
            ["pretrain", "photos", *TINY, "--out", run, "--epochs", "1", "--overwrite"],
        )
    )  # fmt: skip
    return Case("records", command, files, steps=0 if command[0] == "resume" else 2)


def archives_case(bench: Bench, rng: random.Random) -> Case:
    """A zip or tar archive with odd members, or with bytes changed."""
    kind = rng.choice(("zip", "tar"))
    content = (_zip if kind == "zip" else _tar)(bench, rng)
    if rng.random() < 0.6:
        content = mutated_bytes(content, rng)
    name = rng.choice((f"a.{kind}", f"a.{kind}", "shards/a.tar"))
    return Case("archives", _reading(name.partition("/")[0], rng), {name: content})


ODD_NAMES = (
    "../x.png", "/x.png", "", ".png", "a/", "a" * 300 + ".png", "d/" * 400 + "x.png", "\x1b[31m.png",
    "a\nb.png", "x.png", "x.png", "__MACOSX/._x.png", "train/a/1.png", "val/a/2.png", "test/b/1.png",
    "C:\\x.png", "é.png", "[/red].png", "=1+1.png", "x.cls", "1.cls", "1.json", "a\\b.png", "\udce9.png",
    "x.PNG", "con.png",
)  # fmt: skip


def _members(bench: Bench, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for i in range(rng.randrange(2, 8)):
        yield f"{'ab'[i % 2]}/{i}.png", bench.base_images(rng)
        if rng.random() < 0.3:
            yield (
                f"{'ab'[i % 2]}/{i}.cls",
                rng.choice((b"0", b"1", b"", b"99999999999999999999", b"\xff", b"1.5")),
            )
    for _ in range(rng.randrange(3)):
        content = rng.choice((bench.base_images(rng), b"", b"0", rng.randbytes(50), b"\0" * 100_000))
        yield rng.choice(ODD_NAMES), content


def _zip(bench: Bench, rng: random.Random) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # a name twice
        for name, content in _members(bench, rng):
            kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
            with contextlib.suppress(UnicodeEncodeError, IndexError):  # a name that cannot be written
                archive.writestr(name, content, compress_type=rng.choice(kinds))
    data = bytearray(file.getvalue())
    if rng.random() < 0.4:  # a field of a central header: version, flags, method, sizes, offset
        places = [i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"]
        if places:
            at = rng.choice(places) + rng.choice((6, 8, 10, 16, 20, 24, 28, 30, 42))
            data[at : at + 2] = rng.choice((b"\0\0", b"\xff\xff", b"\1\0", b"\x63\0", b"\0\x80"))
    return bytes(data)


def _tar(bench: Bench, rng: random.Random) -> bytes:
    file, formats = io.BytesIO(), (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    with tarfile.open(fileobj=file, mode="w", format=rng.choice(formats)) as archive:
        for name, content in _members(bench, rng):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if rng.random() < 0.1:
                member.type = rng.choice(
                    (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S")
                )
                member.linkname, member.size = rng.choice(("/etc/passwd", "a/0.png", name, "..")), 0
            with contextlib.suppress(ValueError, UnicodeError):
                archive.addfile(member, io.BytesIO(content))
    data = bytearray(file.getvalue())
    if rng.random() < 0.3:  # a size, with its checksum made right again
        at = 512 * rng.randrange(max(1, len(data) // 512))
        data[at + 124 : at + 136] = rng.choice(
            (b"77777777777\0", b"00000000000\0", b"\x80" + b"\xff" * 11, b"-1".ljust(12))
        )
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


def _reading(data: str, rng: random.Random) -> list[str]:
    """A command that reads images."""
    return rng.choice(
        (
            ["check", data], ["check", data, "--json"],
            ["pretrain", data, *TINY, "--epochs", "1", "--dry-run"],
            ["pretrain", data, *TINY, "--epochs", "1", "--out", "o"], ["pack", data, "--out", "p"],
            ["embed", "run", data, "--out", f"e.{rng.choice(FEATURES)}", "--duplicates", "0.9"],
            ["views", data], ["knn", "run", "--data", data],
            ["embed", "run", data, "--out", "e.csv", "--outliers", "2"],
        )
    )  # fmt: skip


def images_case(bench: Bench, rng: random.Random) -> Case:
    """Files of images with bytes or claimed sizes changed; sometimes an array, a list or a packed folder."""
    kind = rng.random()
    if kind < 0.12:
        return Case("images", _reading("a.npy", rng), {"a.npy": _array(rng)})
    if kind < 0.2:
        name, data = rng.choice((("list.txt", "list.txt"), ("labels.csv", "labels.csv"), ("l.csv", "l.csv")))
        content = mutated_bytes(bench.contents.get(name, bench.contents["labels.csv"]), rng)
        command = _reading(data, rng)
        if name == "labels.csv" and rng.random() < 0.5:
            command = ["pretrain", "photos", *TINY, "--labels", name, "--epochs", "1", "--dry-run"]
        return Case("images", command, {name: content})
    if kind < 0.3:
        name = rng.choice([n for n in bench.contents if n.startswith("packed/")])
        change = mutated_json if name.endswith(".json") else mutated_bytes
        return Case("images", _reading("packed", rng), {name: change(bench.contents[name], rng)})
    files = {}
    for i in range(rng.randrange(1, 12)):
        format = rng.choice(list(FORMATS))
        content = _sized(_picture(format, rng), rng)
        content = mutated_bytes(content, rng) if rng.random() < 0.8 else content
        ending = FORMATS[format if rng.random() < 0.9 else rng.choice(list(FORMATS))]
        files[f"photos/class-{i % 3}/odd-{i}.{ending}"] = content
    return Case("images", [*_reading("photos", rng)], files)


def _picture(format: str, rng: random.Random) -> bytes:
    mode = rng.choice(MODES)
    size = (rng.choice((1, 2, 16, 40)), rng.choice((1, 3, 16, 64)))
    pixels = np.random.default_rng(rng.randrange(1 << 30)).integers(
        0, 256, (size[1], size[0], 3), dtype=np.uint8
    )
    image = Image.fromarray(pixels)
    image = image.convert("L").convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
    file = io.BytesIO()
    try:
        if format == "JPEG" and rng.random() < 0.3:
            exif = Image.Exif()
            exif[0x0112] = rng.randrange(12)
            image.save(file, format, exif=exif)
        else:
            image.save(
                file,
                format,
                **({"compression": "tiff_lzw"} if format == "TIFF" and rng.random() < 0.3 else {}),
            )
    except (OSError, ValueError, KeyError):  # no such mode in that format
        file = io.BytesIO()
        image.convert("RGB").save(file, format)
    return file.getvalue()


def _sized(content: bytes, rng: random.Random) -> bytes:
    """Sometimes with another width and height in its header, and a checksum that is right."""
    if rng.random() < 0.7:
        return content
    data = bytearray(content)
    width, height = (rng.choice((0, 1, 60_000, 65_535, 100_000, 1 << 31, 0xFFFFFFFF)) for _ in range(2))
    if data[:4] == b"\x89PNG":
        data[16:24] = struct.pack(">II", width, height)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif data[:2] == b"BM":
        data[18:26] = struct.pack("<II", width, height)
    elif (at := data.find(b"\xff\xc0")) > 0:
        data[at + 5 : at + 9] = struct.pack(">HH", min(height, 65_535), min(width, 65_535))
    return bytes(data)


def _array(rng: random.Random) -> bytes:
    shape = rng.choice(
        ((12, 3, 16, 16), (12, 16, 16, 3), (12, 16, 16), (0, 3, 16, 16), (12,), (), (16, 16, 3), (2, 2, 0, 3))
    )
    kind = rng.choice(
        (np.uint8, np.float32, np.int64, np.float64, np.bool_, np.complex64, np.uint16, "S3", "U2")
    )
    file = io.BytesIO()
    np.save(file, np.zeros(shape, kind) if rng.random() < 0.3 else np.ones(shape, np.uint8).astype(kind))
    content = file.getvalue()
    if rng.random() < 0.4:
        old, new = f"{shape}"[1:4].encode(), rng.choice((b"99999999, ", b"-1,", b"2 ,", b"1e9", b"None"))
        content = content.replace(old, new, 1)
    return mutated_bytes(content, rng) if rng.random() < 0.5 else content


def weights_case(bench: Bench, rng: random.Random) -> Case:
    """The header of an encoder's file changed: what it claims of tensors, and of the network."""
    content = bench.contents["run/encoder.safetensors"]
    length = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    match rng.randrange(5):
        case 0:
            return _weights(mutated_bytes(content, rng), rng)
        case 1:
            header = mutated_value(header, rng)
        case 2:
            name = rng.choice([key for key in header if key != "__metadata__"])
            header[name] = mutated_value(header[name], rng)
        case _:
            known = header["__metadata__"]
            key = rng.choice(list(known))
            design = json.loads(known[key])
            if rng.random() < 0.5:
                for name, value in rng.sample(CLAIMS, rng.choice((1, 1, 2, 3))):
                    (design["network"] if name in design["network"] else design)[name] = value
            else:
                design = mutated_value(design, rng)
            known[key] = json.dumps(design)
    text = as_json(header)
    size = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 1 << 20, (1 << 63) - 1, (1 << 64) - 1))
    return _weights(size.to_bytes(8, "little") + text + rest, rng)


CLAIMS: tuple[tuple[str, Any], ...] = (
    ("stages", None), ("stem", "native"), ("width", 16), ("width", 1e9), ("width", "1"),
    ("backbone", "vit_giant_patch14_dinov2"), ("backbone", "resnet152"),
    ("backbone", "hf-hub:timm/resnet18"), ("backbone", "local-dir:."), ("channels", 10**6),
    ("channels", 0), ("channels", -1), ("stages", 9), ("stem", "x"), ("view_size", 10**6),
    ("view_size", 0), ("size", 10**9),
)  # fmt: skip


def _weights(content: bytes, rng: random.Random) -> Case:
    command = rng.choice(
        (
            ["load_encoder", "odd.safetensors"], ["load_encoder", "odd.safetensors"],
            ["load_encoder", "run"], ["embed", "odd.safetensors", "photos", "--out", "e.npy"],
            ["knn", "run"], ["export", "run"],
            ["pretrain", "photos", *TINY, "--epochs", "1", "--weights", "odd.safetensors", "--dry-run"],
            ["knn", "stopped", "--against", "odd=odd.safetensors"], ["report", "run"],
            ["resume", "run", "--epochs", "3"],
        )
    )  # fmt: skip
    return Case("weights", command, {"odd.safetensors": content, "run/encoder.safetensors": content})


LONG = {"demo", "doctor"}
"""Verbs that take minutes, or look at the whole machine."""
ALONE = {"--devices", "--num-nodes", "--processes"}
"""Options that start other processes: no number above 1."""
PATHS = (
    "photos", "run", "stopped", "packed", "list.txt", "labels.csv", "missing", ".", "..", "", "x/y/z",
    "run/config.toml", "run/checkpoints", "new", "new.csv", "new.npy", "new.parquet", "new.png",
    "photos/class-0", "~", "~/x", "a" * 300, "\x1b[31m", "[/red]", "-", "--", "run/",
    "photos/class-0/00000.png", "cifar10-minni", "é", "a b", "run=run", "=", "x=run/encoder.safetensors",
    "resnet18", "run/encoder.safetensors", "new\nline", "run/export", "nul\u2028",
)  # fmt: skip
NUMBERS = (
    "0", "1", "2", "3", "-1", "10", "1e9", "nan", "inf", "-inf", "1e400", "0.5", "0.1", "1e-9", "x", "",
    "٣", "1_0", "99999999999999999999", "2147483648", "0x10", " 1", "1.0", "-0.0", "1e308",
)  # fmt: skip
WORDS = (
    "frossl", "byol", "simclr", "symmetric", "multicrop", "demo", "default", "resnet18",
    "vit_tiny_patch16_224", "onnx", "hf", "safetensors", "torchvision", "30s", "1s", "0s", "90", "1h30m",
    "-5m", "1e9h", "10m", "32-true", "bf16-mixed", "optim.clip=3", "views=[]", "train.steps=x",
    "data.size=4", "=", "a=b=c", "x.y.z=1", "methods", "backbones", "runs", "\x1b[31m", "[red]",
    "tensorboard", "views.0.size=3", "train=1", "a..b=1", ".=1",
)  # fmt: skip


USUAL = {
    "data": ("photos", "list.txt", "packed"),
    "kind": ("methods", "backbones", "data", "views", "recipes", "runs"),
    "name": ("demo", "default", "continue"),
}
"""What arguments are, where they are not runs."""


def command_case(bench: Bench, rng: random.Random) -> Case:
    """Verbs and their options, as the command line itself lists them, with values of which some are odd."""
    import typer.main

    from frossl.cli import app

    verbs: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verb = rng.choice(sorted(set(verbs) - LONG))
    parameters, odd = verbs[verb].params, rng.choice((0.05, 0.2, 0.5))
    words = [verb]
    for parameter in parameters:
        flag = next((name for name in parameter.opts if name.startswith("--")), None)
        if flag is None:
            words += _arguments(parameter, odd, rng)
        elif flag != "--help" and (parameter.required or rng.random() < 2 / len(parameters)):
            words += [flag] if parameter.is_flag else [flag, _value(flag, parameter, rng)]
    if verb == "watch" and "--once" not in words:
        words.append("--once")
    if verb == "pretrain":
        words += [
            "--set",
            "train.view_kernel=torch",
            *rng.choice(([], ["--epochs", "1", "--recipe", "demo"])),
        ]
    if rng.random() < 0.05:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(("--x", "-h", "--", "--version", "-1")))
    return Case("command", _printable(words))


def _arguments(parameter: Any, odd: float, rng: random.Random) -> list[str]:
    """Of one parameter: as many as it takes, mostly."""
    usual = USUAL.get(parameter.name, ("run", "run", "stopped"))
    count = rng.choice((1, 2, 3)) if parameter.nargs == -1 else 1
    if rng.random() < odd / 2:
        count = rng.choice((0, 2))
    return [rng.choice(PATHS if rng.random() < odd else usual) for _ in range(count)]


def _value(flag: str, parameter: Any, rng: random.Random) -> str:
    """Of the option's own kind mostly."""
    kind = str(getattr(parameter, "bare_type", None) or parameter.type).lower()  # as typer names it, or click
    number = "int" in kind or "float" in kind
    if flag in ALONE:
        return rng.choice(("1", "0", "-1", "x", ""))
    if rng.random() < 0.15:
        return rng.choice(rng.choice((PATHS, NUMBERS, WORDS)))
    if number:
        return rng.choice(NUMBERS)
    if flag in (
        "--out",
        "--root",
        "--config",
        "--weights",
        "--labels",
        "--test",
        "--data",
        "--under",
        "--against",
    ):
        return rng.choice(PATHS)
    return rng.choice(WORDS)


def _printable(arguments: list[str]) -> list[str]:
    """As a shell can give them: no NUL, and bytes that are not UTF-8 as surrogates of their own kind."""
    return [
        a.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        for a in arguments
    ]


TARGETS: dict[str, Callable[[Bench, random.Random], Case]] = {
    "config": config_case,
    "records": records_case,
    "archives": archives_case,
    "images": images_case,
    "weights": weights_case,
    "command": command_case,
}


def fuzz(
    bench: Bench,
    targets: list[str],
    *,
    seed: int,
    seconds: float = math.inf,
    cases: float = math.inf,
    keep: Path | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Cases of each target, for so many seconds or so many of them each. Number i is the same for a seed."""
    counts: dict[str, Counter[str]] = {}
    found: dict[tuple[str, str, str, str], int] = {}
    for target in targets:
        count, until, i = Counter[str](), time.monotonic() + seconds / len(targets), 0
        while i < cases and time.monotonic() < until:
            case = TARGETS[target](bench, random.Random(f"{seed} {target} {i}"))
            failure, code = bench.run(case)
            count[failure.kind if failure else f"exit {code}"] += 1
            if failure is not None:
                key = (target, *failure.key)
                if key not in found:
                    tell(_told(case, failure, i))
                    if keep is not None:
                        _keep(keep, case, failure, f"{target}-{seed}-{i}")
                found[key] = found.get(key, 0) + 1
            i += 1
        counts[target] = count
        tell(f"{target}: {i} cases; " + ", ".join(f"{kind} {n}" for kind, n in sorted(count.items())))
    failures = [
        {"target": target, "kind": kind, "what": what, "where": where, "cases": n}
        for (target, kind, what, where), n in sorted(found.items())
    ]
    total = sum(sum(count.values()) for count in counts.values())
    return {"seed": seed, "cases": total, "targets": counts, "failures": failures}


def _told(case: Case, failure: Failure, number: int) -> str:
    last = failure.message.strip().splitlines()[-1:] or [""]
    return f"{case.target} {number}: {failure.kind} {failure.what} at {failure.where}: {last[0][:160]!r}"


def _keep(folder: Path, case: Case, failure: Failure, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = {"failure": vars(failure), **case.to_json()}
    (folder / f"{name}.json").write_bytes(as_json(known))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--cases", type=float, default=math.inf, help="of each target, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--replay", type=Path, nargs="*", help="files of --keep, once more")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        bench = Bench(Path(place))
        if options.replay:
            failed = 0
            for file in options.replay:
                case = Case.from_json(json.loads(file.read_bytes().decode("utf-8", "surrogatepass")))
                failure, code = bench.run(case)
                failed += failure is not None
                outcome = f"{failure.kind} {failure.message}" if failure else f"exit {code}"
                print(f"{file}: {case.arguments}: {outcome}")
            sys.exit(1 if failed else 0)
        found = fuzz(
            bench,
            options.targets.split(","),
            seed=options.seed,
            seconds=60 * options.minutes,
            cases=options.cases,
            keep=options.keep,
            tell=lambda line: print(line, flush=True),
        )
    print(json.dumps(found))
    sys.exit(1 if found["failures"] else 0)


if __name__ == "__main__":
    main()
