"""One row of a data file with where it stands, read field by field; every refusal says where. Ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from pace_dspy.data.schema import normalise_label, parse_date, to_plain
from pace_dspy.errors import DataError
from pace_dspy.text import broken_character, is_blank
from pace_dspy.types import LABELS, Label


@dataclass(frozen=True)
class Row:
    """A row in plain values.

    Attributes:
        file: The file, for messages.
        number: Row number from 1, or a word such as ``"timeline"``.
        values: The fields; null ones are absent.
    """

    file: str
    number: int | str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, file: str, number: int | str, raw: object, *, keep_null: Container[str] = ()) -> Row:
        """Make a row of what a reader gave.

        Args:
            file: The file.
            number: Row number from 1.
            raw: The record.
            keep_null: Fields that stay, as an empty list, when they are there and null.

        Raises:
            DataError: ``raw`` is not a record.
        """
        if not isinstance(raw, Mapping):
            raise DataError(
                f"a row must be an object with named fields, not {type(raw).__name__}",
                file=file,
                row=number,
                value=raw,
                remedy='Write each row as {"field": value, ...}',
            )
        plain: dict[str, Any] = to_plain(raw)
        for column in raw:
            if column in keep_null:
                plain.setdefault(column, [])
        return cls(file, number, plain)

    def refuse(self, problem: str, *, field: str, value: object = None, remedy: str) -> DataError:
        """Return the error for a field of this row."""
        return DataError(problem, file=self.file, row=self.number, field=field, value=value, remedy=remedy)

    def require(self, field: str) -> Any:
        """Return a field that must be there.

        Raises:
            DataError: It is missing or null.
        """
        if field not in self.values:
            raise self.refuse(
                f"required field {field!r} is missing or null",
                field=field,
                remedy=f"Add it; the row has: {', '.join(self.values) or 'nothing'}",
            )
        return self.values[field]

    def wrong_type(self, field: str, value: object, allowed: str) -> DataError:
        """Return the error for a value of the wrong type."""
        problem = f"wrong type {type(value).__name__}, must be {allowed}"
        return self.refuse(problem, field=field, value=value, remedy=f"Write {field} as {allowed}")

    def text(self, field: str) -> str:
        """Return a text that must be there, exactly as written.

        Raises:
            DataError: It is missing, not text, empty, or holds half a character.
        """
        value = self.require(field)
        if not isinstance(value, str):
            raise self.wrong_type(field, value, "text")
        if is_blank(value):
            raise self.refuse("empty text", field=field, value=value, remedy="Write the sentence or drop the row")
        return self.whole(field, value)

    def whole(self, field: str, value: str) -> str:
        """Return a text that UTF-8 can hold.

        Raises:
            DataError: It holds half a character (a lone surrogate).
        """
        if problem := broken_character(value):
            raise self.refuse(problem, field=field, value=value, remedy="Write the whole character, or leave it out")
        return value

    def optional_text(self, field: str) -> str | None:
        """Return a text or ``None``.

        Raises:
            DataError: It is there and is not text, or holds half a character.
        """
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong_type(field, value, "text")
        return None if value is None else self.whole(field, value)

    def identifier(self, field: str) -> str:
        """Return an id as text; whole numbers are accepted.

        Raises:
            DataError: It is missing, empty or of another type.
        """
        value = self.require(field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.wrong_type(field, value, "text or a whole number")
        if is_blank(str(value)):
            raise self.refuse("empty id", field=field, value=value, remedy="Give the row an id")
        return self.whole(field, str(value))

    def date(self, field: str) -> dt.date | None:
        """Return a date, or ``None`` when it is missing, null or empty text.

        Raises:
            DataError: It is there and is not a date of the calendar.
        """
        value = self.values.get(field)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            return parse_date(value)
        except ValueError as error:
            raise self.refuse(f"not a date ({error})", field=field, value=value, remedy="Write YYYY-MM-DD") from error

    def label(self) -> Label:
        """Return the normalised label.

        Raises:
            DataError: It is missing or unknown.
        """
        value = self.require("label")
        label = normalise_label(value)
        if label is None:
            remedy = f"Allowed: {', '.join(LABELS)} (any case, '-' or space for '_')"
            raise self.refuse("unknown label", field="label", value=value, remedy=remedy)
        return label

    def gold(self, doc_ids: Container[str], corpus_file: str) -> tuple[str, ...]:
        """Return the gold ids in the data's order, without repeats.

        Args:
            doc_ids: The ids of the case.
            corpus_file: Where they come from, for the message.

        Raises:
            DataError: The field is missing or not a list, or an id is not in the corpus.
        """
        value = self.require("gold_doc_ids")
        if not isinstance(value, list):
            raise self.wrong_type("gold_doc_ids", value, "a list of doc_ids")
        for doc_id in value:
            if str(doc_id) not in doc_ids:
                raise self.refuse(
                    "gold id is not in the corpus of its case",
                    field="gold_doc_ids",
                    value=doc_id,
                    remedy=f"Use a doc_id of {corpus_file}",
                )
        return tuple(dict.fromkeys(str(doc_id) for doc_id in value))
