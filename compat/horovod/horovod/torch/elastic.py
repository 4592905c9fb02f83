"""Not in this version: importing it says so."""

import rueda.torch.elastic  # noqa: F401 (raises)
