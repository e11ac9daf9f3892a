import json
import random
import time
from dataclasses import replace

import pytest
from pace_files import edit_json, persona, write_json, write_parquet
from valid_set import RULES, sentences, valid_persona, write_valid

from pace_dspy.data import load_pace, validate
from pace_dspy.data.validation.duplicates import near_duplicates
from pace_dspy.data.validation.words import content_words, count_sentences, tokens


@pytest.fixture
def root(tmp_path):
    return write_valid(tmp_path / "set")


def test_a_good_set_has_no_finding(root):
    report = validate(root, rules=RULES)
    assert report.findings == ()
    assert report.exit_code == 0
    assert report.content_hash == load_pace(root).content_hash
    assert report.to_text().endswith("0 errors, 0 warnings\n")


def corpus(root, change):
    edit_json(root / "kb" / "t_1" / "corpus.json", lambda content: change(content["corpus"]))


def queries(root, change):
    edit_json(root / "kb" / "t_1" / "queries.json", lambda content: change(content["queries"]))


def text(row, value):
    return lambda root: corpus(root, lambda rows: rows[row].update(text=value))


def query(row, **fields):
    return lambda root: queries(root, lambda rows: rows[row].update(fields))


def timeline(**fields):
    return lambda root: edit_json(root / "kb/t_1/corpus.json", lambda content: content["timeline"].update(fields))


def date_the_gold(root):
    """Give every gold fact of both personas a date, and the others none."""
    for case_id in ("t_1", "t_2"):

        def change(content):
            for number, row in enumerate(content["corpus"]):
                row["text"] = f"On 3 March {row['text']}" if number < 18 else row["text"].replace("February", "places")

        edit_json(root / "kb" / case_id / "corpus.json", change)


def swap_types(root):
    for case_id in ("t_1", "t_2"):
        edit_json(
            root / "kb" / case_id / "queries.json",
            lambda content: [row.update(situation_type="state") for row in content["queries"][:2]],
        )


COPY_OF_F7 = sentences(36, 0)[7]

# name: (break it, check, file, row, field, problem)
DEFECTS = {
    "too few facts": (
        lambda root: corpus(root, lambda rows: rows.__delitem__(slice(25, None))),
        ("facts_per_case", "corpus.json", "t_1", "corpus", "25 facts, allowed: 30-40 or 2000 and more"),
    ),
    "too few requests": (
        lambda root: queries(root, lambda rows: rows.__delitem__(slice(4, None))),
        ("requests_per_case", "queries.json", "t_1", "queries", "4 requests, expected: 6"),
    ),
    "labels out of balance": (
        query(0, label="non_conflict"),
        ("balance_label", "queries.json", "t_1", "label", "the labels' shares differ by 0.33, at most 0.0"),
    ),
    "a type missing in a label": (
        query(0, situation_type="state"),
        ("balance_type", "queries.json", "t_1", "situation_type", "no request of: temporal conflict"),
    ),
    "types out of balance": (
        swap_types,
        ("balance_type", "set", "all cases", "situation_type", "shares of the situation types differ by 0.67"),
    ),
    "too few gold facts": (
        query(2, gold_doc_ids=["f6", "f7"]),
        ("gold_count", "queries.json", "q002", "gold_doc_ids", "2 gold facts, allowed: 3-5"),
    ),
    "too many gold facts": (
        query(2, gold_doc_ids=[f"f{i}" for i in range(20, 26)]),
        ("gold_count", "queries.json", "q002", "gold_doc_ids", "6 gold facts, allowed: 3-5"),
    ),
    "one gold fact for three requests": (
        lambda root: queries(root, lambda rows: [row["gold_doc_ids"].append("f30") for row in rows[:3]]),
        ("gold_reuse", "queries.json", "t_1", "gold_doc_ids", r"gold for 3 requests (q000, q001, q002), at most 2"),
    ),
    "many gold facts used twice": (
        query(0, gold_doc_ids=["f3", "f4", "f5", "f6", "f7"]),
        ("gold_reuse", "queries.json", "t_1", "gold_doc_ids", "5 facts are gold for several requests, at most 3"),
    ),
    "duplicate fact": (
        text(9, COPY_OF_F7),
        ("duplicate", "corpus.json", "f9", "text", "the same text as f7"),
    ),
    "near duplicate fact": (
        text(9, COPY_OF_F7.upper().replace(".", " !")),
        ("near_duplicate", "corpus.json", "f9", "text", "nearly the same text as f7 (token Jaccard 1.00)"),
    ),
    "duplicate request": (
        query(4, query="Book us seats upstairs."),
        ("duplicate", "queries.json", "q004", "query", "the same text as q000"),
    ),
    "window backwards": (
        timeline(window_start="2026-05-05"),
        ("window_order", "corpus.json", "t_1", "window_start", "the window ends on 2026-04-20, before it starts"),
    ),
    "reference date outside": (
        query(3, ref_date="2026-04-21"),
        ("reference_date", "queries.json", "q003", "ref_date", "outside the window 2026-01-05 to 2026-04-20"),
    ),
    "fact date outside": (
        lambda root: corpus(root, lambda rows: rows[4].update(date="2025-12-31")),
        ("fact_date", "corpus.json", "f4", "date", "outside the window 2026-01-05 to 2026-04-20"),
    ),
    "impossible date": (
        text(34, "Noor was told to bring the green kettle back by 31 April without fail."),
        ("impossible_date", "corpus.json", "f34", "text", "'31 April' is not in the calendar"),
    ),
    "impossible ISO date": (
        query(1, query="Order new tyres for 2026-02-30."),
        ("impossible_date", "queries.json", "q001", "query", "'2026-02-30' is not in the calendar"),
    ),
    "wrong weekday": (
        text(34, "Noor was told to bring the green kettle back by Friday 28 March without fail."),
        ("weekday_date", "corpus.json", "f34", "text", "'Friday 28 March': 2026-03-28 is a Saturday"),
    ),
    "written date outside": (
        text(34, "Noor was told to bring the green kettle back by 3 December without fail."),
        ("date_window", "corpus.json", "f34", "text", "'3 December' has no year and is not inside the window"),
    ),
    "written date after the window": (
        text(34, "Noor was told to bring the green kettle back by 3 December 2026 without fail."),
        ("date_window", "corpus.json", "f34", "text", "'3 December 2026' is after the window ends on 2026-04-20"),
    ),
    "weekday word without anchor": (
        text(34, "Noor was told to bring the green kettle back next Friday without fail."),
        ("weekday_word", "corpus.json", "f34", "text", "'next Friday' has no date to count from"),
    ),
    "weekday word outside the window": (
        query(1, query="Order new tyres next Friday.", ref_date="2026-04-17"),
        ("weekday_word", "queries.json", "q001", "query", "'next Friday' is 2026-04-24, outside the window"),
    ),
    "short fact": (
        text(34, "Noor sold a kettle."),
        ("fact_length", "corpus.json", "f34", "text", "4 words, allowed: 8-30"),
    ),
    "long fact": (
        text(34, "Noor sold " + "and sold again " * 10 + "."),
        ("fact_length", "corpus.json", "f34", "text", "33 words, allowed: 8-30"),
    ),
    "short judgment": (
        query(5, judgment="It cannot be had."),
        ("judgment", "queries.json", "q005", "judgment", "1 sentences, allowed: 2-3"),
    ),
    "no judgment": (
        query(5, judgment=None),
        ("judgment", "queries.json", "q005", "judgment", "the judgment is missing"),
    ),
    "a gold fact repeats the request": (
        query(1, query=sentences(36, 0)[4]),
        ("lexical_overlap", "queries.json", "q001", "gold_doc_ids", "this gold fact holds 1.00 of the request's"),
    ),
    "dates give the gold away": (
        date_the_gold,
        ("date_share", "set", "all cases", "text", "1.00 of the gold and 0.00 of the background facts hold a date"),
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_with_file_row_field_and_remedy(root, name):
    break_it, (check, file, row, field, problem) = DEFECTS[name]
    break_it(root)
    report = validate(root, rules=RULES)
    found = [finding for finding in report.errors if finding.check == check and finding.row == row]
    assert any(problem in finding.problem for finding in found), report.to_text()
    finding = next(finding for finding in found if problem in finding.problem)
    assert finding.file.endswith(file)
    assert (finding.field, bool(finding.remedy)) == (field, True)
    assert {finding.check for finding in report.errors} - ALLOWED_BESIDE.get(name, set()) == {check}
    assert report.exit_code == 2
    line = next(line for line in report.to_text().splitlines() if finding.problem in line)
    assert f"[{check}]" in line
    assert file in line
    assert f"row {row}" in line
    assert finding.remedy in line


ALLOWED_BESIDE = {  # what the same edit breaks as well
    "too few requests": {"balance_type", "date_share"},
    "window backwards": {"date_window", "date_share"},
    "labels out of balance": {"balance_type"},
}


def test_data_that_cannot_load_gives_its_error(root):
    queries(root, lambda rows: rows[2].update(label="perhaps"))
    report = validate(root)
    (finding,) = report.findings
    assert (finding.severity, finding.check, finding.row, finding.field, finding.value) == (
        "error",
        "load",
        3,
        "label",
        "perhaps",
    )
    assert finding.file.endswith("t_1/queries.json")
    assert finding.remedy.startswith("Allowed: conflict, non_conflict")
    assert (report.exit_code, report.content_hash) == (2, None)
    assert "unknown label" in report.to_text()
    assert validate(root / "none").exit_code == 2


def test_under_general_rules_matters_of_taste_are_warnings(root):
    text(34, "Noor sold.")(root)
    query(2, gold_doc_ids=[])(root)
    query(0, label="non_conflict", situation_type=None)(root)
    report = validate(root)
    assert report.rules == "general"
    assert {finding.check for finding in report.warnings} == {
        "fact_length",
        "gold_count",
        "balance_label",
        "missing_field",
    }
    assert (report.errors, report.exit_code) == ((), 0)
    text(34, "Noor sold it on Friday 28 March.")(root)
    assert [finding.check for finding in validate(root).errors] == ["weekday_date"]


def test_a_set_with_mini_cases_is_held_to_the_strict_rules(tmp_path):
    report = validate(write_valid(tmp_path, prefix="mini"))
    assert report.rules == "mini"
    assert {finding.check for finding in report.errors} == {"facts_per_case", "requests_per_case"}
    assert report.exit_code == 2


def test_missing_name_and_window_are_warnings(tmp_path):
    case = persona()
    case["profile"], case["timeline"] = {}, {"ref_date": "2026-03-18"}
    report = validate(write_json(tmp_path, case))
    found = {(finding.check, finding.row, finding.field) for finding in report.warnings}
    assert {("missing_field", "tiny_a", name) for name in ("persona", "window_start", "window_end")} <= found
    assert report.exit_code == 0


def test_few_kinds_of_near_miss_are_a_warning(root):
    queries(root, lambda rows: [row.update(near_miss="same") for row in rows if row["label"] == "non_conflict"])
    report = validate(root, rules=RULES)
    assert [(finding.check, finding.row) for finding in report.warnings] == [("near_miss_variety", "t_1")]
    assert report.exit_code == 0


def test_a_leaking_surface_is_a_warning(root):
    for case_id in ("t_1", "t_2"):

        def change(content):
            for row in content["queries"]:
                row["query"] += "?" if row["label"] == "conflict" else ""

        edit_json(root / "kb" / case_id / "queries.json", change)
    report = validate(root, rules=RULES)
    assert ("shortcut", "query", "1.00") in {(f.check, f.field, f.value) for f in report.warnings}
    assert report.exit_code == 0


def test_parquet_rows_are_named_with_their_case(tmp_path):
    case = persona()
    case["corpus"][0]["text"] = "Maya comes on Friday 28 March."
    (finding,) = validate(write_parquet(tmp_path, case)).errors
    assert (finding.row, finding.check) == ("tiny_a/f1", "weekday_date")
    assert finding.file.endswith("corpus.parquet")


def test_a_loaded_dataset_may_be_validated(root):
    dataset = load_pace(root)
    assert validate(dataset, rules=RULES).tables == validate(root, rules=RULES).tables


def test_the_statistics_are_right(root):
    tables = validate(root, rules=RULES).tables
    first = tables["cases"][0]
    assert (first["case"], first["facts"], first["requests"]) == ("t_1", 36, 6)
    assert (first["conflict"], first["non_conflict"], first["temporal"], first["gold"]) == (3, 3, 2, 3.0)
    assert first["dated gold"] == pytest.approx(6 / 18)  # every third fact has a date, the first 18 are gold
    assert first["dated other"] == pytest.approx(6 / 18)
    assert tables["cases"][-1]["case"] == "all"
    assert tables["cases"][-1]["facts"] == 72
    assert tables["gold facts a request"] == [{"gold facts": 3, "requests": 12}]


def test_the_report_is_json_and_long_lists_are_cut_in_the_text_only(root):
    corpus(root, lambda rows: [row.update(text=f"Short {number}.") for number, row in enumerate(rows)])
    report = validate(root, rules=RULES)
    content = json.loads(json.dumps(report.to_dict()))
    assert sum(finding["check"] == "fact_length" for finding in content["findings"]) == 36
    assert content["n_errors"] == len(report.errors)
    shown = report.to_text()
    assert shown.count("[fact_length]") == 10
    assert "26 more of fact_length" in shown


# Near duplicates


def brute_force(texts, threshold):
    sets = [set(tokens(text)) for text in texts]
    return [
        (i, j)
        for i in range(len(sets))
        for j in range(i + 1, len(sets))
        if sets[i] | sets[j] and len(sets[i] & sets[j]) / len(sets[i] | sets[j]) > threshold
    ]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9])
def test_near_duplicates_equal_a_search_of_all_pairs(threshold):
    draw = random.Random(1)
    words = [f"w{i}" for i in range(12)]
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(150)]
    found = near_duplicates(texts, threshold)
    assert [(first, second) for first, second, _ in found] == brute_force(texts, threshold)
    assert found


def test_a_similarity_of_exactly_the_threshold_is_none():
    # 9 shared tokens of 10: Jaccard 0.9
    assert near_duplicates(["a b c d e f g h i j".replace("j", ""), "a b c d e f g h i j"], 0.9) == []


def test_near_duplicates_are_fast_at_real_size():
    texts = sentences(3000, 5)
    start = time.process_time()
    near_duplicates(texts, 0.9)
    assert time.process_time() - start < 3


def test_words_and_sentences():
    assert tokens("Ana's 7:30 train, 2026-03-27!") == ["ana", "s", "7:30", "train", "2026-03-27"]
    assert content_words("Book the tables for us") == {"book", "table"}
    assert count_sentences("Dr. Otto came at 3 p.m. sharp. He left!") == 2
    assert count_sentences("It ends at 8 p.m. Ana is late") == 1  # an abbreviation before a capital: not split
    assert count_sentences("") == 0


def test_the_large_persona_needs_no_upper_limit(tmp_path):
    case = valid_persona("t_1", 0)
    case["corpus"] = [{"doc_id": f"f{i}", "text": sentence} for i, sentence in enumerate(sentences(2000, 0))]
    report = validate(write_json(tmp_path, case), rules=replace(RULES, max_case_date_share_gap=None))
    assert "facts_per_case" not in {finding.check for finding in report.findings}
