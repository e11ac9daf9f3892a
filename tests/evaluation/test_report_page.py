"""The page: self-contained, escaped, accessible; trails, plots, texts and what is refused."""

import json
import re
import struct

import pytest
from report_runs import GOOD_ROWS, POOR_ROWS, Page, row, write_data, write_run

from pace_dspy.cli import main
from pace_dspy.errors import ConfigError, DataError
from pace_dspy.evaluation.report import build_report
from pace_dspy.evaluation.report.figures import DPI, WIDE_IN
from pace_dspy.evaluation.store import RESULTS_NAME, STORE_NAME, RunStore

HOSTILE = '</bdi></li><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} & "quoted" \u202eback\x07'


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


@pytest.fixture
def run(tmp_path, data):
    return write_run(tmp_path / "run", GOOD_ROWS, data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    data = write_data(folder)
    return build([write_run(folder / "run", GOOD_ROWS, data)], folder, data=str(data))[1]


def build(runs, tmp_path, **options):
    out = tmp_path / "out" / "report.html"
    made = build_report(runs, out, **options)
    return made, Page(out.read_text(encoding="utf-8"))


def test_hostile_texts_stay_text(tmp_path):
    data = write_data(tmp_path, f1=HOSTILE)
    rows = json.loads(json.dumps(GOOD_ROWS))
    rows[0]["response"] = HOSTILE
    rows[0]["trace"]["cues"][0] = {"direction": HOSTILE, "why": HOSTILE, "anchors": [HOSTILE]}
    rows[0]["trace"]["views"][1]["text"] = HOSTILE
    rows[1] = {**rows[1], "error": {"kind": "ServerError", "message": HOSTILE, "fatal": False}, "trace": None}
    run = write_run(tmp_path / "run", rows, data, verdicts=("PASS",) * 4)
    _, page = build([run], tmp_path, data=str(data))
    assert page.bad == []
    assert not page.attributes("script")
    assert all("onerror" not in attrs for _, attrs in page.tags)
    assert "<script>alert(1)</script>" in page.text  # as text, between tags
    assert "{{ 7 * 7 }}" in page.text
    assert "\x07" not in page.source
    # Every place that shows it isolates its direction.
    for before in re.findall(r"<(\w+)[^>]*>[^<]*&lt;/bdi&gt;", page.source):
        assert before in {"bdi"}


def test_lone_surrogates_do_not_stop_the_report(tmp_path, data):
    rows = json.loads(json.dumps(GOOD_ROWS))
    rows[0]["response"] = "cut \ud83d here"
    store_rows = [rows[0], *rows[1:]]
    run = write_run(tmp_path / "run", [], data)
    (run / STORE_NAME).unlink()
    (run / RESULTS_NAME).write_text("".join(json.dumps(one) + "\n" for one in store_rows), encoding="utf-8")
    _, page = build([run], tmp_path)
    assert "cut ? here" in page.text


def test_page_is_self_contained(page):
    links = [attrs.get(name) for _, attrs in page.tags for name in ("src", "href", "srcset") if attrs.get(name)]
    assert links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not page.attributes("script")
    assert not page.attributes("link")
    assert "url(" not in page.source.partition("</style>")[0]
    policy = next(attrs["content"] for attrs in page.attributes("meta") if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")


def test_page_is_accessible(page):
    assert page.bad == []
    assert page.attributes("html")[0]["lang"] == "en"
    assert all(len(attrs["alt"]) > 40 for attrs in page.attributes("img"))
    assert all(attrs.get("scope") in {"col", "row"} for attrs in page.attributes("th"))
    assert len(page.attributes("caption")) == len(page.attributes("table"))
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"][1:] for attrs in page.attributes("a")}
    assert targets <= set(ids)
    named = {attrs["aria-labelledby"] for _, attrs in page.tags if attrs.get("aria-labelledby")}
    assert named <= set(ids)
    for rows in page.tables.values():
        assert {len(one) for one in rows} == {len(rows[0])}


def test_plots_are_files_beside_the_page_and_in_it(tmp_path, data):
    runs = [
        write_run(tmp_path / "a", GOOD_ROWS, data),
        write_run(tmp_path / "b$x$y", POOR_ROWS, data),
    ]
    made, page = build(runs, tmp_path, data=str(data))
    names = [path.name for path in made.plots]
    assert names == [
        "differences.png",
        "recall_at_10_by_group.png",
        "decision_accuracy_by_group.png",
        "coverage.png",
        "funnel.png",
    ]
    for path in made.plots:
        png = path.read_bytes()
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(b"\x89PNG")
        assert path.parent == tmp_path / "out" / "report_plots"
        assert width == round(WIDE_IN * DPI)
        assert height > 150
        assert len(png) > 5000
    assert len(page.attributes("img")) == len(page.attributes("source")) == len(names)


def test_trail_follows_the_request_through_every_stage(page):
    start = page.text.index("Asked on Wednesday 2026-03-18")
    text = page.text[start : page.text.index("Ask Rui for lunch.", start)]
    marks = [
        "Gold rationale. Maya eats no meat.",
        "Gold facts",
        "diet : a guest may not eat it",
        "Views and hits",
        "Dense: 2 facts, 1 gold, Sparse: 1 fact, 1 gold",
        "who eats no meat",
        "Fused list",
        "Seeds",
        "Hop 1: 1 fact, 0 gold",
        "Rui owes Ana a lunch. f5",
        "Evidence",
        "gold cited Maya has eaten no meat since spring. f1",
        "Decision conflict, right",
        "The answer is conflict.",
        "1.60 s, 1 model calls, 200 tokens read, 20 written",
    ]
    at = [text.find(mark) for mark in marks]
    assert -1 not in at, [mark for mark, place in zip(marks, at, strict=True) if place < 0]
    assert at == sorted(at)
    assert "Ana Reis" in page.text


def test_what_is_beyond_the_paper_is_shown_where_a_trace_has_it(tmp_path, data):
    rows = json.loads(json.dumps(GOOD_ROWS))
    rows[0]["trace"] |= {
        "channels": [{"channel": "time", "doc_ids": ["f4"]}],
        "looks": [
            {
                "selected": ["f1"],
                "follow_ups": ["where does Maya eat"],
                "hits": rows[0]["trace"]["hits"][:1],
                "pool": [],
            }
        ],
        "notes": [{"text": "20 March is a Friday", "doc_ids": ["f2"], "slack_minutes": None}],
    }
    _, page = build([write_run(tmp_path / "run", rows, data)], tmp_path, data=str(data))
    for text in ("Time: 1 fact, 0 gold", "where does Maya eat", "20 March is a Friday f2", "Round 1, selected"):
        assert text in page.text


def test_long_lists_are_cut_but_keep_their_gold(tmp_path, data):
    ids = [f"x{i}" for i in range(200)]
    rows = [row("tiny_a", "q000", evidence=[*ids, "f1", "f2"], decision="conflict")]
    _, page = build([write_run(tmp_path / "run", rows, data, method="full-kb")], tmp_path)
    assert "150 more facts, none of them gold" in page.text
    assert [attrs["value"] for attrs in page.attributes("li") if "value" in attrs] == ["201", "202"]
    assert " x49 " in page.text
    assert " x50 " not in page.text


def test_without_the_data_ids_are_shown_and_the_page_says_so(run, tmp_path):
    made, page = build([run], tmp_path)
    assert made.texts_missing == "the data 'tiny' is not at hand; name its folder with --data to see the texts"
    assert f"Facts are shown by id, without their texts: {made.texts_missing}." in page.text
    assert "Maya has eaten no meat since spring." not in page.text
    assert "gold cited f1" in page.text


def test_texts_of_other_data_are_not_shown(run, tmp_path):
    other = write_data(tmp_path / "other", f1="Maya eats everything.")
    made, page = build([run], tmp_path, data=str(other))
    assert "so its texts would mislead" in made.texts_missing
    assert "Maya eats everything." not in page.text


def test_mini_is_found_without_being_named(tmp_path):
    from pace_dspy.data import load_mini_split, load_pace, select_split

    mini = load_pace("mini")
    part = select_split(mini, load_mini_split(mini), "test")
    request = part.requests[0]
    one = row(request.case_id, request.query_id, evidence=request.gold_doc_ids[:1])
    one |= {"label": request.label, "gold_doc_ids": list(request.gold_doc_ids)}
    run = write_run(
        tmp_path / "run", [one], "mini", dataset=part.name, dataset_hash=part.content_hash, part="test", split="s"
    )
    made, page = build([run], tmp_path)
    assert made.texts_missing is None
    assert request.query in page.text
    assert "These runs are on mini/test, not on PACE" in page.text


def test_trails_are_limited_to_the_troubled_requests_first(tmp_path, data):
    run = write_run(tmp_path / "run", [*GOOD_ROWS[:2], POOR_ROWS[2], POOR_ROWS[3]], data)
    made, page = build([run], tmp_path, max_trails=2)
    assert made.n_trails == 2
    shown = [attrs["id"] for attrs in page.attributes("details") if attrs.get("class") == "request"]
    assert shown == ["request-tiny_b-q000", "request-tiny_b-q001"]
    assert "Trails are shown for 2 of 4 requests" in page.text


def test_runs_of_one_name_are_told_apart(tmp_path, data):
    folders = [write_run(tmp_path / name, GOOD_ROWS, data) for name in ("x/run", "y/run", "z")]
    folders.append(write_run(tmp_path / "c", GOOD_ROWS, data, config={"name": "no-planning"}, program="ab" * 32))
    made, _ = build(folders, tmp_path)
    assert made.runs == (
        "pacemaker [run] [#1]",
        "pacemaker [run] [#2]",
        "pacemaker [z]",
        "pacemaker (no-planning, compiled)",
    )


def test_different_requests_are_refused_with_counts_or_intersected(tmp_path, data):
    runs = [write_run(tmp_path / "a", GOOD_ROWS, data), write_run(tmp_path / "b", POOR_ROWS[1:], data, method="dense")]
    with pytest.raises(ConfigError, match=r"different requests \(pacemaker 4, dense 3; 3 in common\).*--intersect"):
        build(runs, tmp_path)
    made, page = build(runs, tmp_path, intersect=True)
    assert made.n_requests == 3
    assert "Only the 3 requests that all runs share are reported; left out: pacemaker 1, dense 0." in page.text


REFUSED = {
    "no run": (lambda tmp, data: [tmp / "nothing"], r"is not a run folder: it has no manifest.json"),
    "no row": (lambda tmp, data: [write_run(tmp / "r", [], data)], r"has no finished request \(it holds no row\)"),
    "all failed": (
        lambda tmp, data: [write_run(tmp / "r", POOR_ROWS[3:], data)],
        r"has no finished request \(all 1 requests failed: ServerError 1\); continue it",
    ),
    "twice": (lambda tmp, data: [write_run(tmp / "r", GOOD_ROWS, data), tmp / "r"], r"r is given twice"),
    "nothing in common": (
        lambda tmp, data: [write_run(tmp / "r", GOOD_ROWS[:1], data), write_run(tmp / "s", GOOD_ROWS[1:], data)],
        r"no request in common \(pacemaker \[r\] 1, pacemaker \[s\] 3\)",
    ),
    "other data": (
        lambda tmp, data: [
            write_run(tmp / "r", GOOD_ROWS, data),
            write_run(tmp / "s", GOOD_ROWS, data, dataset_hash="0" * 64),
        ],
        r"of different data: pacemaker \[r\] of tiny \(hash \w{12}\), pacemaker \[s\] of tiny \(hash 0{12}\)",
    ),
    "other gold": (
        lambda tmp, data: [
            write_run(tmp / "r", GOOD_ROWS, data),
            write_run(tmp / "s", [{**one, "gold_doc_ids": ["f4"]} for one in GOOD_ROWS], data),
        ],
        r"request tiny_a/q000 has another label or other gold facts in pacemaker \[s\]",
    ),
    "none": (lambda tmp, data: [], r"needs at least one run folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_what_is_wrong(case, tmp_path, data):
    make, message = REFUSED[case]
    runs = make(tmp_path, data)
    with pytest.raises(ConfigError, match=message) as refused:
        build(runs, tmp_path)
    assert refused.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_damaged_stores_and_bad_options_are_refused(run, tmp_path, data):
    with pytest.raises(ConfigError, match=r"received --out .*page.pdf; give a file name that ends in .html"):
        build_report([run], tmp_path / "page.pdf")
    with pytest.raises(ConfigError, match=r"max_trails must be at least 0, received -1"):
        build([run], tmp_path, max_trails=-1)
    with pytest.raises(ConfigError, match=r"the baseline .*other is none of the runs"):
        build([run], tmp_path, baseline=tmp_path / "other")
    with pytest.raises(DataError, match="no such folder"):
        build([run], tmp_path, data=str(tmp_path / "gone"))
    (run / STORE_NAME).write_bytes(b"not a database, but long enough to be taken for one" * 50)
    for extra in run.glob(f"{STORE_NAME}-*"):
        extra.unlink()
    with pytest.raises(ConfigError, match=r"run.sqlite is damaged \(file is not a database\); use another --out"):
        build([run], tmp_path)


def test_published_run_without_its_store_is_read_from_results(tmp_path, data):
    run = write_run(tmp_path / "run", GOOD_ROWS, data)
    store = RunStore(run)
    store.export()
    store.close()
    (run / STORE_NAME).unlink()
    made, page = build([run], tmp_path)
    assert made.n_requests == 4
    assert page.cell("retrieval", "pacemaker", "Recall@10")[0] == "87.5"
    assert not (run / STORE_NAME).exists()
    (run / RESULTS_NAME).write_text("{broken\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"results.jsonl is damaged \(Expecting property name"):
        build([run], tmp_path)


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["pace-dspy", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


def test_command_writes_the_page_and_prints_json(run, data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "cli.html"
    code, text, _ = command(monkeypatch, capsys, run, "--out", out, "--data", data, "--json")
    assert code == 0
    shown = json.loads(text)
    assert shown["path"] == str(out)
    assert shown["runs"] == ["pacemaker"]
    assert shown["texts_missing"] is None
    assert [path.rsplit("/", 1)[1] for path in shown["plots"]] == [
        "recall_at_10_by_group.png",
        "decision_accuracy_by_group.png",
        "coverage.png",
        "funnel.png",
    ]
    assert Page(out.read_text(encoding="utf-8")).bad == []


def test_command_says_that_ids_are_shown_and_refuses_in_one_line(run, tmp_path, monkeypatch, capsys):
    code, text, errors = command(monkeypatch, capsys, run, "--out", tmp_path / "cli.html")
    assert code == 0
    assert text.startswith("pacemaker: 4 requests, 4 with their trail\n")
    assert errors == (
        "facts are shown by id: the data 'tiny' is not at hand; name its folder with --data to see the texts\n"
    )
    code, text, errors = command(monkeypatch, capsys, tmp_path / "gone", "--out", tmp_path / "cli.html")
    assert (code, text) == (2, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
