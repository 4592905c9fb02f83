"""Not in this version: importing it says so."""

raise ModuleNotFoundError(
    "This version of rueda has no elastic module; run the job without elastic training."
)
