"""The training of single.py with TensorFlow's ParameterServerStrategy. Each process needs TF_CONFIG."""

import sys

import numpy as np
import tensorflow as tf

STEPS, BATCH = 200, 64
FOLDER = sys.argv[1]


def make_dataset():
    random = np.random.default_rng(1)
    images = random.normal(size=(8192, 64)).astype(np.float32)
    labels = np.argmax(images @ random.normal(size=(64, 10)), axis=1)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(8192, seed=1).repeat()


resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
    model.build((None, 64))
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


@tf.function
def step(batches):
    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            losses = loss_of(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    images, labels = next(batches)
    losses = strategy.run(replica_step, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def make_worker_dataset():
    return strategy.experimental_distribute_dataset(make_dataset().batch(BATCH))


batches = iter(coordinator.create_per_worker_dataset(make_worker_dataset))
for number in range(STEPS):
    loss = coordinator.schedule(step, args=(batches,))
    if number % 50 == 0:
        print(f"step {number}: loss {float(loss.fetch()):.3f}", flush=True)
coordinator.join()
print(f"end: loss {float(loss.fetch()):.3f}", flush=True)
tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{FOLDER}/model")
