"""Not in this version: importing it says so."""

import rueda.tensorflow.elastic  # noqa: F401 (raises)
