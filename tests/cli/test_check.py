"""``pace-dspy check``: the decision with its evidence, and one line for everything a user can get wrong."""

import json

from hash_embedder import HashEmbedder
from scripted import GOOD

ASK = ("--request", "Book dinner on Friday", "--date", "2026-03-18")


def test_check_prints_the_steps_and_the_decision(cli, offline, kb_file):
    code, out, err = cli("check", "--kb", kb_file, *ASK, "--persona", "Ines")
    assert code == 0
    assert "Decision  non_conflict" in out
    assert "1. time: another plan" in out
    assert "1. other plans on Friday" in out
    assert "40 in the KB > " in out
    assert out.count("cited") == 1
    assert "5 model calls, 500 tokens read (40% from the prompt cache), 50 written" in out
    assert "Decision" not in err
    assert "deciding" in err


def test_check_as_json_holds_the_whole_trace(cli, offline, kb_file):
    code, out, _ = cli("check", "--kb", kb_file, *ASK, "--json")
    result = json.loads(out)
    assert code == 0
    assert result["decision"] == "non_conflict"
    assert result["reference_date"] == "2026-03-18"
    assert [fact["cited"] for fact in result["evidence"]] == [True, False]
    assert [stage["stage"] for stage in result["trace"]["usage"]] == [
        "planner",
        "views",
        "pre_filter",
        "post_filter",
        "answerer",
    ]


def test_a_fallback_is_shown(cli, offline, kb_file):
    offline({**GOOD, "planner": ["prose", "prose"]})
    code, out, _ = cli("check", "--kb", kb_file, *ASK)
    assert code == 0
    assert "Fallback  planner: reply unusable twice: the reply holds no complete JSON object" in out


def test_a_kept_knowledge_base_is_asked_with_its_newest_facts(cli, offline, kb_file, tmp_path, monkeypatch):
    monkeypatch.setattr("pace_dspy.cli.kb.make_embedder", lambda spec: HashEmbedder())
    place = ("--index", tmp_path / "place")
    assert cli("kb", "add", "ines", "--facts", kb_file, *place)[0] == 0
    assert cli("kb", "add", "ines", "--text", "Maya is vegan.", *place)[0] == 0
    code, out, err = cli("check", "--kb", "ines", *ASK, *place)
    assert code == 0, err
    assert "41 in the KB > " in out
    code, out, err = cli("check", "--kb", "rui", *ASK, *place)
    assert (code, out) == (2, "")
    assert "rui: no such file and no knowledge base of that name in" in one_line(err)


def one_line(err):
    lines = [line for line in err.splitlines() if line.strip()]
    assert "Traceback" not in err
    return lines[-1]


def test_wrong_use_ends_with_one_line_and_exit_2(cli, offline, kb_file, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    cases = {
        ("check", "--kb", tmp_path / "none.txt", *ASK): "none.txt",
        ("check", "--kb", empty, *ASK): "no facts",
        ("check", "--kb", kb_file, "--request", " ", "--date", "2026-03-18"): "the request is empty",
        ("check", "--kb", kb_file, *ASK, "--config", "nope"): "unknown config 'nope': use one of paper",
        ("check", "--kb", kb_file, *ASK, "--program", tmp_path / "no"): "no program at",
    }
    for arguments, text in cases.items():
        code, out, err = cli(*arguments)
        assert code == 2, (arguments, err)
        assert text in one_line(err), (text, err)
        assert out == ""


def test_a_bad_date_names_the_form(cli, kb_file):
    code, _, err = cli("check", "--kb", kb_file, "--request", "Book it", "--date", "18.3.2026")
    assert code == 2
    assert "use YYYY-MM-DD" in err


def test_an_unknown_backend_and_a_missing_key_name_the_remedy(cli, kb_file):
    code, _, err = cli("check", "--kb", kb_file, *ASK, "--backend", "gpt")
    assert code == 2
    assert "unknown backend 'gpt'; known: local, openai-compatible, openai, gemini, vllm, ollama" in err
    code, _, err = cli("check", "--kb", kb_file, *ASK, "--backend", "openai")
    assert code == 2
    assert "OPENAI_API_KEY" in err
    code, _, err = cli("check", "--kb", kb_file, *ASK, "--backend", "openai-compatible")
    assert code == 2
    assert "PACE_" in err
