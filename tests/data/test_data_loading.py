import copy
import datetime as dt
import json
import sys
import types
import warnings

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pace_files import edit_json, persona, write_json, write_parquet

from pace_dspy.data import DataDownloadError, DataWarning, load_pace
from pace_dspy.errors import ConfigError, DataError, MissingExtraError
from pace_dspy.text import is_blank
from pace_dspy.types import Fact


@pytest.fixture
def json_root(tmp_path):
    return write_json(tmp_path / "release", persona())


def queries_file(root, case_id="tiny_a"):
    return root / "kb" / case_id / "queries.json"


def corpus_file(root, case_id="tiny_a"):
    return root / "kb" / case_id / "corpus.json"


# Records


def test_records_of_the_json_release(json_root):
    dataset = load_pace(json_root)
    assert dataset.name == "release"
    case = dataset.case("tiny_a")
    assert (case.persona, case.window_start, case.reference_date, case.window_end) == (
        "Ana Reis",
        dt.date(2026, 1, 5),
        dt.date(2026, 3, 18),
        dt.date(2026, 4, 20),
    )
    assert case.facts[1] == Fact("f2", "Hearth serves game only until 21 March.", date=dt.date(2026, 3, 2))
    assert case.facts[4].metadata == {"meta": {"by": "Ana", "rank": 1}}
    first, second = case.requests
    assert (first.query_id, first.label, first.situation_type) == ("q000", "conflict", "personal")
    assert first.gold_doc_ids == ("f2", "f1")
    assert first.reference_date == dt.date(2026, 3, 18)  # from the timeline
    assert second.reference_date == dt.date(2026, 3, 20)  # from the row
    assert second.metadata == {"near_miss": "already solved"}


@pytest.mark.parametrize("folder", ["data", "."])
def test_parquet_and_json_give_equal_records_and_hash(tmp_path, folder):
    personas = persona("b", "Bo Li"), persona("a.1")
    from_json = load_pace(write_json(tmp_path / "j", *personas), name="x")
    from_parquet = load_pace(write_parquet(tmp_path / "p", *personas, folder=folder), name="x")
    assert from_parquet == from_json
    assert [case.case_id for case in from_json.cases] == ["a.1", "b"]
    assert len(from_json.content_hash) == 64


def test_parquet_written_by_pandas_with_dates_floats_and_dictionaries(tmp_path, json_root):
    case = persona()
    root = write_parquet(tmp_path / "p", case)
    frame = pd.DataFrame([{"case_id": "tiny_a", **case["timeline"], **row} for row in case["corpus"]])
    for column in case["timeline"]:
        frame[column] = pd.to_datetime(frame[column])
    frame["date"] = pd.to_datetime(frame["date"]).dt.date
    frame["case_id"] = frame["case_id"].astype("category")
    frame["always_null"] = None
    frame.to_parquet(root / "data" / "corpus.parquet")
    assert frame["score"].dtype == float  # 3 became 3.0, NaN elsewhere
    assert load_pace(root, name="x") == load_pace(json_root, name="x")
    assert load_pace(root).content_hash == load_pace(json_root).content_hash


def test_all_null_optional_columns_and_null_gold(tmp_path):
    case = persona()
    for row in case["queries"]:
        row["judgment"] = None
        row["situation_type"] = None
        row["gold_doc_ids"] = None
    with pytest.warns(DataWarning, match="2 of 2 requests have no known situation type") as caught:
        from_parquet = load_pace(write_parquet(tmp_path / "p", case), name="x")
    assert len(caught) == 1
    with pytest.warns(DataWarning):
        assert load_pace(write_json(tmp_path / "j", case), name="x") == from_parquet
    assert from_parquet.requests[0].gold_doc_ids == ()
    assert from_parquet.requests[0].judgment is None


def test_shards_with_different_columns_load_together(tmp_path, json_root):
    root = write_parquet(tmp_path / "p", persona())
    table = pq.read_table(root / "data" / "corpus.parquet")
    (root / "data" / "corpus.parquet").unlink()
    pq.write_table(
        table.slice(0, 2).drop_columns(["score", "tags", "meta"]), root / "data" / "corpus-00000-of-00002.parquet"
    )
    pq.write_table(table.slice(2), root / "data" / "corpus-00001-of-00002.parquet")
    assert load_pace(root, name="x") == load_pace(json_root, name="x")


def test_bare_lists_text_for_query_and_generated_query_ids(tmp_path):
    case = persona()
    root = write_json(tmp_path, case)
    expected = load_pace(root).case("tiny_a")
    rows = [{"text" if key == "query" else key: value for key, value in row.items()} for row in case["queries"]]
    for row in rows:
        del row["query_id"]
    queries_file(root).write_text(json.dumps(rows), encoding="utf-8")
    assert load_pace(root).case("tiny_a") == expected  # the dates still come from the corpus timeline
    corpus_file(root).write_text(json.dumps(case["corpus"]), encoding="utf-8-sig")
    queries_file(root).write_text(json.dumps({"timeline": case["timeline"], "queries": rows}), encoding="utf-8")
    assert load_pace(root).case("tiny_a") == expected  # now from the queries timeline


def test_the_kb_folder_itself_may_be_given(json_root):
    assert load_pace(json_root / "kb") == load_pace(json_root)


def test_only_the_cases_asked_for_are_loaded(tmp_path):
    personas = persona("a"), persona("b"), persona("c")
    for root in (write_json(tmp_path / "j", *personas), write_parquet(tmp_path / "p", *personas)):
        assert [case.case_id for case in load_pace(root, cases=["c", "a"]).cases] == ["a", "c"]
        assert [case.case_id for case in load_pace(root, cases="b").cases] == ["b"]
        with pytest.raises(ConfigError, match=r"no case 'z'; the data has: a, b, c"):
            load_pace(root, cases=["a", "z"])
        with pytest.raises(ConfigError, match="cases is empty"):
            load_pace(root, cases=[])


def test_the_situation_column_may_have_another_name(tmp_path):
    case = persona()
    for row in case["queries"]:
        row["Taxonomy"] = row.pop("situation_type").title()
    for root in (write_json(tmp_path / "j", case), write_parquet(tmp_path / "p", case)):
        requests = load_pace(root).requests
        assert [request.situation_type for request in requests] == ["personal", "state"]
        assert requests[0].metadata == {}


def test_a_missing_situation_column_gives_one_warning_and_keeps_other_columns(tmp_path):
    case = persona()
    for row in case["queries"]:
        row["kind"] = row.pop("situation_type")
    root = write_json(tmp_path, case, persona("b"))
    with pytest.warns(DataWarning, match="2 of 4 requests have no known situation type; it is left null") as caught:
        dataset = load_pace(root)
    assert len(caught) == 1
    assert dataset.case("tiny_a").requests[0].metadata == {"kind": "personal"}


def test_a_missing_profile_gives_one_warning(json_root):
    (json_root / "profile" / "tiny_a.json").unlink()
    with pytest.warns(DataWarning, match=r"1 of 1 cases have no spec.demographic.full_name .*\(tiny_a\)"):
        assert load_pace(json_root).case("tiny_a").persona is None


def test_good_data_gives_no_warning(json_root):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_pace(json_root)


def test_repeated_gold_ids_are_kept_once(tmp_path):
    case = persona()
    case["queries"][0]["gold_doc_ids"] = ["f2", "f1", "f2"]
    assert load_pace(write_json(tmp_path, case)).requests[0].gold_doc_ids == ("f2", "f1")


def test_the_hash_follows_every_record(tmp_path):
    seen = set()
    for number, change in enumerate(
        [
            lambda case: None,
            lambda case: case["corpus"][0].update(text="Maya has eaten no fish since spring."),
            lambda case: case["corpus"].reverse(),
            lambda case: case["queries"][0].update(label="non_conflict"),
            lambda case: case["timeline"].update(window_end="2026-04-21"),
            lambda case: case["profile"]["spec"]["demographic"].update(full_name="Eva Reis"),
        ]
    ):
        case = persona()
        change(case)
        seen.add(load_pace(write_json(tmp_path / str(number), case)).content_hash)
    assert len(seen) == 6


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).filter(
    lambda text: not is_blank(text)
)
EXTRA = st.one_of(st.none(), st.integers(-(2**40), 2**40), TEXT)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(TEXT, min_size=1, max_size=5),
    query=TEXT,
    extra=EXTRA,
    label=st.sampled_from(["CONFLICT", "No conflict"]),
)
def test_any_text_survives_both_formats(tmp_path_factory, texts, query, extra, label):
    case = persona()
    case["corpus"] = [{"doc_id": f"f{i}", "text": text, "extra": extra} for i, text in enumerate(texts)]
    row = {"query_id": "q", "query": query, "label": label, "situation_type": "state", "gold_doc_ids": ["f0"]}
    case["queries"] = [row | {"nested": {"a": extra, "b": [1, 2]}}]
    root = tmp_path_factory.mktemp("any")
    from_json = load_pace(write_json(root / "j", case), name="x")
    assert load_pace(write_parquet(root / "p", case), name="x") == from_json
    assert [fact.text for fact in from_json.cases[0].facts] == texts


# Refusals: (change of the persona, message)

REFUSED_ROWS = {
    "duplicate doc_id": (
        lambda case: case["corpus"][3].update(doc_id="f1"),
        r"corpus.*row 4, field 'doc_id', value 'f1': doc_id occurs twice in case tiny_a\. Give every fact",
    ),
    "empty text": (
        lambda case: case["corpus"][2].update(text="  "),
        r"corpus.*row 3, field 'text', value '  ': empty text\. Write the sentence or drop the row",
    ),
    "null text": (
        lambda case: case["corpus"][2].update(text=None),
        r"corpus.*row 3, field 'text': required field 'text' is missing or null\. Add it; the row has: ",
    ),
    "null doc_id": (
        lambda case: case["corpus"][0].update(doc_id=None),
        r"corpus.*row 1, field 'doc_id': required field 'doc_id' is missing or null",
    ),
    "empty doc_id": (lambda case: case["corpus"][0].update(doc_id=""), r"row 1, field 'doc_id', value '': empty id"),
    "gold id not in the corpus": (
        lambda case: case["queries"][1].update(gold_doc_ids=["f5", "f99"]),
        r"queries.*row 2, field 'gold_doc_ids', value 'f99': gold id is not in the corpus .*Use a doc_id of .*corpus",
    ),
    "no reference date": (
        lambda case: (case["timeline"].update(ref_date=None), case["queries"][1].pop("ref_date")),
        r"queries.*row 1, field 'ref_date': the request has no reference date\. Give ref_date \(YYYY-MM-DD\)",
    ),
    "bad reference date": (
        lambda case: case["queries"][1].update(ref_date="2026-02-30"),
        r"queries.*row 2, field 'ref_date', value '2026-02-30': not a date .*Write YYYY-MM-DD",
    ),
    "bad fact date": (
        lambda case: case["corpus"][1].update(date="2 March"),
        r"corpus.*row 2, field 'date', value '2 March': not a date",
    ),
    "bad timeline": (
        lambda case: case["timeline"].update(window_start="January"),
        r"corpus.*field 'window_start', value 'January': not a date",
    ),
    "unknown label": (
        lambda case: case["queries"][0].update(label="maybe"),
        r"queries.*row 1, field 'label', value 'maybe': unknown label\. Allowed: conflict, non_conflict",
    ),
    "null label": (
        lambda case: case["queries"][0].update(label=None),
        r"row 1, field 'label': required field 'label' is missing or null",
    ),
    "duplicate query_id": (
        lambda case: case["queries"][1].update(query_id="q000"),
        r"queries.*row 2, field 'query_id', value 'q000': query_id occurs twice in case tiny_a",
    ),
    "empty query": (lambda case: case["queries"][1].update(query=""), r"row 2, field 'query', value '': empty text"),
}


@pytest.mark.parametrize("write", [write_json, write_parquet])
@pytest.mark.parametrize("name", REFUSED_ROWS)
def test_a_bad_row_is_refused_with_its_place_and_remedy(tmp_path, name, write):
    change, message = REFUSED_ROWS[name]
    case = persona()
    change(case)
    root = write(tmp_path, case)
    with pytest.raises(DataError, match=message) as caught:
        load_pace(root)
    error = caught.value
    assert error.exit_code == 2
    assert error.file.startswith(str(tmp_path))
    assert error.row is not None
    assert error.field
    assert error.remedy


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("corpus", lambda rows: rows[0].update(text=7), r"row 1, field 'text', value 7: wrong type int, must be text"),
        ("corpus", lambda rows: rows[0].pop("text"), r"row 1, field 'text': required field 'text' is missing"),
        ("corpus", lambda rows: rows[0].update(doc_id=[1]), r"field 'doc_id', value \[1\]: wrong type list"),
        ("corpus", lambda rows: rows.insert(1, "a fact"), r"row 2, value 'a fact': a row must be an object"),
        (
            "corpus",
            lambda rows: rows[2].update(case_id="other"),
            r"row 3, field 'case_id', value 'other': the row stands",
        ),
        ("corpus", lambda rows: rows.clear(), r"field 'corpus': the dataset is empty: case tiny_a has no facts"),
        ("corpus", lambda rows: rows[1].update(date=20260302), r"row 2, field 'date', value 20260302: not a date"),
        ("queries", lambda rows: rows[0].update(gold_doc_ids="f1"), r"wrong type str, must be a list of doc_ids"),
        ("queries", lambda rows: rows[0].pop("gold_doc_ids"), r"row 1, field 'gold_doc_ids': required field"),
        ("queries", lambda rows: rows[0].pop("label"), r"row 1, field 'label': required field 'label' is missing"),
        ("queries", lambda rows: rows[0].update(judgment=["no"]), r"field 'judgment', value \['no'\]: wrong type list"),
        ("queries", lambda rows: rows[0].update(label=True), r"field 'label', value True: unknown label"),
    ],
)
def test_bad_json_rows_are_refused(json_root, table, change, message):
    edit_json(json_root / "kb" / "tiny_a" / f"{table}.json", lambda content: change(content[table]))
    with pytest.raises(DataError, match=message):
        load_pace(json_root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"corpus": [', r"corpus\.json, row 1: unreadable JSON .*Write one valid JSON document in UTF-8"),
        (b"\xff\xfe\x00", r"corpus\.json: unreadable JSON"),
        (b'"text"', r"corpus\.json, value 'text': wrong type str, must be a list of rows, bare or under 'corpus'"),
        (b'{"facts": []}', r"corpus\.json, field 'corpus': required field 'corpus' is missing.* the file has: facts"),
        (b'{"corpus": {}}', r"corpus\.json, value \{\}: wrong type dict"),
        (b"[]", r"the dataset is empty: case tiny_a has no facts"),
        (b'{"timeline": "x", "corpus": []}', r"corpus\.json, row timeline, value 'x': a row must be an object"),
        (b"[" * 100_000, r"corpus\.json: unreadable JSON"),
    ],
)
def test_unreadable_json_is_refused(json_root, content, message):
    corpus_file(json_root).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_pace(json_root)


def test_missing_json_files_are_refused(json_root):
    queries_file(json_root).unlink()
    with pytest.raises(DataError, match=r"queries\.json: missing file\. Complete the folder"):
        load_pace(json_root)


def test_a_profile_that_is_no_object_is_refused(json_root):
    (json_root / "profile" / "tiny_a.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match=r"tiny_a\.json.*must be one object"):
        load_pace(json_root)


@pytest.mark.parametrize("case_id", ["bad case", "é", "x" * 101])
def test_a_bad_case_id_is_refused(tmp_path, case_id):
    message = r"field 'case_id', value .*: bad case_id.*Allowed: ASCII letters, digits"
    with pytest.raises(DataError, match=message):
        load_pace(write_json(tmp_path / "j", persona(case_id)))
    with pytest.raises(DataError, match=message):
        load_pace(write_parquet(tmp_path / "p", persona(case_id)))


@pytest.mark.parametrize("case_id", ["..", ".", "../x", "", None])
def test_a_case_id_that_leaves_the_folder_is_refused(tmp_path, case_id):
    with pytest.raises(DataError, match=r"row 1, field 'case_id', value '.*': bad case_id"):
        load_pace(write_parquet(tmp_path, persona(case_id), persona("good")))


@pytest.mark.parametrize("table", ["corpus", "queries", "profiles"])
def test_a_missing_parquet_file_is_refused(tmp_path, table):
    root = write_parquet(tmp_path, persona())
    (root / "data" / f"{table}.parquet").unlink()
    with pytest.raises(DataError, match=rf"{table}\.parquet: missing file\. Give all of: corpus, queries, profiles"):
        load_pace(root)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("corpus", "case_id"),
        ("corpus", "doc_id"),
        ("corpus", "text"),
        ("queries", "query_id"),
        ("queries", "query"),
        ("queries", "label"),
        ("queries", "gold_doc_ids"),
        ("profiles", "case_id"),
    ],
)
def test_a_missing_required_column_is_named(tmp_path, table, column):
    root = write_parquet(tmp_path, persona())
    file = root / "data" / f"{table}.parquet"
    pq.write_table(pq.read_table(file).drop_columns([column]), file)
    message = rf"{table}\.parquet, field '{column}': required column '{column}' is missing\. Add it; the file has: "
    with pytest.raises(DataError, match=message):
        load_pace(root)


@pytest.mark.parametrize(
    ("table", "column", "values", "message"),
    [
        ("corpus", "text", pa.array([1] * 5), r"field 'text', value 'int64': wrong column type, must be text"),
        ("corpus", "ref_date", pa.array([1.5] * 5), r"field 'ref_date', value 'double': .* must be date"),
        ("corpus", "doc_id", pa.array([0.5] * 5), r"field 'doc_id', value 'double': .* must be id"),
        ("queries", "gold_doc_ids", pa.array(["f1"] * 2), r"value 'string': wrong column type, must be list of ids"),
        ("queries", "gold_doc_ids", pa.array([[0.5]] * 2), r"value 'list<.*double>': .* must be list of ids"),
    ],
)
def test_a_wrong_column_type_is_refused(tmp_path, table, column, values, message):
    root = write_parquet(tmp_path, persona())
    file = root / "data" / f"{table}.parquet"
    content = pq.read_table(file)
    pq.write_table(content.set_column(content.schema.get_field_index(column), column, values), file)
    with pytest.raises(DataError, match=message):
        load_pace(root)


def test_whole_number_ids_are_text(tmp_path):
    case = persona()
    for number, row in enumerate(case["corpus"]):
        row["doc_id"] = number
    case["queries"][0]["gold_doc_ids"], case["queries"][1]["gold_doc_ids"] = [1, 0], [4]
    dataset = load_pace(write_json(tmp_path / "j", case), name="x")
    assert dataset.requests[0].gold_doc_ids == ("1", "0")
    assert load_pace(write_parquet(tmp_path / "p", case), name="x") == dataset


def test_unreadable_parquet_is_refused(tmp_path):
    root = write_parquet(tmp_path, persona())
    (root / "data" / "queries.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match=r"queries\.parquet: unreadable parquet .*Download or write the file again"):
        load_pace(root)


def test_queries_of_a_case_without_facts_are_refused(tmp_path):
    case = persona("b")
    root = write_parquet(tmp_path, persona("a"), case)
    file = root / "data" / "corpus.parquet"
    pq.write_table(pq.read_table(file).slice(0, 5), file)
    with pytest.raises(DataError, match=r"corpus\.parquet, field 'corpus': the dataset is empty: case b has no facts"):
        load_pace(root)


def test_folders_that_hold_no_data_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such folder\. Give 'mini' \(shipped\), 'p2chp2t/pace'"):
        load_pace(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no PACE data in this folder"):
        load_pace(tmp_path)
    (tmp_path / "kb").mkdir()
    with pytest.raises(DataError, match="the dataset is empty: it holds no case"):
        load_pace(tmp_path)
    (tmp_path / "file.parquet").touch()
    with pytest.raises(DataError, match="this is a file, PACE data is a folder"):
        load_pace(tmp_path / "file.parquet")


# The hub, with a stand-in for its client


class _Offline(OSError):
    pass


def _hub(monkeypatch, download):
    hub = types.ModuleType("huggingface_hub")
    hub.errors = types.SimpleNamespace(HfHubHTTPError=_Offline, LocalEntryNotFoundError=_Offline)
    hub.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_the_hub_repository_is_downloaded_and_read(monkeypatch, tmp_path):
    asked = []

    def download(repo_id, **options):
        asked.append((repo_id, options["repo_type"], options["allow_patterns"]))
        return str(write_parquet(tmp_path / "snapshot", persona()))

    _hub(monkeypatch, download)
    dataset = load_pace("p2chp2t/pace")
    assert (dataset.name, len(dataset.requests)) == ("pace", 2)
    assert asked == [("p2chp2t/pace", "dataset", ["*.parquet"])]


def test_offline_is_said_in_one_line(monkeypatch):
    def download(repo_id, **options):
        raise _Offline("no route to host\nlong story")

    _hub(monkeypatch, download)
    message = r"p2chp2t/pace could not be downloaded \(_Offline: no route to host\)\. Check the network, HF_ENDPOINT"
    with pytest.raises(DataDownloadError, match=message) as caught:
        load_pace("p2chp2t/pace")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_without_the_extra_the_pip_line_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pace-dspy\[hub\]'"):
        load_pace("p2chp2t/pace")


def test_loading_changes_no_input(tmp_path):
    case = persona()
    before = copy.deepcopy(case)
    load_pace(write_json(tmp_path, case))
    assert case == before


def test_a_source_of_another_type_and_a_broken_persona_are_named(tmp_path):
    with pytest.raises(TypeError, match=r"the source of PACE data must be a path .*not int: 5"):
        load_pace(5)
    root = write_json(tmp_path, persona(full_name="Ana Reis"))
    profile = root / "profile" / "tiny_a.json"
    profile.write_text(profile.read_text().replace("Ana Reis", "Ana \\ud800"))
    with pytest.raises(DataError, match=r"field 'full_name'.*half of a character.*in the profile of case tiny_a"):
        load_pace(root)
