"""Not in this version: importing it says so."""

import rueda.keras.elastic  # noqa: F401 (raises)
