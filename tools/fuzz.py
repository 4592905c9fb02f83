"""Searches for inputs that break a parser, with libFuzzer and AddressSanitizer.

    python tools/fuzz.py                        every parser, 1,000,000 inputs each
    python tools/fuzz.py --runs 20000 facts     one parser

Builds the preset `fuzz`, which needs Debian's packages clang-16 and libclang-rt-16-dev (installed here if
this is root). What each parser was given of interest is kept in build/fuzz/corpus, so the next search goes on
from there. An input that breaks a parser stays in build/fuzz/found, and the command that repeats it is
printed. tests/fuzz/parsers.h says which parsers there are and what must hold.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
PROGRAM = BUILD / "rueda_fuzz"
PACKAGES = ["clang-16", "libclang-rt-16-dev"]
INPUT_S = 10  # one input may take so long
LARGEST = 1 << 16  # bytes of an input


def prepare() -> None:
    if shutil.which("clang++-16") is None:
        if os.geteuid() != 0:
            sys.exit(f"fuzz.py needs clang++-16: apt-get install {' '.join(PACKAGES)}")
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES], check=True)
    subprocess.run(["cmake", "--preset", "fuzz", "--log-level=WARNING"], cwd=ROOT, check=True)
    subprocess.run(["cmake", "--build", "--preset", "fuzz"], cwd=ROOT, check=True)


def environment(**more: str) -> Dict[str, str]:
    return {**os.environ, **more}


def named_in_sources() -> List[str]:
    """The parsers, before anything is installed or built."""
    texts = [path.read_text() for path in sorted((ROOT / "tests" / "fuzz").glob("*_parsers.cc"))]
    return re.findall(r'push_back\(\s*\{"(\w+)"', "".join(texts))


def refuse_unknown(names: List[str], known: List[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"fuzz.py: there is no parser {unknown[0]}; there are {', '.join(known)}")


def parsers() -> List[str]:
    return subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()


def search(name: str, runs: int) -> Tuple[str, int, int, str]:
    """The parser, inputs that it took, those kept as interesting, and what was found; empty: nothing."""
    corpus, found = BUILD / "corpus" / name, BUILD / "found" / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = environment(RUEDA_FUZZ_PARSER=name, RUEDA_FUZZ_SEEDS=str(corpus))
    subprocess.run([PROGRAM], env=seeds, check=True)
    words = [str(PROGRAM), f"-runs={runs}", f"-max_len={LARGEST}", f"-timeout={INPUT_S}"]
    words += ["-print_final_stats=1", f"-artifact_prefix={found}/", str(corpus)]
    done = subprocess.run(
        words, env=environment(RUEDA_FUZZ_PARSER=name), capture_output=True, text=True, errors="replace"
    )
    taken = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    wrong = ""
    if done.returncode != 0:
        reason = re.search(r"^(fuzz: .*|==\d+==\s*ERROR: .*|.*runtime error: .*)$", done.stderr, re.M)
        kept = re.search(r"Test unit written to (\S+)", done.stderr)
        wrong = reason.group(1) if reason else f"ended with {done.returncode}"
        if kept:
            wrong += f"\n    repeat it: RUEDA_FUZZ_PARSER={name} {PROGRAM} {kept.group(1)}"
    return name, int(taken.group(1)) if taken else 0, len(list(corpus.iterdir())), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parsers", nargs="*", help="all, where none is named")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs for each parser (1,000,000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="searches at a time")
    parser.add_argument("--no-build", action="store_true", help="take build/fuzz as it is")
    arguments = parser.parse_args()
    refuse_unknown(arguments.parsers, named_in_sources())
    if not arguments.no_build:
        prepare()
    known = parsers()
    refuse_unknown(arguments.parsers, known)
    names = arguments.parsers or known
    total = broken = 0
    print(f"{'parser':20s} {'inputs':>12s} {'kept':>8s}")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for name, taken, kept, wrong in pool.map(lambda one: search(one, arguments.runs), names):
            total += taken
            broken += 1 if wrong else 0
            print(f"{name:20s} {taken:12,d} {kept:8,d}  {wrong}", flush=True)
    print(f"{total:,d} inputs for {len(names)} parsers; {broken} of them broke")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
