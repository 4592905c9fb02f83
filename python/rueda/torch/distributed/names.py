"""The name of the backend, and what keeps the names of its operations apart."""

NAME = "rueda"

# How many default groups this process has made or joined. torch.distributed numbers groups from 0 in each,
# and names of operations must not come back while an old one may be open. This is no epoch: the engine goes
# on when a default group is destroyed, and may stop and start again while one lasts.
default_groups = 0
