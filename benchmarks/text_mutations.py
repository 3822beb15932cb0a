# SPDX-License-Identifier: Apache-2.0
"""Mutations of text: of bytes, of tokens, and of lines, drawn from a `random.Random`."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "3",
        "4",
        "7",
        "16",
        "64",
        "63",
        "256",
        "4096",
        "-64",
        "1.0",
        "0.5",
        "-0.0",
        "1e9",
        "nan",
        "inf",
    ),
    *("2147483647", "2147483648", "1099511627776", "4611686018427387903", "4611686018427387904", "-2147483649"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1" + 40 * "0",
        "08",
        "0x10",
        "1_0",
        "-inf",
    ),
)

WORDS = (
    *("f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool", "true", "false", "input", "weight", "state", "return"),
    *('"x"', '""', "[]", "[1]", "[0, 1]", "[[1], 2]", "dense<f32[1]>[1.0]", "dense<i64[2]>[0, 1]", '"a.b"', "yield"),
    *("%x", "%0", "%y", "@arena", "@buffer.0", "@main", "alias", "in_place", "relu", "add", "fused", "reshape", "()"),
)

CHARACTERS = "{}()[]%@:,=\"'$\\\x00\x01\x1b\r\n\t é→😀9-."

_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|[%@]?[\w.$-]+|\s+|.', re.ASCII | re.DOTALL)


def tokens_of(text: str) -> list[str]:
    """Names, numbers, strings, spaces and single characters; together the text."""
    return _TOKENS.findall(text)


def mutate(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """The text with one to four changes, some of which may change nothing. `others` give tokens and lines."""
    for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 3))):
        change = rng.choices((of_numbers, of_tokens, of_lines, of_characters), (5, 4, 2, 1))[0]
        text = change(rng, text, rng.choice(others))
    return text


def of_numbers(rng: random.Random, text: str, other: str) -> str:
    """One number is another: extents, offsets and attributes."""
    found = list(re.finditer(r"(?<![\w.%@$-])-?\d+(?:\.\d+)?(?:e-?\d+)?", text))
    if not found:
        return text
    place = rng.choice(found)
    old = place.group()
    near = str(int(old) + rng.choice((-64, -1, 1, 4, 16, 64))) if re.fullmatch(r"-?\d{1,18}", old) else "1"
    new = near if rng.random() < 0.5 else rng.choice(NUMBERS)
    return text[: place.start()] + new + text[place.end() :]


def of_tokens(rng: random.Random, text: str, other: str) -> str:
    """Tokens are dropped, doubled, exchanged, or replaced by those of other texts."""
    tokens = tokens_of(text)
    places = [i for i, token in enumerate(tokens) if not token.isspace()]
    if not places:
        return text
    at = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del tokens[at]
    elif kind == 1:
        tokens.insert(at, tokens[at])
    elif kind == 2:
        swap = rng.choice(places)
        tokens[at], tokens[swap] = tokens[swap], tokens[at]
    elif kind == 3:
        tokens[at] = rng.choice(WORDS)
    else:
        alike = [t for t in tokens_of(other) if t[:1] == tokens[at][:1] or t[:1].isalpha() and tokens[at][:1].isalpha()]
        tokens[at] = rng.choice(alike or WORDS)
    return "".join(tokens)


def of_lines(rng: random.Random, text: str, other: str) -> str:
    """Lines are dropped, doubled, exchanged or taken from another text."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif kind == 2:
        swap = rng.randrange(len(lines))
        lines[at], lines[swap] = lines[swap], lines[at]
    else:
        lines.insert(at, rng.choice(other.split("\n")))
    return "\n".join(lines)


def of_characters(rng: random.Random, text: str, other: str) -> str:
    """Characters are replaced, dropped, or the text is cut short."""
    if not text:
        return text
    at = rng.randrange(len(text))
    kind = rng.randrange(8)
    if kind == 0:
        return text[:at]
    if kind <= 2:
        return text[:at] + text[at + rng.randrange(1, 9) :]
    return text[:at] + rng.choice(CHARACTERS) + text[at + rng.randrange(2) :]


def of_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bits flipped, bytes dropped or doubled; or the whole in another encoding."""
    if rng.random() < 0.1:
        return data.decode("utf-8", "replace").encode(
            rng.choice(("utf-16", "utf-8-sig", "utf-32", "latin-1")), "replace"
        )
    blob = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(blob) + 1)
        if at < len(blob) and rng.random() < 0.5:
            blob[at] ^= 1 << rng.randrange(8)
        else:
            blob[at : at + rng.randrange(3)] = rng.choice((b"", b"\x00", b"\xff", bytes(blob[:at][-20:])))
    return bytes(blob)
