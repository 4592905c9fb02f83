"""What the `rueda` command says about words that it does not know: one sentence, with the nearest one."""

import os
import subprocess
from typing import List

import pytest
from launch_support import RUEDA

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

MISSPELT = {
    "ru -np 1 true": "rueda: ru is no command of rueda; did you mean run? rueda --help lists all",
    "stauts": "rueda: stauts is no command of rueda; did you mean status? rueda --help lists all",
    "preflihgt -H a": (
        "rueda: preflihgt is no command of rueda; did you mean preflight? rueda --help lists all"
    ),
    "--versio": "rueda: --versio is no command of rueda; did you mean --version? rueda --help lists all",
    "launch": "rueda: launch is no command of rueda; rueda --help lists all",
    "run --foo true": "rueda run: --foo is no option of rueda run; rueda run --help lists all",
    "run --hostfil x true": (
        "rueda run: --hostfil is no option of rueda run; did you mean --hostfile? rueda run --help lists all"
    ),
    "run -np 1 --log-dri=x true": (
        "rueda run: --log-dri is no option of rueda run; did you mean --log-dir? rueda run --help lists all"
    ),
    "run -np 1 --no-stall-chek true": (
        "rueda run: --no-stall-chek is no option of rueda run; did you mean --no-stall-check? "
        "rueda run --help lists all"
    ),
    "run -np 1 --watch-stdi true": (  # one of those that rueda itself gives
        "rueda run: --watch-stdi is no option of rueda run; rueda run --help lists all"
    ),
    "run -z true": "rueda run: -z is no option of rueda run; rueda run --help lists all",
    "preflight --heatmap x": (
        "rueda preflight: --heatmap is no option of rueda preflight; did you mean --heat-map? "
        "rueda preflight --help lists all"
    ),
    "preflight --hostfil x": (
        "rueda preflight: --hostfil is no option of rueda preflight; did you mean --hostfile? "
        "rueda preflight --help lists all"
    ),
    "bench allreduce --size 4B": (
        "rueda bench: --size is no option of rueda bench; did you mean --sizes? rueda bench --help lists all"
    ),
    "doctor --jsn": (
        "rueda doctor: --jsn is no option of rueda doctor; did you mean --json? rueda doctor --help lists all"
    ),
    "status --wach": (
        "rueda status: --wach is no option of rueda status; did you mean --watch? "
        "rueda status --help lists all"
    ),
    "status --timeout nan": (
        "rueda status: --timeout: nan is not a number from 0.1 to 60; see rueda status --help"
    ),
    "status --interval inf": (
        "rueda status: --interval: inf is not a number from 0.1 to 3600; see rueda status --help"
    ),
    "stacks --timeout -nan": (
        "rueda stacks: --timeout: -nan is not a number from 0.1 to 60; see rueda stacks --help"
    ),
    "agent --join tcp://a:1 --secret-file s --timeout nan": (
        "rueda agent: --timeout: nan is not a number from 0 to 100000000; see rueda agent --help"
    ),
    "stacks --foo": "rueda stacks: --foo is no option of rueda stacks; rueda stacks --help lists all",
    "stacks job other": "rueda stacks: other was not expected; see rueda stacks --help",
    "timeline sumary x": (
        "rueda timeline: sumary is no command of rueda timeline; did you mean summary? "
        "rueda timeline --help lists all"
    ),
    "timeline summary --htm x y": (
        "rueda timeline: --htm is no option of rueda timeline; did you mean --html? "
        "rueda timeline --help lists all"
    ),
    "env --expain": "rueda env: the only option is --explain; without it all settings are listed",
    "check-build --foo": (
        "rueda check-build: it says which frameworks this installation serves, and takes no options"
    ),
}


def call(arguments: List[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([RUEDA, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", MISSPELT)
def test_an_unknown_word_is_answered_in_one_sentence(words: str) -> None:
    done = call(words.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", MISSPELT[words] + "\n")


def test_without_a_word_the_commands_are_listed() -> None:
    bare, asked = call([]), call(["--help"])
    assert (bare.returncode, bare.stdout, asked.returncode, asked.stderr) == (2, "", 0, "")
    assert bare.stderr == asked.stdout and "rueda run -np 4 python train.py" in bare.stderr


def test_a_known_command_is_not_taken_for_another() -> None:
    assert call(["--version"]).stdout == call(["version"]).stdout == call(["run", "--version"]).stdout
    done = call(["run", "-np", "1", "sh", "-c", "echo --foo belongs to the command", "--bar"])
    assert done.returncode == 0 and "--foo belongs to the command" in done.stdout
