"""Of the helpers of Horovod's estimators, the one that is of use beside them: `host_hash`."""

from __future__ import annotations

import os
from typing import Any

from horovod._absent import absent
from horovod.runner.common.util import host_hash as hosts

_INSTEAD = "use the estimators of horovod.spark.torch and horovod.spark.keras"
_ABSENT = frozenset(
    [
        "check_shape_compatibility",
        "check_validation",
        "clear_training_cache",
        "data_type_to_numpy",
        "data_type_to_str",
        "get_dataset_properties",
        "get_output_cols",
        "get_simple_meta_from_parquet",
        "get_spark_df_output_schema",
        "is_databricks",
        "numpy_type_to_str",
        "prepare_data",
        "pyarrow_to_spark_data_type",
        "spark_scalar_to_python_type",
        "to_list",
        "to_petastorm_fn",
    ]
)


def host_hash(salt: Any = None) -> str:
    """A text that is equal for the Spark tasks of one host, and differs between hosts and between the
    containers of YARN on one host. A salt that is not empty becomes a part of it.
    """
    parts = [str(salt)] if salt else []
    if container := os.environ.get("CONTAINER_ID"):  # set by YARN, which gives each its own resources
        parts.append(container)
    return hosts.host_hash("-".join(parts))


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        return absent(f"horovod.spark.common.util.{name}", _INSTEAD)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
