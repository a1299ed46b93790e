"""`frossl doctor`: what it finds is there, what is broken is found, and nothing is left behind."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
import torch
from rich.console import Console

from frossl import engine
from frossl.cli.doctor import show
from frossl.data import decode
from frossl.errors import ConfigError
from frossl.health import (
    Accelerator,
    DoctorReport,
    Finding,
    Hardware,
    doctor,
    environment,
    examine,
    hardware,
    selftest,
)
from frossl.machine import cores, memory
from frossl.objectives import OBJECTIVES
from frossl.types import LossTerms
from tests.support.cli import call


def write(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


# what a process may use

MEMINFO = "MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB"
ENDLESS = 9223372036854771712


def test_limits_of_control_groups_of_version_2_hold_for_what_is_below_them(tmp_path):
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pod/job",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000",
            "sys/fs/cgroup/pod/job/cpu.max": "max 100000",
            "sys/fs/cgroup/pod/memory.max": 2000 * 1024,
            "sys/fs/cgroup/pod/memory.current": 1700 * 1024,
            "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {500 * 1024}",
            "sys/fs/cgroup/pod/job/memory.max": "max",
        },
    )
    assert cores(tmp_path).quota == 1.5
    assert cores(tmp_path).threads == 1
    assert memory(tmp_path) == (2000 * 1024, 800 * 1024)


def test_limits_of_version_1_are_read_where_a_container_shows_them(tmp_path):
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/docker/abc\n2:cpuacct:/\n1:cpu,cpuset:/docker/abc\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": 50000,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 1000 * 1024,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 400 * 1024,
        },
    )
    assert cores(tmp_path).usable == 0.5
    assert memory(tmp_path) == (1000 * 1024, 600 * 1024)


def test_no_limit_is_no_limit(tmp_path):
    files = {"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100000}
    files["memory/memory.limit_in_bytes"] = ENDLESS
    write(tmp_path, {f"sys/fs/cgroup/{name}": number for name, number in files.items()})
    write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "2:cpu:/\n1:memory:/"})
    assert cores(tmp_path).quota is None
    assert memory(tmp_path) == (4000 * 1024, 3000 * 1024)
    assert cores(tmp_path / "nowhere").usable == len(os.sched_getaffinity(0))


def test_two_hardware_threads_of_one_core_count_once(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    name = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    write(tmp_path, {name.format(n): "all of them" for n in allowed})
    assert (cores(tmp_path).allowed, cores(tmp_path).physical) == (len(allowed), 1)


# looking


def level_of(findings, words: str) -> str:
    (found,) = (finding for finding in findings if words in finding.title)
    return found.level


def thread_fix() -> str:
    """torch itself takes the right number, unless a quota is what makes it right."""
    here = cores()
    return "unset OMP_NUM_THREADS" if here.quota is None else f"export OMP_NUM_THREADS={here.threads}"


def test_a_process_of_its_own_finds_traps_in_its_environment_and_says_so_twice(tmp_path):
    """As a command: JSON on standard output, words on standard error, exit code 1."""
    (tmp_path / "file").write_text("no folder")
    code = "import sys; from frossl.cli.doctor import doctor; sys.exit(doctor(json=True))"
    env = {"OMP_NUM_THREADS": "1", "FROSSL_MAX_STEPS": "7", "FROSSL_CACHE": str(tmp_path / "file" / "x")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["healthy"] is False
    assert found["versions"]["torch"] == torch.__version__
    assert found["hardware"]["threads"] == 1
    assert found["tested"] is None
    assert all(finding.keys() == {"level", "title", "detail", "fix", "mend"} for finding in found["findings"])
    assert all(finding["mend"] == finding["fix"] for finding in found["findings"])
    fixes = {finding["fix"]: finding["level"] for finding in found["findings"] if finding["fix"]}
    assert fixes["unset FROSSL_MAX_STEPS"] == "hint"
    if cores().threads > 1:
        assert fixes[thread_fix()] == "hint"
    (cache,) = (shlex.split(fix)[1] for fix in fixes if "FROSSL_CACHE" in fix)
    assert Path(cache.removeprefix("FROSSL_CACHE=")).parent.is_dir()
    for finding in found["findings"]:
        assert finding["fix"] in [*done.stderr.splitlines(), ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_it_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads(), torch.get_rng_state()
    found = doctor()
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert list(tmp_path.iterdir()) == []
    assert found.healthy
    assert level_of(found.findings, str(tmp_path / "cache")) == "ok"
    assert json.loads(json.dumps(found.to_json()))["findings"] == [
        {**vars(finding), "mend": finding.fix} for finding in found.findings
    ]


@pytest.mark.parametrize("kind", ["below a file", "a link to nowhere", "a place for nobody"])
def test_a_cache_that_cannot_be_written_is_a_problem(kind, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    places = {"below a file": tmp_path / "file" / "x", "a link to nowhere": tmp_path / "link"}
    monkeypatch.setenv("FROSSL_CACHE", str(places.get(kind, "/proc/frossl")))
    found = environment.check_cache()
    assert found.level == "problem"
    assert "cannot be written" in found.title
    _, setting = shlex.split(found.fix)
    monkeypatch.setenv(*setting.split("="))
    assert environment.check_cache().level == "ok"


def test_a_full_disk_is_a_problem_and_little_room_a_hint(tmp_path, monkeypatch):
    usage = environment.shutil.disk_usage(tmp_path)
    for room, level in ((usage.free + 1, "hint"), (usage.free - (1 << 30), "ok")):
        monkeypatch.setattr(environment, "LOW_DISK_BYTES", room)
        assert environment._check_folder("cache", tmp_path, "fix", usage="").level == level
    monkeypatch.setattr(environment, "LOW_DISK_BYTES", usage.free * 2)
    monkeypatch.setattr(environment, "FULL_DISK_BYTES", usage.free * 2)
    assert environment._check_folder("cache", tmp_path, "fix", usage="").level == "problem"


def test_any_name_of_a_folder_is_shown_on_one_line(tmp_path, monkeypatch):
    odd = tmp_path / "a\nb [red]\u202e\udc80<script>"
    odd.mkdir()
    monkeypatch.setenv("FROSSL_CACHE", str(odd))
    found = environment.check_cache()
    assert found.level == "ok"
    assert found.title.isprintable()
    assert "[red]" in found.title


@pytest.mark.parametrize(("value", "level"), [("20", "hint"), ("soon", "problem"), ("0", "problem")])
def test_a_limit_of_steps_in_the_environment_is_named(value, level, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", value)
    (found,) = environment.check_max_steps()
    assert (found.level, found.fix) == (level, "unset FROSSL_MAX_STEPS")
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    assert list(environment.check_max_steps()) == []


def test_packages_that_are_too_old_or_missing_are_named_with_the_command(monkeypatch):
    (good,) = environment.check_packages()
    assert good.level == "ok"
    more = ["torch>=99", "not-there-at-all>=1", 'numba>=99; extra == "fast"', 'wandb2; extra == "wandb"']
    monkeypatch.setattr(environment, "requires", lambda name: [*requires(name), *more])
    found = {finding.fix: finding.level for finding in environment.check_packages()}
    assert found == {
        "pip install 'torch>=99'": "problem",
        "pip install 'not-there-at-all>=1'": "problem",
        "pip install 'numba>=99'": "hint",
    }


def test_what_is_not_installed_is_a_hint_and_what_does_not_work_a_problem(monkeypatch):
    assert (
        environment.check_view_kernel().level
        == environment.check_jpeg().level
        == environment.check_extras().level
        == "ok"
    )
    monkeypatch.setattr(decode, "simplejpeg", None)
    assert environment.check_jpeg().fix == "pip install 'frossl[jpeg]'"
    for name in ("wandb", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    extras = environment.check_extras()
    assert (extras.level, extras.fix) == ("hint", "pip install 'frossl[wandb,hf]'")
    monkeypatch.setitem(sys.modules, "frossl.augment.fused", None)  # its import fails
    assert environment.check_view_kernel().level == "problem"
    monkeypatch.setitem(sys.modules, "numba", None)
    kernel = environment.check_view_kernel()
    assert (kernel.level, kernel.fix) == ("hint", "pip install 'frossl[fast]'")


def test_too_many_threads_are_as_bad_as_too_few(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    found = hardware.check_threads(Hardware("", "", "", 2, 2.0, cores().threads + 3, None, None))
    assert (found.level, found.fix) == ("hint", thread_fix())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("device", ["tpu", "cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_in_a_line(device):
    if device != "tpu" and (torch.cuda.is_available() or torch.backends.mps.is_available()):
        pytest.skip("it is there")
    with pytest.raises(ConfigError, match=f"device = '{device}' cannot work"):
        doctor(device=device)


# computing


def broken(name: str, monkeypatch, change) -> None:
    """Let an objective be another one, where it is computed in float32."""
    real = OBJECTIVES[name].function

    def function(z, **options):
        terms = real(z, **options)
        return LossTerms(change(terms.total), terms.parts) if z.dtype == torch.float32 else terms

    function.__signature__ = selftest.inspect.signature(real)
    monkeypatch.setattr(OBJECTIVES[name], "function", staticmethod(function))


def test_losses_are_good_here_and_every_objective_is_asked(monkeypatch):
    assert selftest.losses("cpu").passed
    asked = set()
    real = selftest._loss
    monkeypatch.setattr(selftest, "_loss", lambda name, z: (asked.add((name, z.dtype)), real(name, z))[1])
    selftest.losses("cpu")
    assert asked == {(name, dtype) for name in OBJECTIVES for dtype in (torch.float32, torch.float64)}


@pytest.mark.parametrize(
    "change",
    [
        lambda total: total * 1.01,
        lambda total: total + 0.01 * (total - total.detach()),  # the gradient alone
        lambda total: total * torch.nan,
    ],
)
@pytest.mark.parametrize("name", ["frossl", "simclr"])
def test_a_loss_that_is_off_by_a_hundredth_is_a_problem(name, change, monkeypatch):
    broken(name, monkeypatch, change)
    found = selftest.losses("cpu")
    assert not found.passed
    assert found.detail.startswith(f"{name} off")


@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_views_are_good_here_and_a_pixel_off_by_a_hundredth_is_a_problem(kernel, monkeypatch):
    import frossl.augment.fused as fused

    monkeypatch.setattr(engine, "best_view_kernel", lambda device: kernel)
    good = selftest.views("cpu")
    assert good.passed, good.detail
    assert f"by {kernel}" in good.detail
    place = (fused, "fused_views") if kernel == "numba" else (selftest, "make_views")
    real = getattr(*place)

    def off(*arguments, **options):
        views = real(*arguments, **options)
        views[0, 0, 0, 5, 5] += 1e-2
        return views

    monkeypatch.setattr(*place, off)
    assert not selftest.views("cpu").passed


def test_a_step_is_repeatable_here_and_one_bit_is_a_problem(monkeypatch):
    assert selftest.step("cpu").passed
    real, steps = selftest.train_step, []

    def other(batch, state, clock):
        steps.append(clock)
        result = real(batch, state, clock)
        if len(steps) == 4:
            first = next(state.method.parameters()).detach()[0, 0, 0]
            first.copy_(torch.nextafter(first, torch.tensor(torch.inf)))
        return result

    monkeypatch.setattr(selftest, "train_step", other)
    found = selftest.step("cpu")
    assert not found.passed
    assert "1 of" in found.detail


def test_whatever_a_device_raises_is_a_finding(monkeypatch):
    def failing(device):
        raise RuntimeError("device-side assert\nmany more lines")

    found = examine._run("title", failing, "cpu")
    assert found == Finding("problem", "title", "RuntimeError: device-side assert")


def pairs() -> list[str]:
    """Processes of the gather self-test that are still there."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_text(errors="replace").split("\0")
        except OSError:
            continue
        if "frossl.health.two_processes" in words and "1" in words:
            found.append(file.parent.name)
    return found


def test_processes_that_take_too_long_are_ended_and_named(monkeypatch):
    monkeypatch.setattr(selftest, "TWO_PROCESSES_TIMEOUT", 1)
    found = selftest.gather("cpu")
    assert not found.passed
    assert "did not connect and finish within 1 s" in found.detail
    assert pairs() == []


def test_processes_that_fail_are_a_finding_with_their_last_word(tmp_path, monkeypatch):
    write(tmp_path, {"torch.py": "raise ImportError('no torch today')"})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    found = selftest.gather("cpu")
    assert not found.passed
    assert "no torch today" in found.detail


@pytest.mark.slow
def test_all_is_well_here_by_computing(monkeypatch):
    monkeypatch.setenv("RANK", "3")  # a launcher's, whose processes these are not
    found = doctor(self_test=True, device="cpu")
    tried = found.findings[-len(selftest.SELF_TESTS) :]
    assert [finding.title for finding in tried] == list(selftest.SELF_TESTS)
    assert all(finding.level == "ok" for finding in tried), tried
    assert found.tested == "cpu"


def test_former_names_of_the_self_test_are_accepted(monkeypatch, capsys):
    monkeypatch.setattr(examine, "SELF_TESTS", {})
    with pytest.warns(DeprecationWarning, match="test= is now self_test="):
        assert doctor(test=True, device="cpu").tested == "cpu"
    for option, tested in (("--self-test", "cpu"), ("--test", "cpu"), ("--json", None)):
        _, out, _ = call(monkeypatch, capsys, "doctor", option, "--device", "cpu", "--json")
        assert json.loads(out)["tested"] == tested


# showing

FOUND = DoctorReport(
    {"python": "3.11", "torch": "2.13.0", "numba": None},
    Hardware("Linux", "A [bold]CPU[/bold]", "AVX2", 64, 2.5, 1, 10**9, None),
    (Accelerator("cuda", "A GPU [of red]", 8 * 10**9, 7 * 10**9, False),),
    None,
    (
        Finding("ok", "fine"),
        Finding("hint", "slow [red]", "because " * 30, "export X=" + "long" * 40),
        Finding("problem", "broken", "", "unset Y"),
    ),
)


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_shown_is_plain_and_complete_and_commands_are_whole(width):
    file = io.StringIO()
    show(FOUND, Console(file=file, width=width))
    text = file.getvalue()
    lines = text.splitlines()
    for literal in ("A [bold]CPU[/bold]", "A GPU [of red]", "slow [red]", "2.5 usable", "1 problem, 1 hint"):
        assert literal in text
    assert "\x1b" not in text
    assert "numba" not in text
    assert {"unset Y", "export X=" + "long" * 40} <= set(lines)
    assert all(len(line) <= width and line == line.rstrip() for line in lines if "long" not in line)
    marks = [line.split()[0] for line in lines if line.startswith(("ok", "hint", "problem"))]
    assert marks == ["problem", "hint", "ok"]  # worst first, and in words
