"""The name of the backend, and what keeps the names of its operations apart."""

NAME = "rueda"

# How many default groups this process has made or joined. torch.distributed numbers the groups in each from
# 0, and a name must not recur while an old operation with that name may be open. This is not an epoch: the
# engine goes on when a default group is destroyed, and may stop and start again during one.
default_groups = 0
