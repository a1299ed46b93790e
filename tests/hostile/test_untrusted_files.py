"""Files from anywhere: what they claim is checked before it costs anything, and what they say stays text."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import frossl
from frossl.errors import FrosslError, InputError
from tests.support.cli import FROSSL
from tests.support.images import write_image

TINY: dict[str, Any] = {
    "backbone": "resnet18",
    "width": 0.125,
    "epochs": 1,
    "batch_size": 8,
    "quiet": True,
    "settings": {"network.projector_hidden": 16, "network.projector_out": 8, "data.size": 16},
}
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run over sixteen images in two classes, whose names a spreadsheet or a terminal would obey."""
    place = tmp_path_factory.mktemp("untrusted")
    for i in range(16):
        name = ("=cmd()", "plain")[i % 2] + f"/{'-+@='[i % 4]}{i}.jpg"
        write_image(place / "photos" / name, width=20, height=20, seed=i)
    frossl.pretrain(place / "photos", out=place / "run", **TINY)
    return place / "run"


def one_line(error: BaseException) -> str:
    said = str(error)
    assert "\n" not in said
    assert said
    return said


def printed(*arguments: str | Path, cwd: Path) -> tuple[int, str]:
    """A command in a terminal of its own: what it ends with, and every byte it shows."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(cwd)
        os.execve(sys.executable, [*FROSSL, *map(str, arguments)], os.environ)
    shown = bytearray()
    try:
        while block := os.read(terminal, 1 << 16):
            shown += block
    except OSError:  # Linux's way to say that it is closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode("utf-8", "replace")


def peak(code: str) -> int:
    """Megabytes of memory that a Python process used at most, beyond what its imports take."""
    body = "\n".join(
        [
            "import frossl, frossl.compat, torch, timm",
            "from frossl.errors import FrosslError",
            "held = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024",
            "list(map(lambda name: getattr(frossl, name), ('load_encoder', 'pretrain')))",
            "before = held()",
            code,
            "print(held() - before)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


# images


def test_postscript_is_never_handed_to_a_program(tmp_path, monkeypatch):
    """Whatever it is called, by every way in; a program in place of Ghostscript would leave a file."""
    called = tmp_path / "called"
    (tmp_path / "bin").mkdir()
    gs = tmp_path / "bin" / "gs"
    gs.write_text(f"#!/bin/sh\ntouch {called}\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}{os.pathsep}{os.environ['PATH']}")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n%%EOF\n"
    folder = tmp_path / "photos"
    for i in range(4):
        write_image(folder / f"{i}.png", width=20, height=20, seed=i)
    for name in ("photo.jpg", "photo.png", "photo.tif"):
        (folder / name).write_bytes(script)
    found = frossl.check(folder)
    assert set(found.bad_files) == {"photo.jpg", "photo.png", "photo.tif"}
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    assert len(frossl.check(tmp_path / "photos.zip").bad_files) == 3
    assert not called.exists()


@pytest.mark.parametrize("form", ["GIF", "PPM", "TGA", "ICO"])
def test_only_documented_formats_are_opened(tmp_path, form):
    for i in range(3):
        write_image(tmp_path / f"{i}.png", width=20, height=20, seed=i)
    with io.BytesIO() as file:
        Image.new("RGB", (16, 16), (9, 99, 199)).save(file, form)
        (tmp_path / "other.jpg").write_bytes(file.getvalue())
    assert list(frossl.check(tmp_path).bad_files) == ["other.jpg"]


def test_a_long_image_takes_little_memory(run):
    """1 × 60,000 pixels, scaled as a whole to 16 rows, would be 16 × 960,000 numbers in each channel."""
    code = f"encoder = frossl.load_encoder({str(run)!r})\nwith torch.no_grad():\n    "
    grown = peak(code + "encoder(torch.zeros(1, 3, 1, 60_000)); encoder(torch.zeros(1, 3, 60_000, 1))")
    assert grown < 60


def test_the_square_of_a_long_image_is_that_of_the_whole_scaled_image(run):
    """Against the definition: all of it scaled, then the central square."""
    encoder = frossl.load_encoder(run)
    for shape in ((2, 41), (4, 100), (40, 2), (16, 16 * 9)):
        image = torch.rand(1, 3, *shape)
        scaled = torch.nn.functional.interpolate(
            image,
            [round(side * encoder.size / min(shape)) for side in shape],
            mode="bicubic",
            antialias=True,
        ).clamp(0, 1)
        top, left = ((side - encoder.size) // 2 for side in scaled.shape[-2:])
        square = scaled[..., top : top + encoder.size, left : left + encoder.size]
        torch.testing.assert_close(encoder.preprocess(image), (square - encoder.mean) / encoder.std)


# encoders and weights


def described(run: Path) -> dict[str, Any]:
    """What the header of an encoder file says of its network."""
    content = (run / "encoder.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["frossl"])
    return header


def with_header(path: Path, header: Any, weights: dict[str, torch.Tensor] | None = None) -> Path:
    said = header if isinstance(header, str) else json.dumps(header)
    save_file(weights or {}, path, metadata={"frossl": said})
    return path


def test_a_header_costs_nothing_before_it_is_compared(run, tmp_path):
    """A file of a few hundred bytes that names networks of 10 GB and more."""
    places = []
    for name, width in (("resnet152", 16.0), ("vit_large_patch16_224", 4.0), ("resnet18", 16.0)):
        header = described(run)
        header["network"] |= {"backbone": name, "width": width, "stages": None, "stem": "native"}
        places.append(str(with_header(tmp_path / f"{name}.safetensors", header)))
    tried = f"""
for place in {places!r}:
    try:
        frossl.load_encoder(place)
    except FrosslError as error:
        assert error.exit_code == 2 and str(error).count(chr(10)) == 0
    else:
        raise AssertionError(place)
"""
    assert peak(tried) < 150


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("network", {"width": "1"}),
        ("network", {"width": True}),
        ("network", {"width": -1.0}),
        ("network", {"width": 1e300}),
        ("network", {"backbone": 7}),
        ("network", {"backbone": "hf-hub:someone/something"}),
        ("network", {"stages": 10**9}),
        ("network", {"stem": "other"}),
        ("network", {"channels": -3}),
        ("network", {"channels": 10**12}),
        ("network", {"more": 1}),
        ("preprocess", {"size": -1}),
        ("preprocess", {"size": 10**9}),
        ("preprocess", {"size": "16"}),
        ("preprocess", {"mean": [0.0]}),
        ("preprocess", {"mean": "abc"}),
        ("preprocess", {"std": [0.0, 0.0, 0.0]}),
        ("preprocess", {"std": [float("nan")] * 3}),
        ("preprocess", {"resize": "to a circle"}),
        (None, {"view_size": 10**9}),
        (None, {"view_size": [16]}),
        (None, {"more": {}}),
        (None, {"network": []}),
    ],
)
def test_a_hostile_header_is_refused_in_one_line(run, tmp_path, part, values):
    header = described(run)
    (header if part is None else header[part]).update(values)
    file = with_header(tmp_path / "e.safetensors", header, load_file(run / "encoder.safetensors"))
    with pytest.raises(InputError) as refused:
        frossl.load_encoder(file)
    assert str(file) in one_line(refused.value)


def test_a_header_that_is_no_header_is_refused_in_one_line(run, tmp_path):
    whole, file = (run / "encoder.safetensors").read_bytes(), tmp_path / "e.safetensors"
    for content in (
        b"",
        whole[:7],
        struct.pack("<Q", 1 << 62) + whole[8:],
        struct.pack("<Q", len(whole)) + whole[8:],
        whole[: len(whole) // 2],
        struct.pack("<Q", 200_000) + b"[" * 200_000,
    ):
        file.write_bytes(content)
        with pytest.raises(InputError) as refused:
            frossl.load_encoder(file)
        one_line(refused.value)
    for said in ("[" * 100_000, "7", "null", "{}", '{"network": ' + "9" * 5000 + "}"):
        with pytest.raises(InputError) as refused:
            frossl.load_encoder(with_header(file, said))
        one_line(refused.value)


def test_weights_of_another_kind_than_the_network_has_are_refused(run, tmp_path):
    weights = load_file(run / "encoder.safetensors")
    name = next(name for name, weight in weights.items() if weight.ndim == 4)
    for other in (weights[name].to(torch.int64), weights[name][None]):
        file = with_header(tmp_path / "e.safetensors", described(run), {**weights, name: other.contiguous()})
        with pytest.raises(InputError, match=name):
            frossl.load_encoder(file)


def bomb(path: Path, out: Path) -> Path:
    """The same archive, compressed."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for info in archive.infolist():
            packed.writestr(info.filename, archive.read(info))
    return out


def test_weights_that_claim_more_than_their_file_holds_are_refused(run, tmp_path):
    """Zeros by the gigabyte, compressed; one number that is said to be a million; names that are none."""
    photos = run.parent / "photos"
    torch.save({"a": torch.zeros(1 << 20)}, tmp_path / "plain.pt")
    hostile = {
        "bomb.pt": bomb(tmp_path / "plain.pt", tmp_path / "bomb.pt"),
        "wide.pt": {"pos_embed": torch.zeros(1).expand(1, 1 << 40, 8)},
        "numbers.pt": {0: torch.zeros(3)},
        "meta.pt": {"conv1.weight": torch.zeros(3, device="meta")},
    }
    for name, content in hostile.items():
        if isinstance(content, dict):
            torch.save(content, tmp_path / name)
        settings = {**TINY["settings"], "network.weights": str(tmp_path / name)}
        with pytest.raises(InputError) as refused:
            frossl.pretrain(photos, out=tmp_path / "out", **{**TINY, "settings": settings})
        assert "fit" not in one_line(refused.value), name
        assert name in str(refused.value)


# arrays, packs, indexes


def test_an_archive_of_arrays_larger_than_memory_is_refused_by_its_directory(tmp_path):
    """Before anything is read: a compressed archive of that size may be a thousand times smaller."""
    with io.BytesIO() as array, zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        np.save(array, np.zeros((4, 8, 8, 3), np.uint8))
        archive.writestr("images.npy", array.getvalue())
        archive.filelist[0].file_size = 1 << 50  # what the directory, written last, will say
    with pytest.raises(InputError, match="GB of memory are free"):
        frossl.check(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (100000000000000, 8, 8, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-4, 8, 8, 3), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4, 8, 8, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 8, 8, 3), 'x': " + "(" * 400 + ")" * 400 + "}",
        "(" * 3000,
        "{'descr': '|u1', 'fortran_order': 3, 'shape': 'abcd', }",
    ],
)
def test_a_hostile_array_header_is_refused_in_one_line(tmp_path, header):
    text = header.encode() + b"\n"
    whole = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(4 * 8 * 8 * 3)
    (tmp_path / "a.npy").write_bytes(whole)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", whole)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError) as refused:
            frossl.check(tmp_path / name)
        one_line(refused.value)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("packed")
    for i in range(8):
        write_image(place / "photos" / f"{'ab'[i % 2]}" / f"{i}.png", width=16, height=16, seed=i)
    frossl.pack(place / "photos", out=place / "packed", quiet=True)
    return place / "packed"


@pytest.mark.parametrize(
    "values",
    [
        {"images": "8"},
        {"images": -8},
        {"images": 2**62},
        {"images": 8.0},
        {"size": None},
        {"size": 2**32, "channels": 2**32},
        {"channels": True},
        {"statistics": 3},
        {"statistics": [[0.5], [0.5]]},
        {"statistics": [["a", "b", "c"], [1, 1, 1]]},
        {"classes": 5},
        {"classes": [1, 2]},
        {"classes": ["a"]},
        {"digest": 5},
        "[" * 100_000,
        "[]",
        "\x00",
    ],
)
def test_a_malformed_pack_is_refused_in_one_line(packed, tmp_path, values):
    copy = tmp_path / "packed"
    copy.mkdir()
    for file in packed.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    known = json.loads((packed / "pack.json").read_text())
    text = values if isinstance(values, str) else json.dumps(known | values)
    (copy / "pack.json").write_text(text)
    with pytest.raises(InputError) as refused:
        frossl.check(copy)
    assert "packed" in one_line(refused.value)


@pytest.mark.parametrize("name", ["names.npz", "labels.npy"])
def test_other_files_of_a_pack_are_not_believed_either(packed, tmp_path, name):
    copy = tmp_path / "packed"
    copy.mkdir()
    hostile: list[Any] = [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535]
    if name == "labels.npy":
        hostile += [
            np.array([0, 1, 0, 1, 0, 1, 0, 9]),
            np.zeros(3, np.int64),
            np.zeros(8),
            np.zeros((8, 1), int),
        ]
    else:
        ends = np.arange(1, 9)
        hostile += [{"blob": np.zeros(8, np.uint8), "ends": ends[:3]}, {"blob": np.zeros(3), "ends": ends}]
        hostile += [{"blob": np.zeros(8, np.uint8), "ends": ends[::-1]}]
    for content in hostile:
        for file in packed.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        if isinstance(content, bytes):
            (copy / name).write_bytes(content)
        elif isinstance(content, dict):
            np.savez(copy / name, **content)
        else:
            np.save(copy / name, content)
        with pytest.raises(InputError, match=name.replace(".", r"\.")) as refused:
            frossl.check(copy)
        one_line(refused.value)


def test_an_index_in_the_cache_that_does_not_fit_together_is_made_again(tmp_path, monkeypatch):
    """Every number in it replaced, one kind of file after the other."""
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    for i in range(4):
        write_image(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png", width=8, height=8, seed=i)
    for folder in (tmp_path / "photos", *(tmp_path / "photos").iterdir()):
        os.utime(folder, (1e9, 1e9))  # long enough ago to be believed
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in (tmp_path / "photos").rglob("*.png"):
            archive.write(file, file.relative_to(tmp_path))
    for data in (tmp_path / "photos", tmp_path / "photos.zip"):
        assert frossl.check(data).images == 4
    kept = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert len(kept) == 2
    for file in kept:
        arrays = []
        with file.open("rb") as opened:
            while opened.tell() < file.stat().st_size:
                arrays.append(np.lib.format.read_array(opened))
        for spoiled in range(0 if file.suffix == ".index" else 1, len(arrays)):
            with file.open("wb") as opened:
                for i, array in enumerate(arrays):
                    other = np.full_like(array, 100) if i == spoiled else array
                    np.lib.format.write_array(opened, other, version=(1, 0))
            for data in (tmp_path / "photos", tmp_path / "photos.zip"):
                try:
                    frossl.check(data)
                except FrosslError as error:
                    one_line(error)


# tables and terminals


def test_no_cell_of_a_table_is_a_formula_and_paths_read_back(run, tmp_path):
    frossl.embed(run, run.parent / "photos", out=tmp_path / "f.csv", duplicates=0.01, outliers=5, quiet=True)
    for name in ("f.csv", "f.duplicates.csv", "f.outliers.csv"):
        with (tmp_path / name).open(newline="") as file:
            titles, *rows = csv.reader(file)
        assert rows
        for row in rows:
            for title, cell in zip(titles, row, strict=True):
                if title in ("name", "other", "label"):
                    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
                else:
                    float(cell)  # numbers stay as they are
    with (tmp_path / "f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    photos = run.parent / "photos"
    assert {(photos / row["name"]).resolve() for row in rows} == {p.resolve() for p in photos.rglob("*.jpg")}


def test_a_table_of_frossl_is_a_list_of_the_same_images_and_labels(run, tmp_path):
    """Names at the top of a folder, which are those that need a mark."""
    flat = tmp_path / "flat"
    for i in range(8):
        write_image(flat / f"{'=+-@'[i % 4]}{i}.jpg", width=16, height=16, seed=i)
    with (flat / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["path", "label"], *([p.name, f"={i % 2}"] for i, p in enumerate(sorted(flat.glob("*.jpg"))))]
        )
    frossl.embed(run, flat / "labels.csv", out=tmp_path / "f.csv", quiet=True)
    with (tmp_path / "f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["name"].startswith("./") and row["label"].startswith("'=") for row in rows)
    with (flat / "again.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *([row["name"], row["label"]] for row in rows)])
    frossl.embed(run, flat / "again.csv", out=tmp_path / "g.csv", quiet=True)
    assert (tmp_path / "g.csv").read_bytes() == (tmp_path / "f.csv").read_bytes()


def test_escape_sequences_in_paths_do_not_reach_the_terminal(tmp_path):
    """Of data, of files that cannot be read, of files that are not there."""
    folder = tmp_path / f"photos{ESCAPE}[/red]"
    for i in range(3):
        write_image(folder / f"{i}.png", width=8, height=8, seed=i)
    (folder / f"bad{ESCAPE}.jpg").write_bytes(b"nothing")
    commands = [
        (0, ["check", folder]),
        (2, ["knn", f"run{ESCAPE}"]),
    ]
    for code, command in commands:
        ended, shown = printed(*command, cwd=tmp_path)
        assert ended == code, shown
        assert ESCAPE not in shown
        assert "\x1b]0" not in shown
        assert "\x07" not in shown
        assert "Traceback" not in shown


def test_control_characters_in_json_are_written_as_json_escapes(tmp_path):
    """C1 characters steer a terminal as ESC does, and JSON does not ask for them to be escaped."""
    for i in range(3):
        write_image(tmp_path / f"{i}.png", width=8, height=8, seed=i)
    (tmp_path / "bad\x9b2J\u202e.jpg").write_bytes(b"nothing")
    ended, shown = printed("check", tmp_path, "--json", cwd=tmp_path)
    assert ended == 0
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    found = json.loads(shown[shown.rindex("\n{") :] if "\n{" in shown else shown[shown.index("{") :])
    assert list(found["bad_files"]) == ["bad\x9b2J\u202e.jpg"]
