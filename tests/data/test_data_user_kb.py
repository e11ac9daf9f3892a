import datetime as dt
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pace_dspy.data import load_kb
from pace_dspy.data.user_kb import MAX_FACT_CHARS
from pace_dspy.errors import DataError
from pace_dspy.text import is_blank


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_the_three_forms_give_the_same_facts(tmp_path):
    jsonl = write(tmp_path, "kb.jsonl", '{"text": "Maya is vegan."}\n\n{"text": "The tram stops, at midnight."}\n')
    csv = write(tmp_path, "kb.csv", 'text\nMaya is vegan.\n"The tram stops, at midnight."\n')
    text = write(tmp_path, "kb.txt", "Maya is vegan.\n\n  The tram stops, at midnight.  \n")
    facts = load_kb(text)
    assert [fact.text for fact in facts] == ["Maya is vegan.", "The tram stops, at midnight."]
    assert load_kb(jsonl) == facts
    assert load_kb(csv) == facts


def test_fields_dates_and_metadata(tmp_path):
    rows = [
        {"doc_id": "a", "text": "Maya is vegan.", "date": "2026-03-02", "who": "Maya", "gone": None},
        {"text": "Two."},
    ]
    jsonl = write(tmp_path, "kb.ndjson", "\n".join(json.dumps(row) for row in rows))
    csv = write(tmp_path, "kb.CSV", "Doc_ID,TEXT,date,who\na,Maya is vegan.,2026-03-02,Maya\n,Two.,,\n")
    facts = load_kb(jsonl)
    assert (facts[0].doc_id, facts[0].date, facts[0].metadata) == ("a", dt.date(2026, 3, 2), {"who": "Maya"})
    assert (facts[1].date, facts[1].metadata) == (None, {})
    assert load_kb(csv) == facts


def test_made_ids_do_not_change_when_other_lines_do(tmp_path):
    first = load_kb(write(tmp_path, "a.txt", "One fact.\nAnother fact.\n"))
    second = load_kb(write(tmp_path, "b.txt", "New fact.\nAnother fact.\nOne fact.\n"))
    assert {fact.doc_id for fact in first} < {fact.doc_id for fact in second}
    assert all(fact.doc_id.startswith("fact-") for fact in second)


def test_equal_lines_get_ids_of_their_own(tmp_path):
    facts = load_kb(write(tmp_path, "a.txt", "Same.\nSame.\nSame.\n"))
    stem = facts[0].doc_id
    assert [fact.doc_id for fact in facts] == [stem, f"{stem}-2", f"{stem}-3"]
    taken = write(
        tmp_path, "b.jsonl", json.dumps({"text": "Same."}) + "\n" + json.dumps({"text": "X.", "doc_id": stem})
    )
    assert [fact.doc_id for fact in load_kb(taken)] == [f"{stem}-2", stem]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_byte_order_mark_line_ends_and_blank_lines(tmp_path, end, bom):
    text = write(tmp_path, "kb.txt", bom + end.join(["One.", "", "   ", "Two.", ""]))
    assert [fact.text for fact in load_kb(text)] == ["One.", "Two."]
    csv = write(tmp_path, "kb.csv", bom + end.join(["text,date", "One.,", "", "Two.,2026-01-05", ""]))
    assert [(fact.text, fact.date) for fact in load_kb(csv)] == [("One.", None), ("Two.", dt.date(2026, 1, 5))]
    jsonl = write(tmp_path, "kb.jsonl", bom + end.join(['{"text": "One."}', "", '{"text": "Two."}']))
    assert [fact.text for fact in load_kb(jsonl)] == ["One.", "Two."]


def test_quoted_newlines_and_quotes_in_csv(tmp_path):
    csv = write(tmp_path, "kb.csv", 'doc_id,text\r\n1,"Ana said: ""no"",\r\nthen left."\r\n2,Two.\r\n')
    assert [(fact.doc_id, fact.text) for fact in load_kb(csv)] == [("1", 'Ana said: "no", then left.'), ("2", "Two.")]


REFUSED = {
    "no.txt": (None, r"no\.txt: no such file\. Give a \.jsonl, \.csv or \.txt file"),
    "empty.txt": ("", r"empty\.txt: no facts in the file\. Write at least one fact"),
    "blank.jsonl": ("\n \r\n", r"no facts in the file"),
    "header.csv": ("text,date\n", r"no facts in the file"),
    "binary.txt": (b"\x89PNG\r\n\0\0", r"binary\.txt: binary file or not UTF-8\. Save it as plain text in UTF-8"),
    "latin.txt": ("ok\ncafé".encode("latin-1"), r"latin\.txt, row 2: binary file or not UTF-8"),
    "utf16.txt": ("Maya".encode("utf-16"), r"binary file or not UTF-8"),
    "kb.xlsx": ("x", r"unknown file ending '\.xlsx'\. Allowed: \.jsonl, \.ndjson, \.csv, \.txt, \.md"),
    "kb.json": ("[]", r"unknown file ending '\.json'"),
    "long.txt": (
        "ok\n" + "x" * (MAX_FACT_CHARS + 1),
        r"row 2, field 'text', value .*5001 characters, at most 5000 are allowed",
    ),
    "bad.jsonl": (
        '{"text": "a"}\n{"text": ',
        r"bad\.jsonl, row 2, value .*: unreadable JSON .*Write one object a line",
    ),
    "list.jsonl": ('["a"]', r"row 1, value \['a'\]: a row must be an object"),
    "notext.jsonl": ('{"fact": "a"}', r"row 1, field 'text': required field 'text' is missing.* the row has: fact"),
    "number.jsonl": ('{"text": 3}', r"row 1, field 'text', value 3: wrong type int, must be text"),
    "emptytext.jsonl": ('{"text": "a"}\n\n{"text": " "}', r"row 3, field 'text', value ' ': empty text"),
    "twice.jsonl": (
        '{"doc_id": 1, "text": "a"}\n{"doc_id": "1", "text": "b"}',
        r"row 2, field 'doc_id', value '1': doc_id occurs twice \(first in row 1\)",
    ),
    "date.jsonl": ('{"text": "a", "date": "1 May"}', r"row 1, field 'date', value '1 May': not a date"),
    "columns.csv": ("fact,when\na,b\n", r"row 1, field 'text': required column 'text' is missing.* it has: fact, when"),
    "semicolon.csv": ("doc_id;text\n1;a\n", r"required column 'text' is missing.*it has: doc_id;text"),
    "twocolumns.csv": ("text,text\na,b\n", r"row 1, value .*two columns have one name"),
    "comma.csv": (
        "doc_id,text\n1,Maya, who is vegan\n",
        r"row 2, value .*3 cells under 2 column names\. Put a text that",
    ),
    "quote.csv": ('text\n"never closed\n', r"quote\.csv, row \d: unreadable CSV .*Check the double quotes"),
    "emptycell.csv": ("doc_id,text\n1,a\n2,\n", r"row 3, field 'text', value '': empty text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused_with_place_and_remedy(tmp_path, name):
    content, message = REFUSED[name]
    if content is not None:
        write(tmp_path, name, content)
    with pytest.raises(DataError, match=message) as caught:
        load_kb(tmp_path / name)
    assert caught.value.remedy


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"this is a folder, not a file\. .*load_pace"):
        load_kb(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("pace_dspy.data.user_kb.MAX_FILE_MB", 0.00001)
    with pytest.raises(DataError, match="the file is larger than"):
        load_kb(write(tmp_path, "kb.txt", "x" * 20))


FACT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30).filter(
    lambda text: not is_blank(text)
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FACT, min_size=1, max_size=5))
def test_any_text_round_trips_through_jsonl(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("kb") / "kb.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    facts = load_kb(path)
    assert [fact.text for fact in facts] == [" ".join(text.split()) for text in texts]
    assert len({fact.doc_id for fact in facts}) == len(facts)


@pytest.mark.parametrize("field", ["text", "doc_id"])
def test_half_a_character_is_refused_with_its_place(tmp_path, field):
    row = {"text": "Good.", "doc_id": "a"} | {field: "b\ud800"}
    path = write(tmp_path, "kb.jsonl", '{"text": "One."}\n' + json.dumps(row))
    with pytest.raises(DataError, match=r"half of a character.*Write the whole character, or leave it out") as caught:
        load_kb(path)
    assert (caught.value.file, caught.value.row, caught.value.field) == (str(path), 2, field)


def test_a_text_that_shows_nothing_is_empty(tmp_path):
    with pytest.raises(DataError, match="empty text"):
        load_kb(write(tmp_path, "kb.jsonl", json.dumps({"text": "\u200b\u2060"})))


@pytest.mark.parametrize("value", [None, 5])
def test_a_source_of_another_type_is_named(value):
    with pytest.raises(TypeError, match=f"the file of facts must be a path .*: {value}"):
        load_kb(value)
