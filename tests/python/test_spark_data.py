"""What estimators read and write, and their parameters: what needs no Spark application and no Java."""

import json
import os
from decimal import Decimal

import numpy as np
import pytest

from rueda.spark.common import shards
from rueda.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

pyarrow = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    "rows, size, batch", [(10, 3, 4), (203, 2, 16), (64, 4, 16), (65, 4, 16), (7, 7, 100)]
)
def test_every_row_is_read_once_in_equal_numbers_of_steps(rows, size, batch):
    groups = [
        shards.RowGroup("f", 0, rows // 3),
        shards.RowGroup("g", 0, 0),
        shards.RowGroup("g", 1, rows - rows // 3),
    ]
    steps = shards.steps_per_epoch(rows, size, batch)
    seen = []
    for rank in range(size):
        pieces = shards.shard(groups, rank, size)
        seen += [(p.path, p.number, row) for p in pieces for row in range(p.begin, p.end)]
        own = sum(p.end - p.begin for p in pieces)
        sizes = [end - begin for begin, end in (shards.bounds(own, steps, i) for i in range(steps))]
        assert sum(sizes) == own and max(sizes) <= batch and max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert len(seen) == len(set(seen)) == rows


def test_fewer_rows_than_ranks_is_a_sentence():
    with pytest.raises(ValueError, match="3 rows for 4 ranks"):
        shards.steps_per_epoch(3, 4, 1)


@pytest.fixture
def parquet(tmp_path):
    import pyarrow.parquet

    store = Store.create(str(tmp_path))
    (tmp_path / "data").mkdir()
    for number in range(3):
        values = list(range(number * 10, number * 10 + 10))
        table = pyarrow.table({"x": values, "pair": [[float(v), -float(v)] for v in values]})
        pyarrow.parquet.write_table(table, tmp_path / "data" / f"part-{number}.parquet", row_group_size=4)
    return store


def plan(store, **changes):
    from rueda.spark.common import reading

    groups = reading.row_groups(store, store.join("data"))
    given = {"rank": 0, "size": 1, "steps": 4, "shuffle": True, **changes}
    pieces = shards.shard(groups, given.pop("rank"), given.pop("size"))
    return reading.ShardReader(
        reading.Plan(store=store, pieces=pieces, columns=["x", "pair"], seed=3, **given)
    )


@pytest.mark.parametrize("keep", [False, True])
def test_epochs_have_all_rows_in_another_order_each(parquet, keep):
    reader = plan(parquet, keep=keep)
    epochs = [[int(x) for batch in reader.epoch(number) for x in batch["x"]] for number in (0, 1, 0)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(30))
    assert epochs[0] != epochs[1] and epochs[0] == epochs[2] and epochs[0] != list(range(30))
    batch = next(reader.epoch(0))
    assert batch["pair"].shape == (7, 2) and (batch["pair"][:, 0] == batch["x"]).all()


@pytest.mark.parametrize("keep", [False, True])
def test_with_batches_of_one_row_a_rank_with_a_row_less_takes_its_first_one_twice(parquet, keep):
    assert shards.steps_per_epoch(30, 4, 1) == 8
    for rank, own in ((0, 7), (1, 8), (2, 7), (3, 8)):
        reader = plan(parquet, rank=rank, size=4, steps=8, keep=keep)
        for number in (0, 1):
            batches = [batch["x"].tolist() for batch in reader.epoch(number)]
            assert [len(batch) for batch in batches] == [1] * 8
            assert len({batch[0] for batch in batches}) == own
            assert own == 8 or batches[7] == batches[0]


def test_a_given_number_of_steps_goes_on_where_the_last_epoch_ended(parquet):
    reader = plan(parquet, steps=2, whole_epochs=False, batch_size=8, shuffle=False)
    assert [int(batch["x"][0]) for number in range(3) for batch in reader.epoch(number)] == [
        0,
        8,
        16,
        24,
        2,
        10,
    ]


def test_rows_can_be_changed_by_a_function_of_pandas_frames(parquet):
    pytest.importorskip("pandas")
    reader = plan(parquet, shuffle=False, transform=lambda frame: frame.assign(x=frame["x"] * 2))
    assert [int(x) for batch in reader.epoch(0) for x in batch["x"]] == [2 * i for i in range(30)]
    with pytest.raises(ValueError, match="keep the number of rows"):
        list(plan(parquet, transform=lambda frame: frame.head(1)).epoch(0))


def test_columns_that_no_model_can_take_are_a_sentence(parquet):
    from rueda.spark.common.reading import row_groups, to_numpy

    for values, words in (
        ([1, None], "The column x has 1 nulls; fill"),
        ([[1.0, None], [None, 2.0]], "The column x has 2 nulls inside its arrays; fill"),
        ([[1.0], None], "The column x has 1 nulls; fill"),
        ([[[1.0]], [None]], "The column x has 1 nulls inside its arrays"),
        ([Decimal("1.5"), None], "The column x has 1 nulls"),
        ([[1], [1, 2]], r"The column x has arrays of different lengths: \[1, 2\]"),
        (["a"], "type string"),
    ):
        with pytest.raises(ValueError, match=words):
            to_numpy("x", pyarrow.chunked_array([values]))
    assert to_numpy("x", pyarrow.array([[1, 2]], pyarrow.large_list(pyarrow.int32()))).shape == (1, 2)
    with pytest.raises(ValueError, match="no column z; they have x, pair"):
        row_groups(parquet, parquet.join("data"), ["x", "z"])
    with pytest.raises(ValueError, match="no Parquet data"):
        row_groups(parquet, parquet.join("nothing"))


def test_decimals_are_numbers():
    from rueda.spark.common import checks
    from rueda.spark.common.reading import to_numpy

    values = [[Decimal("1.50"), Decimal("-2.25")], [Decimal("0.1"), Decimal("3")]]
    for kind in (pyarrow.decimal128(10, 2), pyarrow.decimal256(50, 2)):
        found = to_numpy("x", pyarrow.array(values, pyarrow.list_(kind)))
        assert found.dtype == "float32" and found.tolist() == [[1.5, -2.25], [pytest.approx(0.1), 3.0]]
    checks.check_types({"x": "decimal(10,2)", "y": "array<decimal(38,18)>"}, ["x", "y"])
    with pytest.raises(ValueError, match="The column x has the type map<string,int>"):
        checks.check_types({"x": "map<string,int>"}, ["x"])


def test_predictions_have_the_type_of_the_label_or_are_vectors():
    from rueda.spark.common.predicted import outputs

    def column(label, array):
        (found,) = outputs(["p"], [array.shape[1:]], [label])
        return found.kind, found.as_arrow(array).to_pylist()

    one = np.array([[0.4], [0.6], [-1.5], [np.nan], [1e30]], np.float32)
    large = [2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1024]
    for kind, most in zip(("tinyint", "smallint", "int", "bigint"), large):
        assert column(kind, one) == (kind, [0, 1, -2, None, most])
    assert column("boolean", one)[1] == [False, True, False, False, True]
    assert column("float", one[:3])[1] == [np.float32(0.4), np.float32(0.6), -1.5]
    for kind in ("double", "decimal(10,2)", None):
        assert column(kind, one[:2]) == ("double", [np.float32(0.4), np.float32(0.6)])
    assert column("vector", one[:2]) == ("vector", [[np.float32(0.4)], [np.float32(0.6)]])
    assert column("array<float>", one[:1])[0] == "vector"
    assert column("int", np.array([[[1, 2]], [[3, 4]]])) == ("vector", [[1.0, 2.0], [3.0, 4.0]])


def test_metrics_are_functions_of_all_outputs_or_groups_for_each_of_them():
    torch = pytest.importorskip("torch")
    from rueda.spark.torch.batches import metric_groups

    def mean(output, label):
        return (output - label).abs().mean()

    def largest(output, label):
        return (output - label).abs().max()

    outputs, labels = [torch.tensor([1.0, 3.0]), torch.tensor([2.0, 8.0])], [torch.zeros(2)] * 2

    def compute(metrics, count):
        groups = metric_groups(metrics, ["a", "b"][:count])
        parts = (outputs[:count], labels[:count])
        return [{name: float(metric(*parts)) for name, metric in group.items()} for group in groups]

    both = [[mean], [mean, largest]]
    assert compute(both, 2) == [
        {"group_0_a": 2.0, "group_0_b": 5.0},
        {"group_1_a": 2.0, "group_1_b": 8.0},
    ]
    assert compute([mean, largest], 1) == [{"mean": 2.0}, {"largest": 3.0}]
    assert compute({"sum": lambda many, _: sum(one.sum() for one in many)}, 2) == [{"sum": 14.0}]
    assert compute(None, 1) == []


SETTERS = (
    "NumProc TrainReaderNumWorker ValReaderNumWorker ReaderPoolType Optimizer Model Backend Store "
    "Metrics Loss GradientCompression CompressSparseCols LossWeights SampleWeightCol FeatureCols "
    "LabelCols Validation Callbacks BatchSize ValBatchSize Epochs TrainStepsPerEpoch "
    "ValidationStepsPerEpoch RandomSeed ShufflingBufferSize Shuffle Verbose PartitionsPerProcess "
    "RunId TransformationFn TransformationEditFields TransformationRemovedFields LabelShapes "
    "InMemoryCacheAll UseGpu MpStartMethod"
)


def test_parameters_are_set_and_read_by_the_names_of_horovod():
    pytest.importorskip("pyspark")
    pytest.importorskip("torch")
    from rueda.spark.torch import TorchEstimator, TorchModel

    own = ["TrainMinibatchFn", "InputShapes", "LossConstructors"]
    of_models = ["History", "Model", "FeatureColumns", "LabelColumns", "LabelColoumns", "RunId", "OutputCols"]
    of_models += ["Optimizer", "Loss", "LossConstructors", "InputShapes"]
    for made, names in ((TorchEstimator(), SETTERS.split() + own), (TorchModel(), of_models)):
        for name in names:
            value = [name]
            assert getattr(made, f"set{name}")(value) is made
            assert getattr(made, f"get{name}")() == value, name
    assert TorchEstimator().setParams(epochs=3, inmemory_cache_all=True).getInMemoryCacheAll() is True
    with pytest.raises(TypeError, match="TorchEstimator has no parameter epoch"):
        TorchEstimator().setParams(epoch=3)
    assert TorchModel(label_columns=["a", "b"]).getOutputCols() == ["a__output", "b__output"]
    assert TorchModel().getOutputCols() == []


# ---- stores ----


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    return Store.create(
        str(tmp_path) if request.param == "folder" else f"memory://rueda-{os.urandom(4).hex()}"
    )


def test_only_the_last_checkpoint_is_kept_and_runs_are_apart(store):
    assert store.last_checkpoint("a") is None
    path = store.get_checkpoint_path("a")
    assert not store.exists(path)
    for epoch in (1, 2, 10):
        store.save_checkpoint("a", b"%d" % epoch)
    store.save_checkpoint("b", b"other")
    assert store.read(path) == b"10"
    assert store.last_checkpoint("a") == b"10" and store.last_checkpoint("b") == b"other"
    names = [
        name.rpartition("/")[2]
        for name in store.filesystem().ls(store.get_checkpoints_path("a"), detail=False)
    ]
    assert names == ["checkpoint"]
    store.save_logs("a", {"loss": [1.0]})
    store.save_logs("a", {"loss": [1.0, 0.5]})
    assert json.loads(store.read(store.get_logs_path("a") + "/history.json")) == {"loss": [1.0, 0.5]}
    for wanted in (store.get_run_path, store.get_intermediate_path):  # the latter is deleted after a fit
        for name in ("../a", "..", "a/b", ""):
            with pytest.raises(ValueError, match="no plain file name"):
                wanted(name)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(store, monkeypatch):
    store.save_checkpoint("a", b"one")
    kind = type(store.filesystem())

    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(kind, "mv", fail)
    with pytest.raises(OSError, match="no space"):
        store.save_checkpoint("a", b"two")
    assert store.last_checkpoint("a") == b"one"
    assert len(store.filesystem().ls(store.get_checkpoints_path("a"), detail=False)) == 1


def test_a_checkpoint_survives_a_file_system_that_fails_between_two_steps(monkeypatch):
    store = Store.create(f"memory://rueda-{os.urandom(4).hex()}")
    store.save_checkpoint("a", b"one")
    kind, moved = type(store.filesystem()), []
    move = kind.mv

    def fail(self, source, target, **options):
        moved.append(target)
        if len(moved) == 2:  # the one before is gone, and the next one has not got its name
            raise OSError("the network is gone")
        move(self, source, target, **options)

    monkeypatch.setattr(kind, "mv", fail)
    with pytest.raises(OSError, match="network"):
        store.save_checkpoint("a", b"two")
    assert store.last_checkpoint("a") == b"two"
    store.save_checkpoint("a", b"three")
    assert store.last_checkpoint("a") == store.read(store.get_checkpoint_path("a")) == b"three"


def test_stores_are_chosen_by_the_path():
    for nothing, error in (("", ValueError), (None, TypeError)):
        with pytest.raises(error):
            Store.create(nothing)
    assert type(Store.create("/a")) is LocalStore and Store.create("/a/").prefix_path == "file:///a"
    assert type(Store.create("hdfs://n/a")) is HDFSStore
    assert type(Store.create("memory://a")) is FilesystemStore
    assert type(Store.create("dbfs:/a")) is DBFSLocalStore
    assert Store.create("dbfs:/a").prefix_path == "file:///dbfs/a"
    assert Store.create("/a", train_path="/b").get_train_data_path() == "file:///b"
