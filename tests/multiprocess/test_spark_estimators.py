"""Estimators on rows of one real application with two slots."""

import copy
import importlib.util
import io
import json
import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import spark_support
from harness import ROOT

if why := spark_support.missing():
    pytest.skip(why, allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from spark_rows import (  # noqa: E402
    ROWS,
    descend,
    linear,
    parameters,
    quiet,
    torch_estimator,
)

from horovod.spark.common.backend import LocalBackend, SparkBackend  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402
from horovod.spark.torch import TorchEstimator, TorchModel  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a JVM for each of the application's processes starts slowly


@pytest.fixture(scope="module")
def keras():
    """Keras on the backend it has in this process already, else on JAX, which starts fastest."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    before = os.environ.get("KERAS_BACKEND")
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "jax" if importlib.util.find_spec("jax") else "torch"
    import keras

    os.environ.pop("KERAS_BACKEND", None)
    if before is not None:
        os.environ["KERAS_BACKEND"] = before
    return keras


def assert_an_optimizer_goes_on(model, numbers):
    """The optimizer that a model has after two epochs: momentum included, of the model's parameters."""
    data = [torch.tensor(numbers[0]), torch.tensor(numbers[1]).reshape(-1, 1)]
    module, optimizer = copy.deepcopy((model.getModel(), model.getOptimizer()))
    for _ in range(3):
        optimizer.zero_grad()
        model.getLoss()(module(data[0]), data[1]).backward()
        optimizer.step()
    for found, expected in zip(module.parameters(), descend(*numbers, epochs=5)):
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4)


def test_two_ranks_train_as_one_process_on_all_rows_and_a_run_is_resumed(frame, numbers, store):
    estimator = torch_estimator(store, run_id="mine", epochs=2)
    path = store.get_checkpoint_path("mine")
    assert not store.exists(path)
    model = estimator.fit(frame)
    for found, expected in zip(parameters(model), descend(*numbers, epochs=2)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert store.exists(path)
    history = model.getHistory()
    assert [one["epoch"] for one in history] == [0, 1]
    assert all(set(one) == {"epoch", "train"} and one["train"]["all_metrics"] == [] for one in history)
    assert_an_optimizer_goes_on(model, numbers)

    resumed = estimator.setEpochs(5).fit(frame)
    for found, expected in zip(parameters(resumed), descend(*numbers, epochs=5)):  # momentum included
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert resumed.getHistory()[:2] == history and len(resumed.getHistory()) == 5
    assert set(torch.load(io.BytesIO(store.read(path)))) >= {"model", "optimizer"}
    assert sorted(os.listdir(store.path(store.get_run_path("mine")))) == ["checkpoints", "logs"]
    assert os.listdir(store.path(store.join("intermediate"))) == []


def test_validation_metrics_weights_and_remainders(frame, store):
    from pyspark.sql.functions import lit

    model = linear()
    estimator = torch_estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        validation="held_out",
        metrics={"worst": lambda output, label: (output - label).abs().max()},
        sample_weight_col="w",
        run_id="mine",
        batch_size=7,  # 30 rows, 15 of each rank: 3 steps of 5 rows
        epochs=3,
        train_reader_num_workers=2,
    )
    history = estimator.fit(frame.withColumn("w", lit(2.0))).getHistory()
    assert [one["epoch"] for one in history] == [0, 1, 2]
    for part in ("train", "validation"):
        for name in ("loss", "worst"):
            assert history[2][part][name] < history[0][part][name]
        assert history[2][part]["all_metrics"] == [{"worst": history[2][part]["worst"]}]
    logs = json.loads(store.read(store.get_logs_path("mine") + "/history.json"))
    assert set(logs) == {"loss", "worst", "val_loss", "val_worst"}
    assert logs["val_worst"] == [one["validation"]["worst"] for one in history]


@pytest.mark.thorough
def test_transform_keeps_all_columns_and_adds_predictions(frame, numbers, store):
    model = torch_estimator(store, validation=0.25).fit(frame)
    predicted = model.transform(frame)
    assert predicted.columns == ["x", "y", "held_out", "y__output"]
    rows = predicted.collect()
    with torch.no_grad():
        expected = model.getModel()(torch.tensor(numbers[0])).reshape(-1).numpy()
    np.testing.assert_allclose([row["y__output"] for row in rows], expected, rtol=1e-5)
    assert [row["y"] for row in rows] == [row["y"] for row in frame.collect()]
    with pytest.raises(ValueError, match="already; choose others with setOutputCols"):
        model.transform(predicted)

    wide = TorchModel(model=torch.nn.Linear(3, 4), feature_columns=["x"], label_columns=["y"])
    row = wide.setOutputCols(["scores"]).transform(frame).first()
    assert row["scores"].toArray().shape == (4,) and row["held_out"] is True


def test_a_batch_function_of_the_user_several_passes_and_parquet(spark, frame, numbers, store):
    from pyspark.ml.functions import vector_to_array

    flat = frame.select(vector_to_array("x", "float32").alias("x"), "y")
    flat.repartition(3).write.parquet(store.get_train_data_path())

    def minibatch(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
        optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, sample_weights)
        loss.backward()
        optimizer.step()
        return outputs, loss

    model = torch_estimator(store, epochs=2, train_minibatch_fn=minibatch).fit_on_parquet()
    for found, expected in zip(parameters(model), descend(*numbers, epochs=2)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    # Four batches of ten rows, two of each rank: their gradients add up to one step of twice the mean.
    backend = LocalBackend(2)
    model = torch_estimator(
        store, backend=backend, batch_size=10, backward_passes_per_step=2
    ).fit_on_parquet()
    for found, expected in zip(parameters(model), descend(*numbers, epochs=1, rate=0.2)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_cross_validator_fits_two_models_at_once_and_leaves_the_environment_alone(
    spark, frame, store, tmp_path
):
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    def tell(epoch, numbers):
        assert os.environ["GIVEN"] == "to ranks", "the variables of the backend"

    backend = LocalBackend(1, env={"GIVEN": "to ranks"})
    estimator = torch_estimator(store, backend=backend, batch_size=10, callbacks=[tell])
    grid = ParamGridBuilder().addGrid(estimator.epochs, [1, 6]).build()
    evaluator = RegressionEvaluator(labelCol="y", predictionCol="y__output")
    before = dict(os.environ)
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, parallelism=2, seed=1
    )
    found = validator.fit(frame)
    assert dict(os.environ) == before
    assert found.avgMetrics[1] < found.avgMetrics[0], "more epochs, less error"
    assert len(found.bestModel.getHistory()) == 6
    runs = {path.parent.name for path in tmp_path.glob("runs/*/logs")}
    assert len(runs) == 5, "two folds of two models, and the best one on all rows"


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"feature_cols": ["z"]}, "no column z; they have x, y, held_out"),
        ({"validation": 1.5}, "between 0 and 1"),
        ({"store": None}, "needs store"),
        ({"num_proc": 2}, "either backend or num_proc"),
        ({"feature_cols": "x"}, "feature_cols must be a list of names"),
        ({"store": "/folder"}, "store must be a store"),
        ({"model": 5}, r"model must be a torch\.nn\.Module"),
        ({"optimizer": "adam"}, r"optimizer must be a torch\.optim\.Optimizer"),
        ({"loss": "mse"}, "loss must be a list of functions"),
        ({"metrics": ["acc"]}, "metrics must be a list of functions"),
        ({"run_id": ".."}, "no plain file name"),
        ({"label_cols": ["held_out", "y"]}, "The model has 1 outputs, but there are 2 label columns"),
    ],
)
def test_mistakes_are_named(frame, store, changes, sentence):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=sentence):
        torch_estimator(store, **changes).fit(frame)
    with pytest.raises(TypeError, match="has no parameter epoch"):
        TorchEstimator(epoch=3)


def test_rows_that_cannot_be_used_are_refused_before_ranks_start(spark, frame, store, monkeypatch):
    monkeypatch.setattr(SparkBackend, "run", lambda *_, **__: pytest.fail("ranks were started"))
    kinds = "x double, y double, s string, v boolean"
    rows = spark.session.createDataFrame([(1.0, 1.0, "a", None), (2.0, 2.0, "b", True)], kinds)
    for data, changes, words in (
        (frame.limit(1), {}, "1 training rows for 2 ranks"),
        (rows, {"feature_cols": ["s"]}, "The column s has the type string"),
        (rows, {"feature_cols": ["x"], "validation": "v"}, "1 training rows for 2 ranks"),  # null: training
        ([1], {}, "fit takes a DataFrame"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            torch_estimator(store, **changes).fit(data)
    blocked = Store.create(os.path.join(store.path(store.prefix_path), "file"))
    store.write(blocked.prefix_path, b"no folder")
    with pytest.raises(RuntimeError, match="The DataFrame could not be written to file://"):
        torch_estimator(blocked).fit(frame)
    assert store.read(blocked.prefix_path) == b"no folder"


def test_losses_are_made_on_the_ranks_and_the_validation_column_may_be_a_feature(frame, store):
    driver = os.getpid()

    def make():
        assert os.getpid() != driver
        return torch.nn.MSELoss()

    class WithFlag(torch.nn.Linear):
        def forward(self, x, flag):
            return super().forward(x)

    model = WithFlag(3, 1)
    estimator = torch_estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=None,
        loss_constructors=[make],
        feature_cols=["x", "held_out"],
        validation="held_out",
    )
    fitted = estimator.fit(frame)
    assert set(fitted.getHistory()[0]) == {"epoch", "train", "validation"}
    with pytest.raises(ValueError, match="The column x has 1 nulls"):
        fitted.transform(frame.selectExpr("if(true, null, x) as x", "y", "held_out"))


def test_keras_epochs_go_on_where_the_last_ended_also_unshuffled(keras, store):
    import pyarrow.parquet

    from rueda.spark.common.data import Columns
    from rueda.spark.common.reading import Plan, row_groups
    from rueda.spark.common.shards import shard
    from rueda.spark.keras.training import Batches

    os.mkdir(store.path(store.join("data")))
    table = pyarrow.table({"x": list(map(float, range(10)))})
    pyarrow.parquet.write_table(table, store.path(store.join("data", "part.parquet")))
    pieces = shard(row_groups(store, store.join("data")), 0, 1)
    plan = Plan(store, pieces, ["x"], steps=1, shuffle=False, seed=0, whole_epochs=False, batch_size=4)
    for epoch, expected in ((0, [0, 4, 8]), (None, [0, 0, 0])):
        batches, firsts = Batches(plan, Columns(["x"], ["x"], None), ([], None), epoch), []
        for _ in range(3):
            firsts.append(int(batches[0][0][0]))
            batches.on_epoch_end()
        assert firsts == expected


def keras_estimator(keras, store, **changes):
    from horovod.spark.keras import KerasEstimator

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.layers[0].set_weights([np.full((3, 1), 0.1, np.float32), np.zeros(1, np.float32)])
    given = {
        "backend": quiet(),
        "store": store,
        "model": model,
        "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
        "loss": keras.losses.MeanSquaredError(),
        "metrics": ["mae"],
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": ROWS,
    }
    return KerasEstimator(**{**given, **changes})


@pytest.mark.thorough
def test_keras_ranks_train_as_one_process_on_all_rows_and_a_run_is_resumed(keras, frame, numbers, store):
    estimator = keras_estimator(keras, store, run_id="mine", epochs=2)
    model = estimator.fit(frame)
    resumed = estimator.setEpochs(5).fit(frame)
    for epochs, found in ((2, model), (5, resumed)):
        weight, bias = found.getModel().get_weights()
        expected = descend(*numbers, epochs=epochs)
        np.testing.assert_allclose(weight.T, expected[0], rtol=1e-4)
        np.testing.assert_allclose(bias, expected[1], rtol=1e-4)
    assert len(resumed.getHistory()["loss"]) == 5 and "mae" in resumed.getHistory()
    resumed.save(store.join("model"))
    loaded = type(resumed).load(store.join("model"))
    assert loaded.uid == resumed.uid and loaded.getHistory() == resumed.getHistory()
    assert loaded.transform(frame).first() == resumed.transform(frame).first()


@pytest.mark.thorough
def test_keras_returns_the_best_model_with_classes_of_the_user_and_predicts(keras, frame, numbers, store):
    from horovod.keras.callbacks import BestModelCheckpoint

    class Own(keras.layers.Dense):
        pass

    model = keras.Sequential([keras.Input((3,)), Own(4), keras.layers.Dense(1)])
    estimator = keras_estimator(
        keras,
        store,
        model=model,
        custom_objects={"Own": Own},
        optimizer=keras.optimizers.SGD(0.05),
        validation="held_out",
        batch_size=4,
        epochs=3,
        checkpoint_callback=BestModelCheckpoint(monitor="val_loss"),
    )
    fitted = estimator.fit(frame)
    assert len(fitted.getHistory()["val_loss"]) == 3
    expected = fitted.getModel().predict(numbers[0][:3], verbose=0).reshape(-1)
    rows = fitted.transform(frame.limit(3)).collect()
    np.testing.assert_allclose([row["y__output"] for row in rows], expected, rtol=1e-4)


# ---- what is shown to users; the session is that of this file ----

PAGE = (ROOT / "docs/spark.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
DATA = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture
def session_stays(spark, monkeypatch):
    """Programs may end their session, but this one is needed longer."""
    monkeypatch.setattr(type(spark.session), "stop", lambda _: None)


@pytest.mark.parametrize("block", BLOCKS, ids=["run", "elastic", "estimator"])
def test_programs_of_the_page_run_as_they_stand(session_stays, block, capsys):
    exec(compile(block, "docs/spark.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert re.search(r"\[\(0, [\d.e-]+\), \(1, ", said) or "y__output" in said


@pytest.mark.skipif(not DATA.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
@pytest.mark.thorough("estimator")
@pytest.mark.parametrize("name", ["run_function", "torch_estimator", "keras_estimator"])
def test_examples_learn(session_stays, request, monkeypatch, capsys, name):
    if name == "keras_estimator":
        request.getfixturevalue("keras")
    folder = ROOT / "examples/spark"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "2", "--rows", "3000"])
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(said.rpartition("test accuracy ")[2].split(" %")[0]) > 55, said
