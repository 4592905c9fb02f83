"""Rules about one file: sizes, words, `throw`, vendor headers."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Tuple

from source import Finding, Source

MAX_LINE_CHARACTERS = 110
FILE_LINES = (400, 500)  # warning above the first, error above the second
FUNCTION_LINES = (60, 90)

# Split so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
PRIVATE_PLACES = re.compile(r"(?<![\w.-])(/wor" + r"k/|share" + r"d/)")
ISSUE = re.compile(r"(?i)\b(?:issue|bug|ticket|pull request|pr|fixes|closes)\s+#?\d+\b|\(#\d+\)")
THROW = re.compile(r"\bthrow\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# header prefix -> the one folder that may include it
VENDOR_HEADERS = {
    "nccl.h": "src/rueda/backend/nccl/",
    "mpi.h": "src/rueda/backend/mpi/",
    "cuda": "src/rueda/memory/",
    "pmix": "src/rueda/store/",
    "infiniband/": "src/rueda/transport/ucx/",
    "ucp/": "src/rueda/transport/ucx/",
    "hwy/": "src/rueda/kernels/",
    "openssl/": "src/rueda/base/",
    "tensorflow/": "src/plugins/tensorflow/",
    "xla/": "src/plugins/jax/",
    "CLI/": "src/cli/",
    "protozero/": "src/timeline/",
}


def check(source: Source) -> List[Finding]:
    findings = [*check_sizes(source), *check_words(source)]
    if source.is_cpp:
        findings += check_cpp(source)
    return findings


def graded(
    source: Source, line: int, rule: str, count: int, limits: Tuple[int, int], what: str
) -> Iterator[Finding]:
    """A warning above limits[0], an error above limits[1]."""
    if count > limits[0]:
        is_error = count > limits[1]
        sentence = f"{what} has {count} lines, aim for at most {limits[0]}."
        yield Finding(source.path, line, rule, sentence, is_error)


def check_sizes(source: Source) -> Iterator[Finding]:
    if not (source.is_cpp or source.is_python):
        return
    yield from graded(source, 1, "file-length", len(source.lines), FILE_LINES, "the file")
    for number, line in enumerate(source.lines, 1):
        if len(line) > MAX_LINE_CHARACTERS:
            sentence = f"{len(line)} characters, at most {MAX_LINE_CHARACTERS} allowed."
            yield Finding(source.path, number, "line-length", sentence)
    functions = cpp_functions(source.code) if source.is_cpp else python_functions(source)
    for name, first, last in functions:
        yield from graded(source, first, "function-length", last - first + 1, FUNCTION_LINES, name)


def check_words(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        for rule, pattern, sentence in (
            ("unfinished", UNFINISHED, "finish it or write down in the documentation what is missing."),
            ("private-place", PRIVATE_PLACES, "names a place that users of the repository do not have."),
            ("issue-number", ISSUE, "tell the story itself, not its number."),
        ):
            found = pattern.search(line)
            if found:
                yield Finding(source.path, number, rule, f"'{found[0].strip()}': {sentence}")


def check_cpp(source: Source) -> Iterator[Finding]:
    if source.path.startswith("src/"):
        for number, line in enumerate(source.code.splitlines(), 1):
            if THROW.search(line):
                yield Finding(
                    source.path, number, "throw", "outside failures are Status, bugs are RUEDA_CHECK."
                )
    for number, line in enumerate(source.lines, 1):
        found = INCLUDE.match(line)
        if found is None or not source.path.startswith(("src/", "include/")):
            continue
        for prefix, folder in VENDOR_HEADERS.items():
            if found[2].startswith(prefix) and not source.path.startswith(folder):
                sentence = f"{found[2]} may be included in {folder} only."
                yield Finding(source.path, number, "vendor-header", sentence)


def python_functions(source: Source) -> Iterator[Tuple[str, int, int]]:
    """(name, first line, last line) of each function. Empty if the file does not parse (see ruff)."""
    try:
        tree = ast.parse(source.text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno or node.lineno


CONTAINER = re.compile(r"\b(namespace|class|struct|enum|union)\b|\bextern\s*\"")
SIGNATURE = re.compile(
    r"\)\s*((const|noexcept|override|final|mutable|&+|->[\w:<>,&*\s\[\]]+|:\s[^;]*)\s*)*$", re.S
)


def cpp_functions(code: str) -> Iterator[Tuple[str, int, int]]:
    """(name, line of the opening brace's header, line of the closing brace) by counting braces.

    A heuristic: a block is a function when it opens directly inside namespaces and classes and what precedes
    it ends like a signature. Lambdas and nested blocks belong to the function around them.
    """
    stack: List[Tuple[str, str, int]] = []  # (kind, name, first line)
    begin, line = 0, 1  # where the text before the next brace starts
    for match in re.finditer(r"[{};\n]", code):
        mark = match[0]
        if mark == "\n":
            line += 1
        elif mark == ";":
            if "(" not in code[begin : match.start()].rpartition(")")[2]:  # not inside for (;;)
                begin = match.end()
        elif mark == "{":
            header = strip_preprocessor(code[begin : match.start()])
            inside_function = any(kind == "function" for kind, _, _ in stack)
            is_function = not inside_function and SIGNATURE.search(header) and "(" in header
            if CONTAINER.search(header.split("(")[0]) and not SIGNATURE.search(header):
                is_function = None
            kind = "function" if is_function else "block"
            stack.append((kind, function_name(header), line - header.strip().count("\n")))
            begin = match.end()
        else:
            begin = match.end()
            if stack:
                kind, name, first = stack.pop()
                if kind == "function":
                    yield name, first, line


def strip_preprocessor(header: str) -> str:
    return re.sub(r"^\s*#.*$", "", header, flags=re.M)


def function_name(header: str) -> str:
    found = re.search(r"([\w:~]+|operator\S+)\s*\(", header)
    return found[1] if found else "a function"
