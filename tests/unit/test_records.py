"""Records of a run: formats, unknown keys, what is computed from them in one place."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frossl.reporting.compare import compare_runs
from frossl.reporting.run_data import RunData
from frossl.runs import DiagnosticRecord, EvaluationRecord, RunFolder, Status, StepRecord
from frossl.runs.json_lines import JsonLines
from frossl.runs.outcome import headline_knn
from frossl.runs.records import FORMAT, newest_evaluations
from tests.support.reports import write_run

KINDS = (StepRecord, DiagnosticRecord, EvaluationRecord, Status)
VALID = {
    StepRecord: {"step": 3, "seconds": 1.5, "loss": -1.0},
    DiagnosticRecord: {"step": 3, "z_rank": 2.0},
    EvaluationRecord: {"step": 3, "protocol": "kNN, k 20", "percent": {"trained": 50.0}},
    Status: {"step": 3, "state": "running", "total": 9},
}
NAMES = st.text("abcdefgh", min_size=3, max_size=6)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_a_later_version_are_kept_and_known_ones_are_read(kind):
    stored = VALID[kind] | {"format": FORMAT + 1, "later": {"nested": [1, None]}}
    record = kind.parse(stored)
    assert record == stored
    assert record.format == FORMAT + 1
    assert record.step == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_without_a_format_is_of_the_first(kind):
    assert kind.parse(VALID[kind]).format == 1
    assert kind.new(VALID[kind]).format == kind.new(VALID[kind] | {"format": 1}).format == FORMAT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [None, "x", -1, 1.5, True, [], {}])
def test_a_step_that_is_no_count_is_not_valid(kind, wrong):
    with pytest.raises(ValueError, match="step"):
        kind.parse(VALID[kind] | {"step": wrong})


@given(
    parts=st.dictionaries(NAMES, st.floats(-1e3, 1e3), min_size=2, max_size=5),
    extras=st.dictionaries(NAMES, st.floats(-1e3, 1e3), max_size=3),
)
def test_parts_of_the_loss_are_those_that_were_stored(parts, extras):
    extras = {name: value for name, value in extras.items() if name not in parts}
    terms = {"loss": sum(parts.values()), **parts, **extras}
    record = StepRecord.of({"step": 1, "seconds": 0.5}, terms, parts)
    again = StepRecord.parse(json.loads(json.dumps(record)))
    assert again.parts == parts
    assert again.terms == {**parts, **extras}
    assert again.loss == terms["loss"]


def test_a_part_cannot_take_the_place_of_a_key_of_the_record():
    record = StepRecord.of(
        {"step": 7, "seconds": 2.0}, {"loss": 3.0, "step": 1.0, "other": 2.0}, ["step", "other"]
    )
    assert (record.step, record.parts) == (7, {"other": 2.0})


def test_parts_of_the_first_format_are_the_terms_that_sum_to_the_loss():
    old = {"step": 1, "seconds": 0.1, "loss": 3.0, "invariance": 1.0, "variance": 2.0, "accuracy": 7.0}
    assert StepRecord.parse(old).parts == {"invariance": 1.0, "variance": 2.0}
    assert StepRecord.parse(old | {"loss": 4.0}).parts == {}


def test_numbers_for_loggers_hold_neither_step_nor_format():
    record = StepRecord.new({"step": 4, "loss": math.inf, "seconds": 1, "name": "x", "is": True})
    assert record.numbers() == {"loss": math.inf, "seconds": 1}


def test_what_is_kept_of_a_file_keeps_its_bytes(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl", StepRecord)
    texts = [f'{{"seconds":  {step}.50, "step": {step}, "later": [{step}]}}\n' for step in range(5)]
    lines.path.write_text("".join(texts) + "torn\n")
    assert lines.lines(lambda record: record.step < 3) == "".join(texts[:3])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("st")),
        max_size=12,
    ),
    st.none() | st.integers(0, 2),
)
def test_the_newest_evaluations_are_those_that_no_later_one_replaces(given_records, step):
    records = [
        EvaluationRecord({"step": s, "protocol": p, "data": d, "split": split, "percent": {}, "number": i})
        for i, (s, p, d, split) in enumerate(given_records)
    ]
    of_step = [record for record in records if step is None or record["step"] == step]
    for names in (("protocol", "data"), ("protocol", "data", "split")):
        expected = [
            record
            for i, record in enumerate(of_step)
            if not any(all(later[name] == record[name] for name in names) for later in of_step[i + 1 :])
        ]
        assert newest_evaluations(records, step=step, by_split="split" in names) == expected


def test_all_readers_agree_on_the_seconds_of_a_run(tmp_path):
    """The last record of diagnostics is later than that of the last step."""
    run = write_run(tmp_path / "run")
    folder = RunFolder(run)
    last = [*folder.metrics][-1]
    folder.diagnostics.append(DiagnosticRecord.new({"step": last.step, "seconds": last["seconds"] + 1.25}))
    seconds = last["seconds"] + 1.25
    assert folder.training_seconds() == seconds
    assert RunData.read(run).seconds == seconds
    assert compare_runs([run]).arms[0].runs[0].seconds == seconds


def evaluation(protocol: str, percent: float, **others: object) -> EvaluationRecord:
    interval = {"trained": [percent - 1, percent + 1]}
    stored = {"step": 400, "protocol": protocol, "percent": {"trained": percent}, "interval": interval}
    return EvaluationRecord({**stored, **others})


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        (["kNN, k 20, brief"], "kNN, k 20, brief"),
        (["kNN, k 20", "kNN, k 20, brief"], "kNN, k 20"),
        (["kNN, k 200", "kNN, k 20"], "kNN, k 20"),
        (["kNN, k 5", "kNN, k 20", "kNN, k 200"], "kNN, k 20"),
        (["kNN, k 200", "kNN, k 50"], "kNN, k 50"),
        (["probe, all labels"], None),
    ],
)
def test_one_knn_record_stands_for_a_run_in_whatever_order_they_were_measured(protocols, expected):
    for order in (protocols, protocols[::-1]):
        found = headline_knn(evaluation(protocol, 40.0) for protocol in order)
        assert (found and found.protocol) == expected


def test_runs_are_compared_by_what_was_measured_last(tmp_path):
    """Also if it was measured by version 0.1.0 before, whose records name no split."""
    run = write_run(tmp_path / "run")
    folder = RunFolder(run)
    folder.evaluation.path.unlink()
    old = "20% of the labelled images, held out by a hash"
    folder.evaluation.append(evaluation("kNN, k 20", 40.0, note=old))
    folder.evaluation.append(evaluation("probe, all labels", 50.0, split="hash"))
    folder.evaluation.append(evaluation("kNN, k 20", 44.0, split="hash"))
    found = compare_runs([run])
    assert (found.protocol, found.arms[0].percent) == ("kNN, k 20", 44.0)
