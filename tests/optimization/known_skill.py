"""A tiny dataset, and a scripted model whose skill is known: a stage works exactly when its prompt holds a hint.

The hint is an instruction that says `HINT`, or a demo whose reply shows the thing that is not done without it.
"""

import datetime as dt
import re

import dspy
from hash_embedder import HashEmbedder
from scripted import prompt_of, scripted_lm

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import fixed_split, save_split
from pace_dspy.data.schema import content_hash
from pace_dspy.optimization import Budget, CompileSettings, prepare
from pace_dspy.optimization.snapshot import apply
from pace_dspy.program import PaceMakerProgram
from pace_dspy.types import Case, Dataset, Fact, Request

DAY = dt.date(2026, 3, 18)
HINT = "check every clause"
PARTS = {"train": ("anna", "boris"), "dev": ("clara", "dimitri"), "test": ("elena", "farid")}


def case(name, n_facts=30, n_requests=4):
    """Two gold facts a request, marked 'decisive'; those of even requests block it."""
    facts, requests = [], []
    for i in range(n_requests):
        verb = "blocks" if i % 2 == 0 else "allows"
        gold = [f"{name}-g{i}{side}" for side in "ab"]
        facts += [Fact(doc, f"{name} decisive note {doc[-2:]} {verb} visit{i} entirely.") for doc in gold]
        label = "conflict" if i % 2 == 0 else "non_conflict"
        requests.append(
            Request(name, f"q{i}", f"Book visit{i} for {name}", DAY, label, "state", tuple(gold), f"{name}: it {verb}.")
        )
    facts += [
        Fact(f"{name}-f{i}", f"{name} keeps plain thing number {i} for visit{i % n_requests} note {i % 7}.")
        for i in range(n_facts - len(facts))
    ]
    return Case(name, name.title(), None, DAY, None, tuple(facts), tuple(requests))


def dataset():
    cases = tuple(case(name) for names in PARTS.values() for name in names)
    return Dataset("known", cases, content_hash(cases))


def lines_of(prompt):
    """The numbered lines of the last part of a prompt."""
    last = prompt[max(prompt.rfind("[candidates]\n"), prompt.rfind("[evidence]\n")) :]
    return [(int(number), text) for number, text in re.findall(r"^\[(\d+)\] (.*)$", last, flags=re.M)]


def request_of(prompt):
    return prompt[prompt.rfind("[request]\n") + len("[request]\n") :].splitlines()[0]


def decisive(prompt):
    visit = re.search(r"visit\d+", request_of(prompt)).group()
    return [(number, text) for number, text in lines_of(prompt) if "decisive" in text and visit in text]


def answerer(skilled):
    def reply(prompt):
        found = decisive(prompt)
        if not skilled(prompt, '"decision": "conflict"}'):
            return {"response": "Fine.", "cited": [1], "decision": "non_conflict"}
        blocked = any("blocks" in text for _, text in found)
        return {
            "response": "Looked at closely.",
            "cited": [number for number, _ in found],
            "decision": "conflict" if blocked else "non_conflict",
        }

    return reply


def chooser(field, skilled):
    def reply(prompt):
        numbers = [number for number, _ in decisive(prompt)]
        others = [number for number, _ in lines_of(prompt) if number not in numbers]
        return {field: (numbers if skilled(prompt, f'"{field}": [') else []) + others[:3]}

    return reply


def hinted(prompt, shown):
    return HINT in prompt or shown in prompt


def always(prompt, shown):
    return True


def proposer(prompt):
    """Proposals of any optimizer: every one carries the hint."""
    if "module_advice" in prompt:
        names = sorted(set(re.findall(r"\b\w+\.predict\b", prompt)))
        return {"discussion": "d", "module_advice": dict.fromkeys(names, f"If in doubt, {HINT}.")}
    for field in ("new_instruction", "improved_instruction", "proposed_instruction"):
        if f'"{field}"' in prompt:
            return {field: f"Do the task well and {HINT}."}
    return {name: "text" for name in re.findall(r'^"(\w+)": string', prompt, flags=re.M)}


def script(**skills):
    """A script where each named stage needs the hint and every other one works anyway."""
    skill = {stage: skills.get(stage, always) for stage in ("pre_filter", "post_filter", "answerer")}
    return {
        "planner": lambda _: {"cues": [{"direction": "notes", "why": "may block", "anchors": []}]},
        "views": lambda prompt: {"queries": [f"decisive note {re.search(r'visit[0-9]+', request_of(prompt)).group()}"]},
        "pre_filter": chooser("keep", skill["pre_filter"]),
        "second_look": lambda _: {"useful": [1, 2], "missing": []},
        "post_filter": chooser("selected", skill["post_filter"]),
        "answerer": answerer(skill["answerer"]),
        None: proposer,
    }


def compilation(tmp_path, optimizer="bootstrap-rs", *, lm=None, name="made", calls=90, metric=None, **settings):
    """A prepared compile run on the tiny dataset; returns it with the model."""
    data = dataset()
    split = fixed_split(data, **PARTS)
    save_split(split, tmp_path / "split.json")
    lm = lm or scripted_lm(script(answerer=hinted))
    settings = CompileSettings(
        optimizer=optimizer,
        data="known",
        out=tmp_path / name,
        split_file=tmp_path / "split.json",
        work=tmp_path / f"work-{name}",
        index=tmp_path.parent / "known-indexes",  # built once a session
        backend="openai-compatible",
        **{"budget": Budget(metric_calls=calls), "n_distractors": 4, **settings},
    )
    return prepare(settings, metric=metric, lm=lm, dataset=data, embedder=HashEmbedder()), lm


def in_memory(result, config="paper"):
    """The program that was kept, made from what the run told, without any file."""
    program = PaceMakerProgram(PaceMakerConfig.load(config))
    for group in result.groups:
        apply(program, group.candidates[group.chosen].state)
    return program


def answers(program, examples):
    """What a program says to every example, and every prompt it sends; the answerer needs the hint."""
    lm = scripted_lm(script(answerer=hinted))
    with dspy.context(lm=lm):
        said = [program(**example.inputs()) for example in examples]
    told = [(one.decision, one.response, one.evidence, one.cited) for one in said]
    return told, [prompt_of(request) for _, request in lm.engine.requests]


def facts_in(demo):
    """The facts of the tiny dataset that a demo shows, by persona."""
    shown = {text for value in demo.values() for text in re.findall(r"^\[\d+\] (.*)$", str(value), flags=re.M)}
    return {one.case_id: shown & {fact.text for fact in one.facts} for one in dataset().cases}
