"""Exact token counts of the embedded model without running it: its vocabulary, read from the head of the GGUF file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY, _CONTROL = 8, 9, 3
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 splits a text before merging: words, single digits, runs of punctuation, blanks."""


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file, its vocabulary included; no weights are read.

    Raises:
        ValueError: It is no GGUF file.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file")
        _, _, count = struct.unpack("<IQQ", file.read(20))
        return {_string(file): _value(file, struct.unpack("<I", file.read(4))[0]) for _ in range(count)}


def qwen2_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a Qwen2 model in GGUF form; control tokens such as ``<|im_start|>`` count as one.

    Raises:
        ValueError: It is no GGUF file, or one with another kind of tokenizer.
    """
    found = read_metadata(path)
    kind = f"{found.get('tokenizer.ggml.model')}/{found.get('tokenizer.ggml.pre')}"
    if kind != "gpt2/qwen2":
        raise ValueError(f"{path} has a tokenizer of kind {kind}; only gpt2/qwen2 is read here")
    tokens, types = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in found["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return made


def counter(path: Path) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text."""
    tokenizer = qwen2_tokenizer(path)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def chatml(system: str, user: str) -> str:
    """Return a prompt as the embedded model's chat template writes it, the start of the reply included."""
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def _string(file: BinaryIO) -> str:
    return file.read(struct.unpack("<Q", file.read(8))[0]).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(count)]
    if kind not in _SCALARS:
        raise ValueError(f"{file.name} holds a value of unknown type {kind}")
    form = f"<{_SCALARS[kind]}"
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
