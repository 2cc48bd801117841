"""Syntax errors in the user's words, and how parsing goes on behind one."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from cora.errors import Diagnostic, Kind
from cora.frontends.nf.grammar import lark_parser
from cora.frontends.nf.words import FOREIGN, KEYWORDS, NOT_YET, NOT_YET_HINT, not_yet
from cora.ir.span import Span

# What a user sees instead of a terminal; keywords and marks are shown as they are written.
_NAMES = {
    "NAME": "a name", "NUMBER": "a number", "DURATION": "a duration such as 30s",
    "QUANTITY": "a quantity such as 10Mbps", "IPV4": "an IPv4 address", "IPV4_PREFIX": "an IPv4 prefix",
    "IPV6": "an IPv6 address", "IPV6_PREFIX": "an IPv6 prefix", "MAC": "a MAC address",
    "STRING": "a text in quotes", "COMPARE": "a comparison", "SHIFT": "'<<' or '>>'", "SUM": "'+' or '-'",
    "PRODUCT": "'*', '/' or '%'", "$END": "the end of the file",
}

# Operators continue any expression: listing them hides what is really missing.
_OPERATORS = frozenset({"COMPARE", "SHIFT", "SUM", "PRODUCT", "VBAR", "CIRCUMFLEX", "AMPERSAND", "QMARK", "DOT", "AND",
                        "OR"})
# Groups of terminals that start one thing, from the widest: all are there, or it is another place.
_GROUPS = (
    ("a statement", frozenset({"LET", "VAR", "IF", "MATCH", "FOR", "LOOKUP", "INSERT", "TOUCH", "DELETE", "POLICE",
                               "COUNT", "FORWARD", "DROP", "REJECT", "RETURN", "NAME"})),
    ("a declaration", frozenset({"PORT", "CONFIG", "CONST", "STRUCT", "POOL", "MAP", "PAIR", "METER", "COUNTER", "ACL",
                                 "LPM", "FRAGMENTS", "UNPARSED", "VERIFY", "SOURCE_ROUTES", "LIMIT", "FN", "ON"})),
    ("an expression", frozenset({"NAME", "NUMBER", "DURATION", "QUANTITY", "IPV4", "IPV4_PREFIX", "IPV6",
                                 "IPV6_PREFIX", "MAC", "STRING", "BANG", "TILDE", "TRUE", "FALSE", "LPAR"})),
)
_COMMENT_OR_TEXT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*[\s\S]*?\*/')
_UNITS = ("units stand behind a whole number: ns, us, ms, s, min, h; B, kB, MB, GB, KiB, MiB, GiB; bps, kbps, Mbps, "
          "Gbps")


def diagnose(error: UnexpectedInput, text: str, file: str, source: str) -> tuple[Diagnostic, int]:
    """The message for a syntax error in ``text``, and the offset it stands at; ``source`` is the user's own text."""
    if isinstance(error, UnexpectedCharacters):
        return _bad_character(error, text, file, source)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    at_end = token.type == "$END"
    offset = len(text.rstrip()) if at_end else token.start_pos or 0
    opened = text.rfind("/*", max(0, offset - 1), offset + 2)
    if opened >= 0:
        return _open_comment(text, opened, file, source), offset
    before, before_span = _word_before(text, offset, file)
    span = _end_span(text, file) if at_end else token_span(token, file)
    for word, place in ((str(token), span), (before, before_span)):
        if word in NOT_YET:
            return Diagnostic(Kind.NOT_YET, not_yet(word), place, hint=NOT_YET_HINT, source=source), offset
    accepted = set(error.accepts or error.expected)
    expected = _expected(accepted)
    if at_end:
        hint = None if "NF" in accepted else "a '}' is missing: count the braces above"
        if "NF" in accepted:
            hint = "a program starts with: nf NAME {"
        message = f"expected {expected}, found the end of the file"
        return Diagnostic(Kind.SYNTAX, message, span, hint=hint, source=source), offset
    hint = (_number_hint(text[max(0, offset - 80):offset], token) or _key_hint(text, offset, expected)
            or _hint(token, before, accepted, expected))
    return Diagnostic(Kind.SYNTAX, f"expected {expected}, found '{_shown(token)}'", span, hint=hint,
                      source=source), offset


def token_span(token: Token, file: str) -> Span:
    """Where a token stands."""
    line, column = token.line or 1, token.column or 1
    return Span(file, line, column, token.end_line or line, token.end_column or column + 1)


def without_statement(text: str, offset: int) -> str:
    """The text with the statement around ``offset`` blanked out, so that parsing can go on behind it."""
    masked = _COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    start = max(masked.rfind(mark, 0, offset) for mark in ";{}") + 1
    end = _statement_end(masked, offset)
    if masked[end:end + 1] == "}" and masked.count("(", start, end) > masked.count(")", start, end):
        # In brackets that are still open a brace closes nothing: it was meant to close them.
        rest = masked[end + 1:].lstrip()
        end = len(masked) - len(rest) + 1 if rest.startswith(";") else end
    while (rest := masked[end:].lstrip()).startswith("else"):
        end = _statement_end(masked, len(masked) - len(rest))
    blank = re.sub(r"[^\n]", " ", text[start:end])
    return text[:start] + blank + text[end:]


def _statement_end(masked: str, start: int) -> int:
    depth = 0
    for mark in re.finditer(r"[{};]", masked[start:]):
        at = start + mark.start()
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            if depth == 0:
                return at
            depth -= 1
        if depth == 0:
            return at + 1
    return len(masked)


def _bad_character(error: UnexpectedCharacters, text: str, file: str, source: str) -> tuple[Diagnostic, int]:
    offset = error.pos_in_stream or 0
    character = text[offset]
    span = Span(file, error.line, error.column, error.line, error.column + 1)
    if text.startswith("/*", offset):
        return _open_comment(text, offset, file, source), offset
    hint: str | None
    if character == '"':
        message, hint = "this text has no closing quote", "close it with '\"' on the same line"
    else:
        message = f"{_character(character)} has no meaning here"
        hint = _CHARACTER_HINTS.get(character, "only comments and texts in quotes can hold it")
        if character.isalpha():
            hint = "names are made of A-Z, a-z, 0-9 and '_'"
    return Diagnostic(Kind.SYNTAX, message, span, hint=hint, source=source), offset


_CHARACTER_HINTS = {"#": "comments start with '//'", "'": "texts stand in double quotes", "@": None, "$": None,
                    "\\": None, "`": None}


def _character(character: str) -> str:
    code = f"U+{ord(character):04X}"
    if character.isascii() and character.isprintable():
        return f"'{character}'"
    return f"'{character}' ({code})" if character.isprintable() else f"the character {code}"


def _open_comment(text: str, offset: int, file: str, source: str) -> Diagnostic:
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return Diagnostic(Kind.SYNTAX, "this comment is never closed", Span(file, line, column, line, column + 2),
                      hint="close it with '*/'", source=source)


def _word_before(text: str, offset: int, file: str) -> tuple[str, Span]:
    """The word that ends just before an offset, blanks aside, and its place; empty when there is none."""
    end = len(text[:offset].rstrip())
    at = end
    while at and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at -= 1
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return text[at:end], Span(file, line, column, line, column + max(1, end - at))


def _end_span(text: str, file: str) -> Span:
    lines = text.rstrip().split("\n")
    return Span(file, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)


def _shown(token: Token) -> str:
    text = str(token)
    return text if len(text) <= 40 else text[:37] + "..."


def _expected(names: set[str]) -> str:
    found = set(names)
    groups = []
    for what, members in _GROUPS:
        if found >= members:
            found -= members
            groups.append(what)
    if (found - _OPERATORS) or groups:
        found -= _OPERATORS
    # A statement or an expression can start with nearly everything: what else could stand there is the better news.
    shown = [*groups, *sorted({_NAMES.get(n) or _written(n) for n in found})]
    if len(shown) > 6:
        shown = [*shown[:5], "another part of this construct"]
    if not shown:
        return "something else"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]


def _written(terminal: str) -> str:
    patterns: dict[str, Any] = {t.name: t.pattern for t in lark_parser().terminals}
    pattern = patterns.get(terminal)
    return f"'{pattern.value}'" if pattern is not None and pattern.type == "str" else terminal.lower()


def _number_hint(before: str, token: Token) -> str | None:
    glued = token.type == "NAME" and re.search(r"\b[0-9]\w*$", before)
    return _UNITS if glued or re.search(r"[0-9]\.$", before) else None


# How the key of each kind of state is declared; of a map it is made of fields of the entry.
_KEYS = {
    "map": "a key is a field of the entry, or several in brackets: key NAME = FIELD; key NAME = (FIELD, FIELD);",
    "meter": "a key is a field with its type, or several in brackets: key FIELD: TYPE; key (FIELD: TYPE, FIELD: TYPE);",
    "acl": "a key is fields with types and how they match, in brackets: key (FIELD: TYPE ternary, FIELD: TYPE range);",
    "lpm": "a key is one field with its type: key FIELD: TYPE;",
}
_STATE = re.compile(r"\b(map|meter|acl|lpm)\s+\w+\s*\{")


def _key_hint(text: str, offset: int, expected: str) -> str | None:
    """How a key is written, for an error inside the declaration of one."""
    masked = _COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    start = max(masked.rfind(mark, 0, offset) for mark in ";{}") + 1
    if expected == "';'" and masked[offset] != ",":
        return None  # the declaration of the key is whole
    if re.match(r"\s*key\b", masked[start:]) is None or offset <= start + masked[start:].index("key"):
        return None
    declared = [m[1] for m in _STATE.finditer(masked, 0, start)]
    return _KEYS[declared[-1]] if declared else None


def _hint(token: Token, before: str, accepted: set[str], expected: str) -> str | None:
    text = str(token)
    if "STRING" in accepted and before == "drop":
        return 'say why: drop "reason";'
    for word in (text, before):
        if word in FOREIGN:
            return FOREIGN[word]
    if before in KEYWORDS and expected == "a name":
        return f"'{before}' is a word of the language; a variable needs another name"
    if text == "=" and "COMPARE" in accepted:
        return "compare with '=='"
    if text == "-" and "NUMBER" in accepted:
        return "values are unsigned: there are no negative numbers"
    if text == "else":
        return "'else' follows the closing '}' of its 'if'"
    if accepted == {"$END"}:
        return "one file holds one program: a '}' may close it too early"
    if expected == "';'":
        return "end the statement before with ';'"
    if "EQUAL" in accepted and text in ("+", "-", "|", "&", "^", "*"):
        return f"write {before} = {before} {text} ...;"
    return None
