"""Makes the steps of a job again, in one job that nobody disturbs, and writes a digest of each state.

The stretches of the disturbed job had different numbers of ranks. Here each is made by a process set of the
first so many ranks; the others wait. With RUEDA_DETERMINISM=bitwise a sum depends on nothing but the values
and their order, so it has the bits of a job of that size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from program import BATCH, PARAMETERS, SAMPLES, digest_of, gradients_of, make_data, make_values, update

import rueda.numpy as hvd


class Training:
    """The state of program.py without its views. As many fields as its update and its digest need."""

    def __init__(self, seed: int) -> None:
        self.values = make_values(seed)
        self.step = 0
        self.size = 1
        self.ledger = hvd.elastic.Ledger(SAMPLES, BATCH, seed=seed, world=lambda: (hvd.rank(), self.size))

    def take_from_rank_0(self) -> None:
        """Those who waited have an old state."""
        kept = (self.values, self.step, self.ledger.state_dict())
        self.values, self.step, at = hvd.broadcast_object(kept, 0, name="state")
        self.ledger.load_state_dict(at)

    def make_steps(self, last: int, ranks: hvd.ProcessSet, seed: int) -> list[dict]:
        """Up to this one."""
        features, targets = make_data(seed)
        records = []
        while self.step < last:
            for i, batch in enumerate(self.ledger):
                own = gradients_of(self.values, features[batch], targets[batch])
                weight = np.float32(self.ledger.weight(i))
                sums = hvd.grouped_allreduce(
                    [own[name] * weight for name in PARAMETERS],
                    f"gradients.{self.size}",
                    process_set=ranks,
                )
                records.append({**update(self, sums, i), "size": self.size, "digest": digest_of(self)})
                if self.step == last or self.ledger.cursor == 0:
                    break
        return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stretches", type=Path, required=True, help="JSON: [[last step, ranks], …]")
    parser.add_argument("--out", type=Path, required=True, help="where rank 0 writes its records")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stretches = json.loads(options.stretches.read_text())
    largest = max(size for _, size in stretches)  # the number of ranks
    sets = {size: hvd.ProcessSet(range(size)) for size in sorted({size for _, size in stretches} - {largest})}
    hvd.init(process_sets=list(sets.values()))
    sets[largest] = hvd.global_process_set
    training = Training(options.seed)
    with open(options.out if hvd.rank() == 0 else "/dev/null", "w", encoding="ascii") as out:
        for last, size in stretches:
            training.take_from_rank_0()
            training.size = size
            if hvd.rank() < size:
                for record in training.make_steps(last, sets[size], options.seed):
                    out.write(json.dumps(record) + "\n")
    hvd.barrier()  # nobody ends while others need it
    hvd.shutdown()


if __name__ == "__main__":
    main()
