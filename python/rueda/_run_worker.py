"""One rank of `rueda.run`: calls the function found in RUEDA_STAGE_DIR and leaves its outcome there."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Optional

from rueda.outcomes import Outcome
from rueda.pickles import dumps, pickled_error

# In an elastic job its rank changes, and its number does not.
_NUMBER = int(os.environ.get("RUEDA_RANK", "0"))


def _write(directory: str, value: Optional[bytes], error: Optional[bytes], text: str) -> None:
    members = sys.modules.get("rueda.elastic.membership")  # it cannot have changed where nobody has loaded it
    view = members.last_view() if members is not None else None
    place = (0, _NUMBER) if view is None else (view.number, view.rank)
    path = os.path.join(directory, f"result.{_NUMBER}")
    with open(path + ".part", "wb") as file:
        pickle.dump(tuple(Outcome(value, error, text, *place)), file)
    os.replace(path + ".part", path)


def main() -> int:
    """Returns the exit status."""
    directory = os.environ["RUEDA_STAGE_DIR"]
    try:
        with open(os.path.join(directory, "stage"), "rb") as file:
            path, body = pickle.load(file)
        sys.path[:] = path + [entry for entry in sys.path if entry not in path]
        func, args, kwargs = pickle.loads(body)
        value = dumps(func(*args, **kwargs))
    except BaseException as error:
        text = traceback.format_exc()
        sys.stderr.write(f"{text}User function raise error: {error}\n")
        _write(directory, None, pickled_error(error), text)
        return (
            error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else 1
        )
    _write(directory, value, None, "")
    return 0
