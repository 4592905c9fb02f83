"""What programs change of Horovod's elastic driver. The driver itself is `rueda run`."""

from __future__ import annotations

from collections.abc import Sequence

from horovod._absent import absent

ELASTIC_TIMEOUT_SECS = 600.0  # the default of --elastic-timeout for jobs that this process starts
DISCOVER_HOSTS_FREQUENCY_SECS = 1.0  # how often `rueda run` looks for hosts; changing it has no effect

ElasticDriver = absent(
    "horovod.runner.elastic.driver.ElasticDriver",
    "the driver of an elastic job is `rueda run --min-np`, which horovod.run and horovod.runner.gloo_run."
    "gloo_run_elastic start",
)
_USUAL_SECS = ELASTIC_TIMEOUT_SECS


def flags(words: Sequence[str]) -> list[str]:
    """The flags that what a program has changed here means, unless the words name them."""
    if ELASTIC_TIMEOUT_SECS == _USUAL_SECS or "--elastic-timeout" in words:
        return []
    return ["--elastic-timeout", str(ELASTIC_TIMEOUT_SECS)]
