"""Not in this version: importing it says so."""

raise ModuleNotFoundError(
    "This version of rueda.keras has no elastic module; run the job without elastic training."
)
