"""The numbers in the page are those of the metric functions, and hand-worked ones."""

import json

import pytest
from report_runs import FAILURE, GOOD_ROWS, POOR_ROWS, Page, row, write_data, write_run

from pace_dspy.evaluation.coverage import coverage_metrics
from pace_dspy.evaluation.funnel_report import funnel_metrics
from pace_dspy.evaluation.metrics import decision_metrics, retrieval_metrics, verdict_metrics
from pace_dspy.evaluation.report import build_report
from pace_dspy.evaluation.report.paper import paper_results, paper_rows
from pace_dspy.evaluation.samples import sample_of
from pace_dspy.evaluation.statistics import bootstrap_interval, compare

VERDICTS = ("PASS", "WRONG_RATIONALE", "PASS", "FAIL")


def percent(value):
    return f"{100 * value:.1f}"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("runs")
    good = write_run(folder / "good", GOOD_ROWS, data)
    poor = write_run(folder / "poor", POOR_ROWS, data, method="sparse")
    return good, poor


@pytest.fixture(scope="module")
def page(two_runs, tmp_path_factory):
    return page_of(two_runs, tmp_path_factory.mktemp("page"))


def page_of(runs, tmp_path, **options):
    out = tmp_path / "page" / "report.html"
    build_report(runs, out, **options)
    return Page(out.read_text(encoding="utf-8"))


def test_main_tables_hold_the_values_of_the_metric_functions(page):
    for run, rows in (("pacemaker", GOOD_ROWS), ("sparse", POOR_ROWS)):
        macro = retrieval_metrics(rows).macro
        for column, name in (("Recall@5", "recall@5"), ("Hit@10", "hit@10"), ("Gold@10", "gold@10"), ("MRR", "mrr")):
            assert page.cell("retrieval", run, column)[0] == percent(macro[name])
        rates = decision_metrics(rows).rates
        assert page.cell("decided", run, "Decision accuracy")[0] == percent(rates.accuracy)
        assert page.cell("decided", run, "Balanced accuracy")[0] == percent(rates.balanced_accuracy)
        assert page.cell("decided", run, "Over-refusal")[0] == percent(rates.over_refusal_rate)


def test_hand_worked_values(page):
    # pacemaker: tiny_a has recall 1 and 1, tiny_b 1/2 and 1; macro (1 + 3/4) / 2 = 87.5. Gold@10: (1 + 1/2) / 2.
    assert page.cell("retrieval", "pacemaker", "Recall@10")[0] == "87.5"
    assert page.cell("retrieval", "pacemaker", "Gold@10")[0] == "75.0"
    # sparse: tiny_a 1/2 and 0, tiny_b 0 and a failure that is in no mean: (1/4 + 0) / 2.
    assert page.cell("retrieval", "sparse", "Recall@10")[0] == "12.5"
    assert page.cell("retrieval", "sparse", "Run") == ("sparse", "n = 3")
    # Three of four decisions are right; over-refusal: one of two non-conflicts.
    assert page.cell("decided", "pacemaker", "Decision accuracy")[0] == "75.0"
    assert page.cell("decided", "pacemaker", "Over-refusal") == ("50.0", "0.0 to 100.0\nn = 2")


def test_intervals_are_those_of_the_bootstrap_over_personas(page):
    interval = bootstrap_interval(sample_of(GOOD_ROWS, "recall@10"), average="macro")
    shown = page.cell("retrieval", "pacemaker", "Recall@10")[1]
    assert shown == f"{percent(interval.low)} to {percent(interval.high)}"


def test_paired_difference_from_the_first_run_and_from_a_chosen_one(page, two_runs, tmp_path):
    pair = compare(sample_of(POOR_ROWS, "recall@10"), sample_of(GOOD_ROWS, "recall@10"), average="macro")
    main, small = page.cell("differences", "sparse", "Recall@10")
    # The pairs are the three requests both finished: recall 1, 1, 1/2 against 1/2, 0, 0; macro -(3/4 + 1/2) / 2.
    assert main == "−62.5"
    assert pair.difference == -0.625
    assert small.splitlines() == ["−75.0 to −50.0", f"worse, p = {pair.p_value:.3f}", "3 pairs"]
    other = page_of(two_runs, tmp_path, baseline=two_runs[1])
    assert other.cell("differences", "pacemaker", "Recall@10")[0] == "+62.5"


def test_by_label_and_type(page):
    conflicts = [one for one in GOOD_ROWS if one["label"] == "conflict"]
    assert page.cell("by-group-recall@10", "pacemaker", "conflict")[0] == percent(
        retrieval_metrics(conflicts).macro["recall@10"]
    )
    assert page.tables["by-group-recall@10"][0] == [
        "Run",
        "all|4 requests",
        "conflict|2 requests",
        "non-conflict|2 requests",
        "personal|2 requests",
        "state|2 requests",
    ]
    assert page.cell("by-group-decision_accuracy", "pacemaker", "state")[0] == "50.0"
    assert page.cell("by-group-recall@10", "sparse", "state")[1] == "n = 1"


def test_judged_run_shows_pass_its_coverage_and_the_judge(tmp_path, data):
    run = write_run(tmp_path / "judged", GOOD_ROWS, data, verdicts=VERDICTS)
    page = page_of([run], tmp_path)
    judged = [
        {**one, "verdict": verdict, "judge_error": None} for one, verdict in zip(GOOD_ROWS, VERDICTS, strict=True)
    ]
    rates = verdict_metrics(judged).rates
    assert page.cell("judged", "pacemaker", "PASS")[0] == percent(rates["PASS"]) == "50.0"
    assert page.cell("judged", "pacemaker", "Wrong rationale")[0] == "25.0"
    assert page.cell("judged", "pacemaker", "PASS on conflicts")[0] == "100.0"
    levels = {level.coverage: level for level in coverage_metrics(judged, outcome="pass").levels}
    main, small = page.cell("coverage", "pacemaker", "all gold facts")
    assert (main, small) == (percent(levels["full"].value), "n = 3\n75% of requests")
    assert page.cell("coverage", "paper", "all gold facts")[0] == "72.8 / 77.8 / 89.5"
    assert page.cell("runs", "pacemaker", "Judge")[0] == "judge@test"
    assert "because WRONG_RATIONALE" in page.text


def test_judge_errors_are_counted_apart(tmp_path, data):
    run = write_run(tmp_path / "judged", GOOD_ROWS, data, verdicts=VERDICTS, method="hybrid")
    from pace_dspy.evaluation.store import RunStore

    store = RunStore(run)
    error = {"kind": "ReplyError", "message": "no verdict in the reply"}
    store.verdicts("judge@test").put(
        {"case_id": "tiny_b", "query_id": "q001", "verdict": None, "reason": None, "error": error, "usage": None}, 3
    )
    store.close()
    page = page_of([run], tmp_path)
    assert page.cell("judged", "hybrid", "PASS") == ("66.7", "50.0 to 100.0")
    assert page.cell("failures", "hybrid", "Judge errors") == ("1", "ReplyError 1")
    assert "ReplyError: no verdict in the reply" in page.text


def test_paper_numbers_stand_beside_the_run_as_printed(page):
    rows = page.tables["retrieval"]
    at = [one[0].partition("|")[0] for one in rows].index("pacemaker")
    assert rows[at + 1] == ["paper, gpt-5.4-mini", "36.05", "44.34", "82.57", "12.55", "58.23"]
    assert page.cell("cost", "paper: PaceMaker", "Seconds") == ("7.46", "index 80.78 s once")


def test_paper_rows_by_method_and_config():
    assert [one.title for one in paper_rows("oracle", "paper")] == [
        "gpt-5.4-mini",
        "gemini-3.1-flash-lite",
        "Qwen3-4B-Instruct-2507",
    ]
    assert paper_rows("pacemaker", "no-multi-hop")[0].values == {
        "recall@5": 22.48,
        "pass": 71.65,
        "conflict_pass": 52.41,
    }
    assert paper_rows("full-kb", "paper")[0].values["conflict_pass"] == 55.7
    assert paper_rows("hybrid", "paper") == paper_rows("pacemaker", "plus") == ()
    assert json.dumps(paper_results()["dataset"]["queries"]) == "3249"


def test_funnel_tables_add_up_and_equal_the_funnel(page):
    funnel = funnel_metrics(GOOD_ROWS)
    shown = page.tables["fates"]
    good = shown[[one[0].partition("|")[0] for one in shown].index("pacemaker")]
    assert good[0] == f"pacemaker|{funnel.n_gold} gold facts"
    assert sum(int(cell.partition("|")[2]) for cell in good[1:]) == funnel.n_gold == 6
    # f2 of tiny_a is in the evidence and not cited; f2 of tiny_b was dropped by the pre-hop filter; four are cited.
    assert page.cell("fates", "pacemaker", "cited") == (percent(4 / 6), "4")
    assert page.cell("fates", "pacemaker", "found, not cited") == (percent(1 / 6), "1")
    assert page.cell("fates", "pacemaker", "dropped by the pre-hop filter") == (percent(1 / 6), "1")
    recall = {stage.stage: stage.recall for stage in funnel.stages}
    assert page.cell("stages", "pacemaker", "seeds")[0] == percent(recall["seeds"])
    assert page.cell("stages", "pacemaker", "reached by the walk")[0] == percent(recall["pool"])


def test_cost_by_stage_is_a_mean_over_finished_requests(page):
    assert page.cell("cost", "sparse", "Run and stage")[1] == "all stages, 3 requests"
    assert page.cell("cost", "sparse", "Model calls")[0] == "1.00"
    assert page.cell("cost", "sparse", "Tokens read") == ("200", "25%")
    assert page.cell("cost", "sparse", "Seconds") == ("1.60", "median 1.60, slowest 1.60")
    assert page.cell("cost", "answerer", "Seconds")[0] == "1.50"
    assert page.cell("cost", "answerer", "US dollars")[0] == "0.0020"


def test_unknown_price_is_not_zero(tmp_path, data):
    rows = [dict(one) for one in GOOD_ROWS]
    rows[0] = json.loads(json.dumps(rows[0]))
    rows[0]["trace"]["usage"][0]["cost_usd"] = None
    page = page_of([write_run(tmp_path / "run", rows, data)], tmp_path)
    assert page.cell("cost", "pacemaker", "US dollars") == ("–", "no price known")


def test_failures_and_fallbacks_are_shown_with_their_reasons(tmp_path, data):
    rows = json.loads(json.dumps(POOR_ROWS))
    rows[0]["trace"]["fallbacks"] = [{"stage": "pre_filter", "reason": "not JSON"}]
    rows[1]["trace"]["trims"] = [{"stage": "post_filter", "offered": 90, "shown": 60}]
    page = page_of([write_run(tmp_path / "run", rows, data)], tmp_path)
    assert page.cell("failures", "pacemaker", "Failed") == ("1", "ServerError 1")
    assert page.cell("failures", "pacemaker", "Fallbacks") == ("1", "pre-hop filter 1")
    assert page.cell("failures", "pacemaker", "Trimmed prompts") == ("1", "post-hop filter 1")
    # Of four requests one was decided rightly, two wrongly, one failed.
    assert page.cell("failures", "pacemaker", "Score, %") == ("25.0", "Decision accuracy")
    assert page.cell("decided", "pacemaker", "Decision accuracy")[0] == "33.3"
    assert page.cell("failed", "pacemaker", "Message")[0] == "the server is down"
    assert "Failed requests: pacemaker 1 of 4." in page.text
    assert "Fallback of pre_filter: not JSON" in page.text
    assert "Trimmed for post_filter: 60 of 90 facts fit the window" in page.text


def test_one_persona_has_no_interval_and_says_so(tmp_path, data):
    rows = [one for one in GOOD_ROWS if one["case_id"] == "tiny_a"]
    page = page_of([write_run(tmp_path / "run", rows, data)], tmp_path)
    assert page.cell("retrieval", "pacemaker", "Recall@10") == ("100.0", "")
    assert "Only 1 persona: intervals are rough" in page.text


def test_run_without_decisions_has_no_answer_tables(tmp_path, data):
    rows = [{**one, "decision": None, "response": None, "cited": []} for one in GOOD_ROWS]
    page = page_of([write_run(tmp_path / "run", rows, data)], tmp_path)
    assert {"judged", "decided", "coverage"}.isdisjoint(page.tables)
    assert "None of these runs decided anything" in page.text
    assert page.cell("failures", "pacemaker", "Undecided")[0] == "–"


def test_rows_without_traces_still_make_a_report(tmp_path, data):
    rows = [{**one, "trace": None} for one in GOOD_ROWS]
    page = page_of([write_run(tmp_path / "run", rows, data)], tmp_path)
    assert page.cell("retrieval", "pacemaker", "Recall@10")[0] == "87.5"
    assert page.cell("cost", "pacemaker", "Model calls")[0] == "0.00"


def test_a_failed_request_is_no_pair(tmp_path, data):
    rows = [*GOOD_ROWS[:3], row("tiny_b", "q001", error=FAILURE)]
    first = write_run(tmp_path / "a", GOOD_ROWS, data)
    second = write_run(tmp_path / "b", rows, data)
    page = page_of([first, second], tmp_path)
    assert page.cell("differences", "pacemaker [b]", "Recall@10")[1].splitlines()[-1] == "3 pairs"
