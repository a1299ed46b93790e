"""Three hundred files that are no images, or claim to be larger than memory, or wait for ever."""

from __future__ import annotations

import ast
import io
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

import frossl
from frossl.data import open_dataset
from tests.support.cli import FROSSL
from tests.support.images import KINDS, as_large, sample, write_image

ENDINGS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}


def pillow_reads(data: bytes) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception:
        return False
    return True


@pytest.fixture
def hostile(tmp_path) -> tuple[Path, set[str]]:
    """60 good files and 300 others; the names of those that must be found bad."""
    folder, chance = tmp_path / "hostile", random.Random(0)
    for i in range(60):
        write_image(folder / f"good{i:03d}.jpg", width=40, height=40, seed=i)
    bad: set[str] = set()

    def add(name: bytes | str, data: bytes) -> None:
        Path(folder, os.fsdecode(name)).write_bytes(data)
        bad.add(os.fsdecode(name))

    kinds = list(KINDS)
    for i in range(120):
        kind = kinds[i % len(kinds)]
        whole = sample(kind)
        add(f"cut{i:03d}{ENDINGS[KINDS[kind][1]]}", whole[: chance.randrange(len(whole) // 2)])
    for i in range(100):
        kind = kinds[i % len(kinds)]
        data = bytearray(sample(kind))
        for _ in range(30):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        name = f"flipped{i:03d}{ENDINGS[KINDS[kind][1]]}"
        add(name, bytes(data))
        if pillow_reads(bytes(data)):  # damaged, and an image all the same
            bad.discard(name)
    for i in range(30):
        add(f"text{i:02d}{list(ENDINGS.values())[i % 5]}", b"not an image at all\n" * i)
    for i in range(20):
        add(f"empty{i:02d}.jpg", b"")
    for i in range(9):
        kind = ("jpeg", "png", "bmp")[i % 3]
        add(f"huge{i}{ENDINGS[KINDS[kind][1]]}", as_large(kind))
    for i in range(10):
        add(b"odd \xff\xfe %d.jpg" % i, b"GIF89a")
    for i in range(5):
        os.mkfifo(folder / f"pipe{i}.jpg")
        (folder / f"circle{i}.png").symlink_to(folder / f"circle{i}.png")
        bad |= {f"pipe{i}.jpg", f"circle{i}.png"}
    (folder / "gone.jpg").symlink_to(folder / "nothing")
    bad.add("gone.jpg")
    assert len(list(folder.iterdir())) == 60 + 300
    return folder, bad


def test_hostile_files_neither_crash_nor_hang_a_run_and_all_are_named(hostile, tmp_path):
    folder, bad = hostile
    # not ru_maxrss, which a process inherits from the one that started it
    script = "from frossl.cli import main\n"
    script += "try: main()\nfinally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    options = ["--epochs", "1", "--batch-size", "36", "--max-bad", "1", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", script, "pretrain", str(folder), *options, "--quiet"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:backslashreplace"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.stdout.split()[-1]) < 1_500_000  # kB, most of it torch
    lines = (tmp_path / "run" / "bad_files.txt").read_text(encoding="utf-8", errors="surrogateescape")
    named = {ast.literal_eval(line.split("\t")[0]) for line in lines.splitlines()}
    assert bad <= named
    assert not any(name.startswith("good") for name in named)


def test_too_many_of_them_stop_a_run_with_code_1(hostile, tmp_path):
    folder, _ = hostile
    command = [*FROSSL, "pretrain", str(folder), "--out", str(tmp_path / "run")]
    done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "files cannot be read, such as" in done.stderr
    assert "Traceback" not in done.stderr
    assert frossl.Run(tmp_path / "run").status["state"] == "failed"
    assert (tmp_path / "run" / "bad_files.txt").is_file()


def test_a_file_that_vanishes_during_a_run_is_replaced(tmp_path):
    for i in range(8):
        write_image(tmp_path / "photos" / f"{i}.png", width=20, height=20, seed=i)
    source = open_dataset(tmp_path / "photos").train.source
    (tmp_path / "photos" / "3.png").unlink()
    assert source.read(torch.tensor([2, 3])).ids.tolist() == [2, 4]
    assert source.bad_files() == {"3.png": "No such file or directory"}
