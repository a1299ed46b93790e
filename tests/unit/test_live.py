"""What a person sees of a run, from records: no terminal is needed."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from frossl.errors import InputError
from frossl.live import Dashboard, Frame, NonBlockingConsole, PlainLines, RunView, screen, watch
from frossl.live.follow import Follower, Tail
from frossl.runs import DiagnosticRecord, RunFolder, StepRecord
from frossl.runs.json_lines import JsonLines
from frossl.runs.records import Record
from frossl.text import clock, number, sanitize

DIAGNOSTIC_KEYS = {
    "z_rank": 22.4,
    "features_rank": 11.2,
    "knn": 41.3,
    "tested": 500,
    "probe": 39.9,
    "probe_views": 30.1,
    "share": 0.012,
}
HOSTILE = "<b>[red]\n\x1b[2J\u202egnp.exe\udcff\u2028é猫"


def record(step: int, *, loss: float = -2.0, pace: float = 0.1, **others: float) -> StepRecord:
    numbers = {
        "step": step,
        "epoch": step // 39,
        "lr": 0.003,
        "loss": loss,
        "invariance": 1.5,
        "variance": -3.5,
    }
    speed = {"seconds": step * pace, "images_per_second": 888.2, "memory_gb": 0.9}
    return StepRecord({**numbers, "effective_rank": 22.4, **speed, **others})


def diagnostic(step: int, kind: str, reason: str = "", advice: str = "") -> DiagnosticRecord:
    verdict = {"verdict": kind, "reason": reason, "advice": advice}
    return DiagnosticRecord({**DIAGNOSTIC_KEYS, "step": step, "seconds": 0.1 * step, **verdict})


def told(*, steps: int = 400, total: int = 1716, title: str = "runs/photos") -> RunView:
    """A view in the middle of a run."""
    view = RunView(title=title, about="frossl  resnet18", largest_rank=128, epochs=44)
    for step in range(10, steps + 1, 10):
        view.step(step, total, record(step, loss=-2 - step / 200, ms_forward=30.0, ms_backward=60.0))
    view.diagnostic(diagnostic(100, "warming up", "step 100 of the first 172"))
    view.diagnostic(diagnostic(250, "learning", "the loss falls, from -2.5 to -3.1 since step 125"))
    view.note("checkpoint", step=300)
    return view


def drawn(view: RunView, width: int, height: int, *, encoding: str = "utf-8") -> list[str]:
    """The frame's lines, as a terminal of that size and encoding would get them."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    Console(file=file, width=width, height=height).print(Frame(view))
    file.flush()
    return file.buffer.getvalue().decode(encoding).split("\n")[:-1]


def test_the_plain_line_is_the_documented_one():
    view = RunView(largest_rank=128)
    view.step(10, 1716, record(10, loss=-1.9791, seconds=1.443))
    view.diagnostic(DiagnosticRecord({**DIAGNOSTIC_KEYS, "step": 10, "verdict": "warming up"}))
    line = "step 10/1716  4:06 left  loss -1.979  rank 22/128  888 images/s  warming up"
    assert view.line() == line


@given(width=st.integers(1, 200), height=st.integers(1, 60), steps=st.integers(0, 60), bad=st.booleans())
@settings(deadline=None)
def test_a_frame_never_leaves_its_room(width, height, steps, bad):
    view = told(steps=10 * steps, title=HOSTILE * 3)
    if bad:
        view.diagnostic(diagnostic(600, "collapsing", "all images are one point " * 5, "more weight " * 20))
        view.silence = 200.0
    lines = drawn(view, width, height)
    assert len(lines) <= max(1, height - 1)
    assert all(cell_len(line) <= width for line in lines)
    assert all(unicodedata.category(c)[0] not in "C" for line in lines for c in line)


def test_a_length_in_steps_may_change_so_epochs_have_no_end(run):
    assert RunView.of(run).epochs == 44
    run.write_text("config.toml", "[train]\nepochs = 44\nsteps = 1716\n")
    view = told()
    view.epochs = RunView.of(run).epochs
    everything = "\n".join(drawn(view, 120, 36))
    assert "epoch 11" in everything
    assert "epoch 11 of" not in everything


def test_what_matters_most_stays_longest():
    """As rows go, so do lines, panels and blanks; step, verdict, loss and rank are the last to go."""
    view = told()
    everything = "\n".join(drawn(view, 120, 36))
    for words in (
        "runs/photos", "resnet18", "step 400 of 1,716", "2:11 left", "0:40 elapsed", "epoch 11 of 44",
        "learning", "the loss falls", "loss", "invariance", "variance", "22/128", "kNN", "41.3%", "probe",
        "39.9%", "888 images/s", "100 ms/step", "backward 67%", "forward 33%", "checkpoint",
    ):  # fmt: skip
        assert words in everything, words
    smaller = [set(" ".join(drawn(view, 120, rows)).split()) for rows in range(36, 4, -1)]
    for before, after in itertools.pairwise(smaller):
        assert after <= before
    for width, height in ((120, 6), (44, 6), (40, 10)):
        small = "\n".join(drawn(view, width, height))
        assert all(words in small for words in ("step 400", "learning", "loss", "22/128"))
    assert drawn(view, 120, 3) == [view.line()]


def test_numbers_stand_below_one_another():
    lines = drawn(told(), 60, 36)
    rows = [
        line
        for line in lines
        if line.split() and line.split()[0] in ("loss", "invariance", "variance", "kNN")
    ]
    ends = {len(line) - len(line[13:].lstrip()) + len(line[13:].split()[0]) for line in rows}
    assert len(rows) == 4
    assert len(ends) == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_other_terminals_get_ascii(encoding):
    assert "".join(drawn(told(title=HOSTILE), 120, 36, encoding=encoding)).isascii()


def test_the_verdict_is_worded_as_well_as_colored():
    view = told()
    view.diagnostic(diagnostic(410, "collapsing", "dimensionally: rank 1.2 left", "try a larger batch"))

    def written(**options: bool) -> str:
        console = Console(
            file=io.StringIO(), width=100, height=30, force_terminal=True, color_system="standard", **options
        )
        console.print(Frame(view))
        return console.file.getvalue()

    assert "\x1b[1;31mcollapsing" in written()
    assert "\x1b[1mcollapsing" in written(no_color=True)  # NO_COLOR
    for text in ("dimensionally: rank 1.2 left", "try a larger batch"):
        assert text in written(no_color=True)
    codes = {part.partition("m")[0] for part in written().split("\x1b[")[1:]}
    assert {code for c in codes for code in c.split(";") if code.startswith(("3", "4", "9"))} <= {"31", "32"}


def test_the_curve_falls_where_the_loss_falls_and_stays_small():
    view = RunView(largest_rank=1)
    for step in range(1, 20_001):
        view.step(step, 20_000, StepRecord(step=step, loss=-float(step), seconds=step / 100))
    assert len(view.losses) <= 512
    assert len(view.times) <= 512
    assert view.losses[-1] == (20_000, -20_000.0)
    line = next(line for line in drawn(view, 60, 20) if line.startswith("loss"))
    curve = line.split()[-1]
    assert len(curve) > 20
    assert list(curve) == sorted(curve, reverse=True)
    assert {curve[0], curve[-1]} == {"█", "▁"}


@example(values=[2.1528938816201462e299, -1.797693132709422e308])
@given(values=st.lists(st.floats(), max_size=50))
def test_any_loss_can_be_drawn(values):
    view = RunView(largest_rank=8)
    for step, value in enumerate(values, 1):
        view.step(step, 100, StepRecord(loss=value, effective_rank=value))
    drawn(view, 80, 24)


def test_a_rank_that_is_not_finite_is_not_shown():
    view = RunView(largest_rank=8)
    view.step(10, 100, StepRecord(step=10, seconds=1.0))
    view.diagnostic(DiagnosticRecord(step=10, z_rank=float("nan")))
    assert view.rank is None
    assert "rank" not in view.line()


class TestTimeLeft:
    def test_is_that_of_the_recent_speed(self):
        view = RunView()
        for step in range(10, 1001, 10):
            view.step(step, 2000, StepRecord(seconds=step * 0.1 if step <= 500 else 50 + (step - 500) * 0.4))
        assert view.remaining() == pytest.approx(1000 * 0.4, rel=0.02)

    def test_does_not_jump(self):
        """One record in ten that takes three times as long moves it by less than a tenth."""
        view, seconds, seen = RunView(), 0.0, []
        for step in range(10, 3001, 10):
            seconds += 3.0 if step % 100 == 0 else 1.0
            view.step(step, 100_000, StepRecord(seconds=seconds))
            seen.append(view.seconds_per_step())
        late = seen[100:]
        assert max(abs(b / a - 1) for a, b in itertools.pairwise(late)) < 0.05
        assert max(late) / min(late) < 1.1

    def test_of_a_resumed_run_is_that_of_this_sitting(self, run):
        for step in range(10, 101, 10):
            run.metrics.append(record(step, seconds=step * 9.0))
        view = Follower(run).view(up_to=95)
        assert view.now == 95
        assert view.remaining() is None
        view.step(105, 205, StepRecord(seconds=90 * 9 + 2.0))
        assert view.remaining() == pytest.approx(100 * 0.2)
        assert [step for step, _ in view.losses] == list(range(10, 91, 10))

    def test_in_words(self):
        assert [clock(s) for s in (0, 59.9, 246, 3600, 7446, 172800)] == [
            "0:00", "0:59", "4:06", "1:00:00", "2:04:06", "2 d 0 h",
        ]  # fmt: skip
        assert [number(v) for v in (-1.9791, 0, 20.8784, 1234.56, 2.5e6, 1e-5)] == [
            "-1.979", "0.000", "20.878", "1,234.6", "2.5e+06", "1e-05",
        ]  # fmt: skip


@given(st.text(max_size=30))
@settings(max_examples=50)
def test_harmless_text_has_nothing_to_steer_a_terminal_with(text):
    shown = sanitize(text)
    assert shown.isprintable() or all(unicodedata.category(c) == "Zs" for c in shown if not c.isprintable())
    assert sanitize(shown) == shown
    assert "\n" not in shown


def test_changes_of_the_verdict_are_told_once_and_bad_ones_in_plain_lines_too():
    console = Console(file=io.StringIO(), width=80)
    view = RunView()
    lines = PlainLines(console, view)
    for step, kind in enumerate(
        ["warming up", "learning", "learning", "collapsing", "collapsing", "learning", "saturated"], 1
    ):
        lines.diagnostic(diagnostic(step, kind, f"why {step}"))
    lines.diagnostic(DiagnosticRecord(step=9, mine=1.0))  # of a watch of the user
    assert [(line.step, line.text) for line in view.lines] == [
        (2, "learning: why 2"), (4, "collapsing: why 4"), (6, "learning: why 6"), (7, "saturated: why 7"),
    ]  # fmt: skip
    assert console.file.getvalue().splitlines() == ["step 4: collapsing: why 4", "step 6: learning: why 6"]
    assert view.verdict == "saturated: why 7"


def test_markup_and_controls_in_what_is_told_are_only_text():
    console = Console(file=io.StringIO(), width=20)
    PlainLines(console, RunView()).message(HOSTILE)
    (line,) = console.file.getvalue().splitlines()
    assert line == "<b>[red]\\n\\x1b[2J\\u202egnp.exe\\udcff\\u2028é猫"


class Terminal(io.StringIO):
    """A terminal that can be told to fail, or to take no more."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.writers: set[int] = set()
        """Threads that wrote."""
        self.free = threading.Event()
        self.free.set()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writers.add(threading.get_ident())
        self.free.wait(20)
        if self.error is not None:
            raise self.error
        return super().write(text)


def on(terminal: Terminal, *, width: int = 100, height: int = 30) -> Console:
    return NonBlockingConsole(file=terminal, width=width, height=height, force_terminal=True)


def test_the_last_frame_and_what_must_not_be_overlooked_stay():
    terminal = Terminal()
    with Dashboard(on(terminal), told()) as shown:
        shown.message("a line of [long] ago")
        for i in range(8):
            shown.note(f"note {i}")
        shown.step(1716, 1716, record(1716))
    end = terminal.getvalue()
    assert end.count("a line of [long] ago") == 1
    assert "step 1,716 of 1,716" in end
    assert end.rindex("note 7") > end.rindex("step 1,716 of 1,716")
    assert "note 1" not in end[end.rindex("step 1,716 of 1,716") :]
    assert end.endswith("\x1b[?25h")  # the cursor is back
    assert sys.stderr is not terminal


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "gone"), OSError(5, "Input/output error"), ValueError("closed file")]
)
def test_a_terminal_that_goes_away_does_not_end_a_run(error):
    terminal, streams = Terminal(), (sys.stdout, sys.stderr)
    with Dashboard(on(terminal), told()) as shown:
        terminal.error = error
        time.sleep(0.7)
        shown.step(1000, 1716, record(1000))
        shown.message("still here")
    assert (sys.stdout, sys.stderr) == streams
    assert shown.console.quiet


def test_a_terminal_that_takes_no_more_does_not_hold_a_run():
    terminal, streams = Terminal(), (sys.stdout, sys.stderr)
    with Dashboard(on(terminal), told()) as shown:
        time.sleep(0.2)
        terminal.free.clear()
        time.sleep(0.7)

        def train() -> None:
            for step in range(1000):
                shown.step(step, 1716, record(step))
                shown.message("still here")

        run = threading.Thread(target=train, daemon=True)
        run.start()
        run.join(15)  # the terminal takes no text for 20 s
        assert not run.is_alive()
    assert (sys.stdout, sys.stderr) == streams
    terminal.free.set()


def test_a_resized_terminal_is_cleared_before_it_is_drawn_anew():
    terminal = Terminal()
    console = on(terminal)
    with Dashboard(console, told()):
        time.sleep(0.2)
        console.width = 60
        time.sleep(0.7)
    before, _, after = terminal.getvalue().partition("\x1b[2J")
    assert "resnet18" in before
    assert "step 400 of 1,716" in after
    assert terminal.getvalue().count("\x1b[2J") == 1


def test_the_thread_of_the_run_draws_nothing():
    terminal = Terminal()
    with Dashboard(on(terminal), told()) as shown:
        time.sleep(0.2)
        terminal.writers.clear()
        for step in range(20):
            shown.step(step, 2000, record(step))
            time.sleep(0.05)
        writers = set(terminal.writers)
    assert writers
    assert threading.get_ident() not in writers


# ---------------------------------------------------------------- run folders


@pytest.fixture
def run(tmp_path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run [red]")
    folder.write_text(
        "config.toml",
        '[data]\nsource = "photos"\n[network]\nbackbone = "resnet18"\nprojector_out = 256\n'
        '[objective]\nmethod = "vicreg"\n[train]\nepochs = 44\nbatch_size = 128\n',
    )
    folder.write_json("provenance.json", {"images": 100})
    folder.write_status("running", step=0, total=1716)
    return folder


def out_of(run: RunFolder, **options: object) -> list[str]:
    """What `watch` prints where there is no terminal."""
    console = NonBlockingConsole(file=io.StringIO(), width=80)
    watch(run.path, console=console, **options)
    return console.file.getvalue().splitlines()


def test_a_tail_reads_what_was_appended_in_whole_lines_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail, seen = Tail(JsonLines(path, Record)), []
    assert tail.read() == []
    text = b"".join(json.dumps(record(step)).encode() + b"\n" for step in range(1, 40))
    text += b'damaged{\n[1]\n{"step": "x"}\n' + json.dumps({"step": 40, "name": "\udcff"}).encode() + b"\n"
    for cut in range(0, len(text), 97):  # torn anywhere
        with path.open("ab") as file:
            file.write(text[cut : cut + 97])
        seen += tail.read()
    assert [r["step"] for r in seen] == list(range(1, 41))
    assert tail.read() == []
    assert not tail.replaced
    assert tail.offset == len(text)


def test_a_tail_reads_no_more_than_is_new(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    path.write_text((json.dumps(record(1)) + "\n") * 20_000)
    lines = JsonLines(path, Record)
    tail = Tail(lines)
    assert len(tail.read()) == 20_000
    with path.open("a") as file:
        file.write(json.dumps(record(2)) + "\n")
    seen = []
    monkeypatch.setattr(lines, "parse", lambda line: seen.append(line) or Record(step=2))
    assert len(tail.read()) == len(seen) == 1


def test_once_says_where_a_run_is(run):
    assert out_of(run, once=True) == ["step 0/1716"]
    for step in (10, 20):
        run.metrics.append(record(step))
    run.diagnostics.append(diagnostic(20, "warming up"))
    with run.metrics.path.open("a") as file:
        file.write('{"step": 30, "lo')
    assert out_of(run, once=True) == [
        "step 20/1716  2:49 left  loss -2.000  rank 22/100  888 images/s  warming up"
    ]


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("finished", "", "finished, at step 41 of 1716"),
        ("stopped", "SIGINT", "stopped by SIGINT, at step 41 of 1716"),
        ("failed", "all images\nare one point", "failed: all images\\nare one point, at step 41 of 1716"),
    ],
)
def test_a_run_that_has_ended_is_shown_once(run, state, reason, words):
    run.metrics.append(record(40))
    verdict = {"kind": "learning", "reason": "the loss falls", "advice": ""}
    run.write_status(state, step=41, total=1716, reason=reason, verdict=verdict)
    line, *said, last = out_of(run)
    assert line.startswith("step 41/1716")
    assert line.endswith("learning")
    assert said == (["learning: the loss falls", "accuracy not measured"] if state == "finished" else [])
    assert last == words
    shown = "\n".join(drawn(Follower(run).view(), 100, 30))
    for text in (
        words.partition(", at")[0],
        "learning  the loss falls",
        "vicreg  resnet18  100 images  photos",
    ):
        assert text in shown


def test_what_a_finished_run_came_to_is_shown_above_its_last_look(run):
    run.metrics.append(record(40))
    run.diagnostics.append(diagnostic(40, "learning", "the loss falls"))
    rows = {"pixels": 60.0, "untrained": 30.0, "trained": 40.0}
    interval = {row: [percent - 3, percent + 3] for row, percent in rows.items()}
    run.evaluation.append(
        {"step": 41, "data": "photos", "protocol": "kNN, k 20, brief", "images": 1000, "percent": rows,
         "interval": interval}
    )  # fmt: skip
    verdict = {"kind": "learning", "reason": "the loss falls", "advice": ""}
    run.write_status("finished", step=41, total=1716, verdict=verdict)
    line, said, training, _ = out_of(run)
    assert line.endswith("no better than pixels")
    assert said.startswith("no better than pixels: kNN is right on 40.0% of 1,000 test images")
    assert training == "while training: learning: the loss falls"
    shown = "\n".join(drawn(Follower(run).view(), 100, 30))
    assert "no better than pixels  kNN is right on 40.0%" in shown
    assert "while training: learning" in shown


def test_news_are_followed_to_the_end(run):
    """Looks, records and a status that come in while somebody watches; the last record is never missed."""

    def live() -> None:
        time.sleep(0.7)
        for step in range(10, 60, 10):
            run.metrics.append(record(step))
        run.diagnostics.append(diagnostic(50, "warming up"))
        time.sleep(0.7)
        run.diagnostics.append(diagnostic(60, "diverging", "the loss is nan", "a lower rate"))
        run.metrics.append(record(60))
        run.write_status("failed", step=61, total=1716, reason="step 61 is not finite")

    thread = threading.Thread(target=live)
    thread.start()
    lines = out_of(run)
    thread.join()
    assert lines[0] == "step 0/1716"
    assert any(line.startswith("step 10/1716") for line in lines)
    assert lines[-3] == "step 60: diverging: the loss is nan; a lower rate"
    assert lines[-2].startswith("step 61/1716")
    assert lines[-1] == "failed: step 61 is not finite, at step 61 of 1716"


def test_a_run_that_goes_on_is_read_anew(run):
    for step in range(10, 101, 10):
        run.metrics.append(record(step, loss=7.0))
    follower = Follower(run)
    shown = PlainLines(NonBlockingConsole(file=io.StringIO(), width=80), follower.view())
    assert shown.view.now == 100
    run.truncate_after(50)  # as `resume` does
    run.metrics.append(record(60, loss=8.0))
    follower.update(shown)
    assert (shown.view.now, shown.view.record["loss"]) == (60, 8.0)
    assert len(shown.view.losses) == 6


def test_checkpoints_and_bad_files_are_noted_when_they_come(run):
    follower = Follower(run)
    shown = PlainLines(NonBlockingConsole(file=io.StringIO(), width=80), follower.view())
    run.write_text("checkpoints/step-00000300.pt", "")
    run.write_text("bad_files.txt", "'a'\t'b'\n'c'\t'd'\n")
    follower.update(shown)
    follower.update(shown)
    assert [(line.step, line.text) for line in shown.view.lines] == [
        (0, "2 files could not be read: bad_files.txt"), (300, "checkpoint"),
    ]  # fmt: skip


def test_silence_is_said_and_ends_with_news(run):
    run.metrics.append(record(10, pace=0.01))
    for path in (run.metrics.path, run.path / "status.json"):
        os.utime(path, (time.time() - 200, time.time() - 200))
    assert out_of(run, once=True)[-1] == "no new records for 3:20, at step 10 of 1716"
    follower = Follower(run)
    view = follower.view()
    assert follower.silence(view, 30) == pytest.approx(200, abs=5)
    assert "no new records for 3:2" in "\n".join(drawn(view, 80, 24))
    run.metrics.append(record(20, pace=100.0))  # ten steps take minutes: nothing to worry about
    follower.update(PlainLines(NonBlockingConsole(file=io.StringIO()), view))
    follower.metrics.changed -= 200
    assert follower.silence(view, 30) == 0


def test_a_run_that_is_still_being_made_is_waited_for(run):
    (run.path / "status.json").unlink()
    assert out_of(run, once=True) == ["waiting for the first step"]
    assert "waiting for the first step" in drawn(Follower(run).view(), 80, 24)


def test_a_folder_that_is_not_there_or_goes_is_an_input_error(run, tmp_path):
    with pytest.raises(InputError, match="no run at"):
        watch(tmp_path / "never")
    follower = Follower(run)
    shown = PlainLines(NonBlockingConsole(file=io.StringIO()), follower.view())
    run.path.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="gone"):
        follower.update(shown)


def test_a_reader_that_leaves_ends_the_watching(run):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    watch(run.path, console=NonBlockingConsole(file=Gone(), width=80))


def test_the_screen_of_a_run_is_chosen_by_where_it_is_shown(run, monkeypatch):
    terminal = Terminal()
    assert isinstance(screen(on(terminal), run), Dashboard)
    assert isinstance(
        screen(Console(file=io.StringIO(), force_terminal=True), run), PlainLines
    )  # FORCE_COLOR
    assert isinstance(screen(Console(file=terminal, force_terminal=True, quiet=True), run), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(screen(on(terminal), run), PlainLines)


def test_watching_imports_nothing_heavy(run):
    code = (
        "import sys; from frossl.cli.reports import watch; watch(sys.argv[1], once=True);"
        "sys.exit(str({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, run.path], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
    assert done.stdout == "step 0/1716\n"
