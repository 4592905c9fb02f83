"""What estimators of all frameworks do: prepare the data, run the training on ranks, and make a model of
it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from pyspark.ml import Estimator

from rueda.spark.common import checks, params
from rueda.spark.common.backend import Backend, SparkBackend
from rueda.spark.common.data import Columns, Prepared, write
from rueda.spark.common.reading import check_columns, column_types, row_groups
from rueda.spark.common.runs import alone
from rueda.spark.common.saving import Saved
from rueda.spark.common.schedule import Schedule
from rueda.spark.common.store import FilesystemStore


class SharedEstimator(Saved, Estimator):  # type: ignore[misc]
    """The base of `TorchEstimator` and `KerasEstimator`."""

    param_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        params.start(self, values)

    def _required(self, *names: str) -> None:
        for name in names:
            if self.getOrDefault(name) is None:
                raise ValueError(f"{type(self).__name__} needs {name}.")

    def _check(self) -> None:
        """Refuses parameters that cannot be meant."""
        self._required("store", "model", "feature_cols", "label_cols")
        get = self.getOrDefault
        checks.check_parameters({name: get(name) for name in self.param_defaults})
        checks.check_kind("store", get("store"), FilesystemStore, "a store, as Store.create(…) makes it")
        if get("backend") is not None:
            checks.check_kind("backend", get("backend"), Backend, "a SparkBackend or a LocalBackend")

    def _fit(self, dataset: Any) -> Any:
        self._check()
        run_id = self._run_id()
        with alone(self.getOrDefault("store").get_run_path(run_id), run_id):
            return self._fit_run(dataset, run_id)

    def _fit_run(self, dataset: Any, run_id: str) -> Any:
        if not hasattr(dataset, "schema"):
            raise TypeError(f"fit takes a DataFrame of Spark, not {type(dataset).__name__}.")
        names = self._columns().all()
        check_columns(dataset.columns, names)
        if self.getOrDefault("transformation_fn") is None:
            checks.check_types(dict(dataset.dtypes), names)
        store = self.getOrDefault("store")
        folder = store.get_intermediate_path(run_id)
        backend = self._backend()
        files = (self.getOrDefault("partitions_per_process") or 0) * backend.num_processes()
        split_by = (self.getOrDefault("validation"), self.getOrDefault("random_seed"))
        try:
            prepared = checks.wrapped(
                lambda: write(dataset, store, folder, names, split_by, files),
                f"The DataFrame could not be written to {folder}",
            )
            val_rows = prepared.val_rows if split_by[0] else None
            checks.check_rows(prepared.train_rows, val_rows, backend.num_processes())
            return self._train(backend, self._schedule(run_id, prepared, dict(dataset.dtypes)))
        finally:
            store.delete(folder)

    def fit_on_parquet(
        self, params: Optional[Mapping[Any, Any]] = None, *, train_path: Any = None, val_path: Any = None
    ) -> Any:
        """Like fit, on Parquet files: below these URLs, else where the store has its training and
        validation data.

        Vectors of Spark ML must be stored as arrays. Without a folder of validation data there is no
        validation.
        """
        if params:
            return self.copy(params).fit_on_parquet(train_path=train_path, val_path=val_path)
        self._check()
        store, backend = self.getOrDefault("store"), self._backend()
        names = self._columns().all() if self.getOrDefault("transformation_fn") is None else []
        train = row_groups(store, train_path or store.get_train_data_path(), names)
        val_url = val_path or store.get_val_data_path()
        has_val = bool(val_path) or store.exists(val_url)
        prepared = Prepared(train, row_groups(store, val_url, names) if has_val else [])
        kinds = column_types(store, train_path or store.get_train_data_path())
        val_rows = prepared.val_rows if has_val else None
        checks.check_rows(prepared.train_rows, val_rows, backend.num_processes())
        run_id = self._run_id()
        with alone(store.get_run_path(run_id), run_id):
            return self._train(backend, self._schedule(run_id, prepared, kinds))

    def _run_id(self) -> str:
        return self.getOrDefault("run_id") or f"run-{secrets.token_hex(6)}"

    def _columns(self) -> Columns:
        names = [self.getOrDefault(name) for name in ("feature_cols", "label_cols")]
        return Columns(list(names[0]), list(names[1]), self.getOrDefault("sample_weight_col"))

    def _backend(self) -> Backend:
        given = self.getOrDefault("backend")
        if given is not None and self.getOrDefault("num_proc") is not None:
            raise ValueError("Give either backend or num_proc: the backend has a number of its own.")
        return given or SparkBackend(self.getOrDefault("num_proc"))

    def _schedule(self, run_id: str, prepared: Prepared, kinds: Mapping[str, str]) -> Schedule:
        """kinds: types of the columns by name."""
        get = self.getOrDefault
        return Schedule(
            store=get("store"),
            run_id=run_id,
            data=prepared,
            columns=self._columns(),
            label_types={name: kinds[name] for name in get("label_cols") if name in kinds},
            epochs=get("epochs"),
            batch_size=get("batch_size"),
            val_batch_size=get("val_batch_size") or get("batch_size"),
            steps=get("train_steps_per_epoch"),
            val_steps=get("validation_steps_per_epoch"),
            shuffle=get("shuffle"),
            seed=get("random_seed") or 0,
            keep=get("inmemory_cache_all"),
            transform=get("transformation_fn"),
        )

    def _train(self, backend: Backend, schedule: Schedule) -> Any:
        """Runs the training on ranks; returns the model."""
        raise NotImplementedError
