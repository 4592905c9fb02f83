"""Not in this version: importing it says so."""

from rueda.errors import no_elastic

raise ModuleNotFoundError(no_elastic("rueda.keras"))
