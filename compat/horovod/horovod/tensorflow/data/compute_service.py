"""Horovod's data service, served by rueda.tensorflow.data."""

from rueda.tensorflow.data.compute_service import (
    TfDataServiceConfig,
    compute_worker_fn,
    send_to_data_service,
    tf_data_service,
)

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]
