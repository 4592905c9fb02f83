"""The name of the backend, and what keeps the names of its operations apart."""

NAME = "rueda"

# How often this process made or joined a default group: torch.distributed numbers groups from 0 each time,
# and names of operations must not come back while an old one may be open.
generation = 0
