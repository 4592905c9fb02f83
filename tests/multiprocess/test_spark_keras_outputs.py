"""Keras estimators on TensorFlow, and the files of a user's callbacks. Needs no Spark application."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import spark_support
from harness import ROOT

pytest.importorskip("pyspark")
pytest.importorskip("keras")
pyarrow = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.timeout(600)
ROWS = 40

PROGRAM = """
import json, os, pickle, sys
import cloudpickle
import numpy as np
if os.environ["TF_USE_LEGACY_KERAS"] == "1":
    import tf_keras as keras
else:
    import keras
from rueda.spark.common.backend import LocalBackend
from rueda.spark.common.store import Store
from rueda.spark.keras import KerasEstimator

class Tells(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        import rueda.keras as hvd
        open(os.path.join(FOLDER, f"began-{hvd.rank()}"), "x").close()

class Board(keras.callbacks.TensorBoard):
    "Needs no tensorboard, which keras's own one asks for when it writes numbers."
    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_epoch_end(self, epoch, logs=None):
        os.makedirs(os.path.join(self.log_dir, "train"), exist_ok=True)
        with open(os.path.join(self.log_dir, "train", f"events.out.tfevents.{os.getpid()}"), "a") as file:
            file.write(f"{epoch} {logs}\\n")

FOLDER = sys.argv[1]
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
model.layers[0].set_weights([np.full((3, 1), 0.1, np.float32), np.zeros(1, np.float32)])
callbacks = [
    Tells(),
    keras.callbacks.CSVLogger(os.path.join(FOLDER, "absolute.csv")),
    keras.callbacks.CSVLogger("../numbers/relative.csv"),
    keras.callbacks.ModelCheckpoint("models/{epoch}.keras"),
]
if keras.backend.backend() == "tensorflow":  # tf_keras included
    callbacks.append(Board("board", write_graph=False))
store = Store.create(os.path.join(FOLDER, "store"))
estimator = KerasEstimator(
    backend=LocalBackend(2), store=store, run_id="mine", model=model, optimizer=keras.optimizers.SGD(0.1),
    loss="mse", feature_cols=["x"], label_cols=["y"], batch_size=ROWS, epochs=3, callbacks=callbacks,
)
fitted = estimator.fit_on_parquet()
predict = fitted._loader()()
rows = np.eye(3, dtype=np.float32)

def again(made):
    "As it is after saving and loading, which needs Spark only for the files."
    values = made._packed({param.name: value for param, value in made._paramMap.items()
                           if param.name not in ("backend", "store")})
    return type(made)(**made._unpacked(pickle.loads(cloudpickle.dumps(values))))

loaded = again(estimator)
assert isinstance(loaded.getOptimizer(), keras.optimizers.SGD) and loaded.getLoss() == "mse"
assert abs(float(loaded.getOptimizer().learning_rate) - 0.1) < 1e-6
model = again(fitted)
assert isinstance(model.getModel(), keras.Model) and model.getHistory() == fitted.getHistory()
assert [a.tolist() for a in model.getModel().get_weights()] == [
    a.tolist() for a in fitted.getModel().get_weights()]
assert fitted.getOutputCols() == ["y__output"] and fitted.getLabelTypes() == {"y": "float"}
facts = {"weights": [array.tolist() for array in fitted.getModel().get_weights()],
         "predicted": predict([rows])[0].reshape(-1).tolist(), "history": fitted.getHistory(),
         "backend": keras.__name__.split(".")[0] if "tf_" in keras.__name__ else keras.backend.backend()}
print("FACTS " + json.dumps(facts))
"""


@pytest.fixture(scope="module")
def numbers():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3)).astype(np.float32)
    return x, (x @ [1.0, 2.0, -1.0] + 0.5).astype(np.float32)


def write_rows(folder, numbers):
    import pyarrow.parquet

    target = folder / "store" / "train_data"
    target.mkdir(parents=True)
    table = pyarrow.table({"x": [row.tolist() for row in numbers[0]], "y": numbers[1]})
    table = table.cast(pyarrow.schema({"x": pyarrow.list_(pyarrow.float32()), "y": pyarrow.float32()}))
    pyarrow.parquet.write_table(table, target / "part.parquet", row_group_size=ROWS // 2)


def descend(x, y, epochs, rate=0.1):
    """Weights, bias and losses of gradient descent on all rows."""
    weight, bias, losses = np.full(3, 0.1), 0.0, []
    for _ in range(epochs):
        error = x @ weight + bias - y
        losses.append(float(np.mean(error**2)))
        weight, bias = weight - rate * 2 * x.T @ error / len(x), bias - rate * 2 * error.mean()
    return weight, bias, losses


def train(folder, numbers, backend):
    """The facts that the program tells."""
    write_rows(folder, numbers)
    (folder / "program.py").write_text(PROGRAM.replace("ROWS", str(ROWS)))
    is_tf_keras = backend == "tf_keras"
    variables = {
        **os.environ,
        **spark_support.environment(folder),
        "KERAS_BACKEND": "tensorflow" if is_tf_keras else backend,
        "TF_USE_LEGACY_KERAS": str(int(is_tf_keras)),
    }
    ended = subprocess.run(
        ["timeout", "-k", "5", "240", sys.executable, str(folder / "program.py"), str(folder)],
        cwd=ROOT,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    return json.loads(ended.stdout.rpartition("FACTS ")[2])


def below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.thorough("torch", "tf_keras")
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "tf_keras"])
def test_ranks_train_as_one_process_and_files_of_callbacks_come_into_the_store(tmp_path, numbers, backend):
    pytest.importorskip(backend)
    facts = train(tmp_path, numbers, backend)
    assert facts["backend"] == backend

    weight, bias, losses = descend(*numbers, epochs=3)
    np.testing.assert_allclose(np.ravel(facts["weights"][0]), weight, rtol=1e-4)
    np.testing.assert_allclose(facts["weights"][1], [bias], rtol=1e-4)
    np.testing.assert_allclose(facts["history"]["loss"], losses, rtol=1e-4)
    np.testing.assert_allclose(facts["predicted"], weight + bias, rtol=1e-4)

    run = tmp_path / "store" / "runs" / "mine"
    logs = below(run / "logs")
    assert {"absolute.csv", "numbers/relative.csv", "history.json"} <= set(logs)
    for name in ("absolute.csv", "numbers/relative.csv"):
        assert len((run / "logs" / name).read_text().splitlines()) == 4, "a header, and one line of one rank"
    assert (tmp_path / "absolute.csv").read_bytes() == (run / "logs" / "absolute.csv").read_bytes()
    assert below(run / "checkpoints") == ["checkpoint", *(f"models/{n}.keras" for n in (1, 2, 3))]
    events = [name for name in logs if re.fullmatch(r"board/train/events.out.tfevents.\d+", name)]
    assert len(events) == (0 if backend == "torch" else 1), logs
    assert all(len((run / "logs" / name).read_text().splitlines()) == 3 for name in events)

    assert {"began-0", "began-1"} <= set(os.listdir(tmp_path)), "other callbacks run on all ranks"
    assert not [name for name in os.listdir(tmp_path) if name.startswith("rueda-spark-")], "a folder is left"


def test_a_model_of_tf_keras_is_one_wherever_it_is_used(tmp_path, numbers):
    """Also in a program, and in Spark's Python workers, where tf.keras is Keras 3."""
    pytest.importorskip("tf_keras")
    from rueda.spark.keras import package

    class Model:
        __module__ = "tf_keras.src.engine.training"

    class Own(Model):
        pass

    assert package.package_of(Own()) == "tf_keras" and package.package_of(numbers) == "keras"
    assert package.variables_of("tf_keras") == {"TF_USE_LEGACY_KERAS": "1", "KERAS_BACKEND": "tensorflow"}
    assert package.variables_of("keras")["TF_USE_LEGACY_KERAS"] == "0"


def test_a_backup_that_each_rank_would_restore_by_itself_is_refused(tmp_path):
    import keras

    from rueda.spark.common.store import Store
    from rueda.spark.keras import KerasEstimator

    estimator = KerasEstimator(
        store=Store.create(str(tmp_path)),
        model=keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]),
        optimizer="sgd",
        loss="mse",
        feature_cols=["x"],
        label_cols=["y"],
        callbacks=[keras.callbacks.BackupAndRestore("backup")],
    )
    with pytest.raises(ValueError, match=r"BackupAndRestore, .* leave it out: fit saves after each epoch"):
        estimator.fit(None)
