"""What models predict, in which types, and how estimators and models are saved; on one real application."""

import threading
from decimal import Decimal

import numpy as np
import pytest
import spark_support

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

from horovod.spark.torch import TorchModel  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a JVM for each of the application's processes starts slowly


def test_predictions_are_vectors_or_of_the_type_of_the_label(spark, frame, numbers, store):
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql.functions import array, col

    data = frame.select(
        "x", *(col("y").cast(kind).alias(kind) for kind in ("int", "float", "boolean")), "y"
    ).withColumn("v", array_to_vector(array("y")))
    labels = ["int", "float", "boolean", "v"]
    exact = numbers[1]

    class Four(torch.nn.Module):
        def forward(self, x):
            return [(x @ torch.tensor([[1.0], [2.0], [-1.0]]) + 0.5) for _ in labels]

    model = TorchModel(model=Four(), feature_columns=["x"], label_columns=labels)
    for types, frame_of_features in ((None, data), (dict(data.select(labels).dtypes), data.select("x"))):
        model.setLabelTypes(types)
        rows = model.transform(frame_of_features).collect()
        assert [row["int__output"] for row in rows] == [round(float(y)) for y in exact]
        np.testing.assert_allclose([row["float__output"] for row in rows], exact, rtol=1e-5, atol=1e-5)
        assert [row["boolean__output"] for row in rows] == [bool(y >= 0.5) for y in exact]
        np.testing.assert_allclose([row["v__output"].toArray()[0] for row in rows], exact, atol=1e-5)

    # What the data that are transformed do not have is remembered from the fit.
    fitted = torch_estimator(store, label_cols=["v"]).fit(data)
    assert fitted.transform(frame.select("x")).first()["v__output"].toArray().shape == (1,)


def test_an_input_shape_without_the_rows_is_that_of_one_row(frame, numbers, store):
    class One(torch.nn.Linear):
        def forward(self, x):
            assert x.shape == (3,), "one row"
            return super().forward(x)

    model = One(3, 1)
    model.load_state_dict(linear().state_dict())
    estimator = torch_estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        input_shapes=[[3]],
        batch_size=1,
        metrics=[[torch.nn.functional.l1_loss]],
    )
    fitted = estimator.fit(frame)
    (metrics,) = fitted.getHistory()[0]["train"]["all_metrics"]
    expected = numbers[0].sum(1) * 0.1
    assert metrics == {"group_0_y": pytest.approx(float(np.abs(expected - numbers[1]).mean()), rel=1e-4)}
    found = [row["y__output"] for row in fitted.transform(frame).collect()]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(RuntimeError, match=r"20 rows of the column x, .* no shape \[3\]: begin"):
        estimator.setBatchSize(ROWS).fit(frame)


def test_estimators_and_models_are_saved_also_in_pipelines(frame, numbers, store):
    from pyspark.ml import Pipeline, PipelineModel

    estimator, path = torch_estimator(store), store.join("estimator")
    Pipeline(stages=[estimator]).save(path)
    (loaded,) = Pipeline.load(path).getStages()
    assert loaded.uid == estimator.uid and loaded.getFeatureCols() == ["x"] and loaded.getStore() is None
    loaded.setStore(store).setBackend(quiet())
    fitted = Pipeline(stages=[loaded]).fit(frame)
    fitted.write().overwrite().save(path)
    with pytest.raises(Exception, match="already exists"):
        fitted.save(path)
    model = PipelineModel.load(path)
    assert model.stages[0].getHistory() == fitted.stages[0].getHistory()
    for found, expected in zip(parameters(model.stages[0]), descend(*numbers, epochs=1)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert model.transform(frame).first()["y__output"] == fitted.transform(frame).first()["y__output"]
    with pytest.raises(TypeError, match=r"TorchModel cannot be saved: .*pickle"):
        TorchModel(model=threading.Lock()).save(store.join("lock"))


def test_decimals_are_numbers_and_nulls_are_named(spark, frame, numbers, store):
    exact = frame.selectExpr("x", "cast(y as decimal(20, 8)) as y")
    fitted = torch_estimator(store).fit(exact)
    for found, expected in zip(parameters(fitted), descend(*numbers, epochs=1)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert fitted.transform(exact).schema["y__output"].dataType.simpleString() == "double"

    rows = [([Decimal("1.5"), Decimal("2"), Decimal(0)], 1.0), ([Decimal("3"), None, Decimal(1)], 2.0)]
    data = spark.session.createDataFrame(rows, "x array<decimal(10,2)>, y double")
    model = TorchModel(model=linear(), feature_columns=["x"], label_columns=["y"])
    assert model.transform(data.limit(1)).first()["y__output"] == pytest.approx(0.35)
    with pytest.raises(Exception, match="The column x has 1 nulls inside its arrays; fill or drop"):
        model.transform(data).collect()
    with pytest.raises(RuntimeError, match="The column x has 1 nulls inside its arrays; fill or drop them"):
        torch_estimator(store).fit(data.repartition(1))
