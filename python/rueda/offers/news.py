"""What a rank tells the driver while it runs."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from rueda.offers import sealed


class News:
    """Where a rank puts things; it is pickled with the function, whose way is as safe as the key's."""

    def __init__(self, driver: tuple[str, int], key: bytes) -> None:
        self._driver = driver
        self._key = key
        self._connection: Any = None

    def put(self, info: Any) -> None:
        """Sends a picklable object; it is lost if the driver is gone."""
        with contextlib.suppress(sealed.Broken):
            if self._connection is None:
                self._connection = sealed.connect(self._driver, self._key, sealed.HANDSHAKE_SECONDS)
            self._connection.send(sealed.NEWS, pickle.dumps(info))
