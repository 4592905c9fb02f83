"""A linear regression on rows of Spark, for tests of estimators."""

import io

import numpy as np
import torch

from horovod.spark.common.backend import SparkBackend
from horovod.spark.torch import TorchEstimator

ROWS = 40


def make_numbers():
    """Features and labels."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3)).astype(np.float32)
    return x, (x @ [1.0, 2.0, -1.0] + 0.5).astype(np.float32)


def make_frame(session, numbers):
    """The same in Spark, with a mark on every fourth row."""
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense(x.tolist()), float(y), i % 4 == 0) for i, (x, y) in enumerate(zip(*numbers))]
    return session.createDataFrame(rows, ["x", "y", "held_out"]).cache()


def linear():
    model = torch.nn.Linear(3, 1)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.zeros_(model.bias)
    return model


def descend(x, y, epochs, rate=0.1):
    """Weights and bias after that many steps of gradient descent on all rows."""
    model, data = linear(), (torch.tensor(x), torch.tensor(y).reshape(-1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data[0]), data[1]).backward()
        optimizer.step()
    return [parameter.detach().numpy() for parameter in model.parameters()]


def quiet(num_proc=2):
    return SparkBackend(num_proc, stdout=io.StringIO(), stderr=io.StringIO(), verbose=0)


def torch_estimator(own_store, **changes):
    model = linear()
    given = {
        "backend": quiet(),
        "store": own_store,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "loss": torch.nn.MSELoss(),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": ROWS,
    }
    return TorchEstimator(**{**given, **changes})


def parameters(model):
    return [parameter.detach().numpy() for parameter in model.getModel().parameters()]
