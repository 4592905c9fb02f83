"""Rule about C++ classes: how large each is, over all files that define its functions.

A class that is spread over several files is as long as before, so its size is counted here and not per file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Tuple

from source import Finding, Source
from text import SIGNATURE, strip_preprocessor

# A warning above the first, an error above the second.
LIMITS = {"members": (24, 30), "functions": (32, 40), "lines": (400, 500)}
# A class with no more functions is a record of values, which may have as many as it needs.
RECORD_FUNCTIONS = 3
# Classes that were larger when this rule came. The figures may only fall; an entry goes with its cause.
LARGER: Dict[str, Dict[str, int]] = {
    "src/rueda/backend/mpi/library.cc Bound": {"functions": 42},
}

# What a class is given as one value and keeps as one member: each of its fields is a member.
PARTS = "Parts"

TYPE = re.compile(r"\b(?:class|struct|union)\b(?:\s+alignas\s*\([^)]*\))?\s*([\w:]*)")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static_assert|enum|class|struct|union|static)\b")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
OWNER = re.compile(r"((?:\w+::)+)(?:~?\w+|operator[^\w(]*)\s*\(")


@dataclass
class Class:
    """One class: where it is defined, and its size over all files."""

    path: str
    line: int
    name: str  # with the classes around it: Outer::Inner
    members: int = 0  # data members that are not static
    functions: int = 0  # those that are neither deleted nor defaulted
    lines: int = 0  # of its definition, and of its functions outside of it


@dataclass
class Function:
    """A member function that is defined outside of its class."""

    path: str
    owner: str
    lines: int


@dataclass
class Scope:
    """A namespace or a class whose braces are open."""

    owner: Optional[Class]  # None: a namespace
    begin: int = 0  # where its header starts


@dataclass
class Parsed:
    classes: List[Class] = field(default_factory=list)
    functions: List[Function] = field(default_factory=list)


def plain(text: str) -> str:
    """A declaration without what hides its kind: attributes, arguments of templates, access specifiers."""
    text = ACCESS.sub(" ", strip_preprocessor(text)).replace("->", "  ")
    text = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^)]*\)", " ", text, flags=re.S)
    text = re.sub(r"\boperator\s*(?:\(\s*\)|[^\w\s(]+)", "operator_", text)
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>;]*>", " ", text)
    return re.sub(r"^\s*template\b", "", text).strip()


def closing_braces(code: str) -> Dict[int, int]:
    """Where each brace that opens is closed."""
    closes: Dict[int, int] = {}
    opened: List[int] = []
    for found in re.finditer(r"[{}]", code):
        if found[0] == "{":
            opened.append(found.start())
        elif opened:
            closes[opened.pop()] = found.start()
    return closes


def count_statement(owner: Class, statement: str) -> None:
    """Adds what a statement in the body of a class declares."""
    text = plain(statement)
    if not text or re.search(r"=\s*(default|delete)$", text):
        return
    mark = re.search(r"[(={]", text)
    if mark and mark[0] == "(" and not re.match(r"\(\s*[*&]", text[mark.start() :]):
        owner.functions += not text.startswith(("using", "friend", "static_assert"))
    elif not NO_MEMBER.match(text):
        before = None
        while before != text:  # commas of initialisers separate no members
            before, text = text, re.sub(r"\([^(){}]*\)|\{[^(){}]*\}", "", text)
        owner.members += 1 + text.count(",")


def is_signature(header: str) -> bool:
    """Whether the braces behind a header hold the body of a function, and do not initialise anything."""
    is_member_initialiser = re.search(r"[:,]\s*\w+\s*$", header) is not None
    is_value = re.match(r"[^(]*=", header) is not None
    return (
        "(" in header and SIGNATURE.search(header) is not None and not is_member_initialiser and not is_value
    )


def parse(source: Source) -> Parsed:
    """The classes of a file, and the member functions that it defines outside of classes."""
    code, parsed = source.code, Parsed()
    closes = closing_braces(code)
    scopes = [Scope(None)]
    statement, begin, position, start = "", 0, 0, 0
    marks = re.compile(r"[{};]")
    while found := marks.search(code, position):
        at, position = found.start(), found.end()
        text = statement + code[begin:at]
        start = start if statement else at - len(text.lstrip())
        statement, begin = "", position
        owner = scopes[-1].owner
        if found[0] == ";":
            if owner:
                count_statement(owner, text)
        elif found[0] == "}":
            if owner:
                owner.lines += code.count("\n", scopes[-1].begin, at) + 1
            if len(scopes) > 1:
                scopes.pop()
        else:
            header = plain(text)
            is_function = is_signature(header)
            kind = TYPE.search(header.split("(")[0])
            if not is_function and kind and not re.search(r"\benum\b|=", header):
                name = f"{owner.name}::{kind[1]}" if owner else kind[1]
                made = Class(source.path, code.count("\n", 0, start) + 1, name)
                parsed.classes.append(made)
                scopes.append(Scope(made, start))
            elif not is_function and re.search(r'\bnamespace\b|\bextern\s*"', header):
                scopes.append(Scope(None))
            else:
                end = closes.get(at, len(code) - 1)
                position = end + 1
                if not is_function:  # an initialiser: the statement goes on behind it
                    statement = text + "{}"
                elif owner:
                    owner.functions += not header.startswith("friend")
                elif outside := OWNER.search(header):
                    lines = code.count("\n", start, end) + 1
                    parsed.functions.append(Function(source.path, outside[1].removesuffix("::"), lines))
                begin = position
    return parsed


def measure(sources: List[Source]) -> List[Class]:
    """All classes of src/, each with what its files have of it."""
    known: Dict[Tuple[str, str], List[Class]] = {}  # folder, name
    parts = [parse(s) for s in sources if s.path.startswith("src/") and s.is_cpp]
    for made in (each for part in parts for each in part.classes):
        known.setdefault((made.path.rpartition("/")[0], made.name), []).append(made)
    for function in (each for part in parts for each in part.functions):
        folder, name = function.path.rpartition("/")[0], function.owner
        while (folder, name) not in known and "::" in name:
            name = name.partition("::")[2]  # a namespace
        found = known.get((folder, name), [])
        stem = function.path.rpartition(".")[0]
        found = [each for each in found if each.path.rpartition(".")[0] == stem] or found
        if found:
            found[0].lines += function.lines
    for (folder, name), made_here in known.items():
        owner, _, record = name.rpartition("::")
        if record == PARTS:
            for outer, parts_of in zip(known.get((folder, owner), []), made_here):
                outer.members += parts_of.members - 1
    return [each for classes in known.values() for each in classes]


def check_class(made: Class, larger: Dict[str, int]) -> Iterator[Finding]:
    for what, (aim, most) in LIMITS.items():
        count = getattr(made, what)
        if what == "members" and made.functions <= RECORD_FUNCTIONS:
            continue
        if what in larger and count < larger[what]:
            sentence = (
                f"{made.name} has {count} {what} now: lower or remove its entry in tools/tidy/classes.py."
            )
            yield Finding(made.path, made.line, "class-size", sentence)
        elif count > aim:
            sentence = f"{made.name} has {count} {what} in all its files, aim for at most {aim}."
            is_error = count > larger.get(what, most)
            yield Finding(made.path, made.line, "class-size", sentence, is_error)


def check(
    sources: List[Source], known_larger: Optional[Dict[str, Dict[str, int]]] = None
) -> Iterator[Finding]:
    larger = dict(LARGER if known_larger is None else known_larger)
    for made in measure(sources):
        yield from check_class(made, larger.pop(f"{made.path} {made.name}", {}))
    for key in larger:
        path, _, name = key.partition(" ")
        if known_larger is not None or any(s.path == path for s in sources):
            yield Finding(
                path, 1, "class-size", f"{name} is gone: remove its entry in tools/tidy/classes.py."
            )
