"""A rewriting grammar over tokens: a rule's pattern is a regular expression over token kinds (ours).

``"the? ORD of MONTH YEAR?"`` reads: an optional "the", an ordinal, "of", a month, perhaps a year. Capitals are token
kinds, lower-case words are literal. A rule replaces what it matched by one token that holds its meaning, so later
rules can build on it: ``DATE to DATE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pace_dspy.temporal.context import Context
from pace_dspy.temporal.lexer import Token, kind

_NAME = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")


@dataclass(frozen=True, slots=True)
class Match:
    """The tokens a rule matched, and those around them."""

    tokens: Sequence[Token]
    start: int
    end: int

    def all(self, *names: str) -> list[Any]:
        """Return the values of all matched tokens of these kinds, in order."""
        kinds = [kind(name) for name in names]
        return [token.value for token in self.tokens[self.start : self.end] if token.kind in kinds]

    def get(self, *names: str) -> Any:
        """Return the value of the first matched token of these kinds, or ``None``."""
        found = self.all(*names)
        return found[0] if found else None

    def has(self, *names: str) -> bool:
        """Return whether a token of one of these kinds was matched."""
        return bool(self.all(*names))

    def later(self, *names: str) -> Any:
        """Return the value of the next token of these kinds after the match, or ``None``."""
        kinds = [kind(name) for name in names]
        return next((token.value for token in self.tokens[self.end :] if token.kind in kinds), None)


Action = Callable[[Match, Context], "tuple[str, Any] | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled pattern and its action, which returns the new token's kind and value, or ``None`` to decline."""

    pattern: re.Pattern[str]
    needs: frozenset[str]
    action: Action


def compile_pattern(template: str) -> re.Pattern[str]:
    """Compile a template; names become token characters, everything else is regular-expression syntax."""
    return re.compile(_NAME.sub(lambda match: kind(match.group()), template).replace(" ", ""))


class Grammar:
    """An ordered list of rules; each is applied until it finds nothing more before the next has its turn."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def rule(self, *templates: str, needs: str) -> Callable[[Action], Action]:
        """Register an action for templates.

        Args:
            *templates: Alternatives, tried in order.
            needs: Space-separated kinds, one of which every match contains (a fast way to skip the rule).
        """

        def register(action: Action) -> Action:
            required = frozenset(kind(name) for name in needs.split())
            self.rules.extend(Rule(compile_pattern(template), required, action) for template in templates)
            return action

        return register

    def apply(self, tokens: list[Token], context: Context) -> list[Token]:
        """Return the tokens with everything understood replaced by meanings."""
        kinds = "".join(token.kind for token in tokens)
        present = set(kinds)
        for rule in self.rules:
            if rule.needs.isdisjoint(present):
                continue
            position = 0
            while match := rule.pattern.search(kinds, position):
                position = match.start() + 1
                if match.end() == match.start():
                    continue
                result = rule.action(Match(tokens, match.start(), match.end()), context)
                if result is None:
                    continue
                name, value = result
                new = Token(kind(name), value, tokens[match.start()].start, tokens[match.end() - 1].end)
                tokens = [*tokens[: match.start()], new, *tokens[match.end() :]]
                kinds = kinds[: match.start()] + new.kind + kinds[match.end() :]
                present = set(kinds)
        return tokens
