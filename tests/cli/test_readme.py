"""What the README tells people to type works: its Python block and its commands, offline."""

import re
import shlex
from pathlib import Path

import pytest
from hash_embedder import HashEmbedder
from scripted import GOOD, scripted_lm

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.partition("   #")[0].strip()
    for _, block in BLOCKS
    for line in block.splitlines()
    if line.startswith("pace-dspy ")
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.txt").write_text("".join(f"Ines meets guest {i} on Friday.\n" for i in range(30)))
    (tmp_path / "facts.jsonl").write_text(
        "".join(f'{{"text": "Ines meets guest {i} on Friday."}}\n' for i in range(30))
    )
    return tmp_path


def test_the_python_block_runs(here, monkeypatch, capsys):
    (code,) = [block for language, block in BLOCKS if language == "python"]
    assert len(code.strip().splitlines()) <= 10
    monkeypatch.setattr("pace_dspy.make_embedder", lambda _: HashEmbedder())
    refused = {"response": "No. It clashes.", "cited": [2], "decision": "conflict"}
    monkeypatch.setattr("pace_dspy.backends.lm.make_lm", lambda *_: scripted_lm({**GOOD, "answerer": [refused]}))
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("No. It clashes. ['Ines meets guest ")


def test_the_commands_are_there():
    assert len(COMMANDS) >= 5
    assert {shlex.split(command)[1] for command in COMMANDS} >= {"check", "run", "evaluate", "report"}


@pytest.mark.parametrize("command", [c for c in COMMANDS if shlex.split(c)[1] in {"check", "run"}])
def test_a_command_of_the_readme_runs(cli, offline, here, command):
    arguments = shlex.split(command)[1:]
    if arguments[0] == "run":
        arguments += ["--limit", "2", "--no-cache"]
    code, out, err = cli(*arguments)
    assert code == 0, err
    assert out


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_are_targets(command):
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert command in README
    assert re.search(rf"^{command.split()[1]}: ", makefile, re.MULTILINE)
