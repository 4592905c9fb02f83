"""Without an engine: processes meet through the store alone, by hand or by what their launcher offers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import ROOT
from meet_by import BY_HAND, LAUNCHERS, RANKS, start_by_hand, start_by_launcher

PROBE = ROOT / "build" / "release" / "rendezvous_probe"
MET_BY = {
    "file": "url",
    "tcp": "url",
    "seed": "seed",
    "openmpi": "pmix",
    "mpich": "pmi",
    "mpich-port": "pmi",
    "torchrun": "seed",
}


@pytest.mark.parametrize("how", MET_BY)
def test_all_ranks_meet_all_others(how: str, tmp_path: Path) -> None:
    if not PROBE.exists():
        pytest.skip("rendezvous_probe is not built")
    assert {*BY_HAND, *LAUNCHERS} == set(MET_BY)
    start = start_by_hand if how in BY_HAND else start_by_launcher
    output = start(PROBE, how, tmp_path)
    met = re.findall(rf"^rank (\d+) of {RANKS}, .* met by (\w+),", output, re.MULTILINE)
    assert sorted(met) == [(str(rank), MET_BY[how]) for rank in range(RANKS)], output
