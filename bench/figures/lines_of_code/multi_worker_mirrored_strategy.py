"""The training of single.py with TensorFlow's MultiWorkerMirroredStrategy. Each process needs TF_CONFIG."""

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


strategy = tf.distribute.MultiWorkerMirroredStrategy()
is_chief = strategy.cluster_resolver.task_id == 0
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
    model.build((None, 64))
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def step(images, labels):
    with tf.GradientTape() as tape:
        losses = loss_of(labels, model(images, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def distributed_step(images, labels):
    losses = strategy.run(step, args=(images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


batches = iter(strategy.experimental_distribute_dataset(make_dataset().batch(BATCH)))
for number in range(STEPS):
    images, labels = next(batches)
    loss = distributed_step(images, labels)
    if number % 50 == 0 and is_chief:
        print(f"step {number}: loss {float(loss):.3f}", flush=True)
if is_chief:
    print(f"end: loss {float(loss):.3f}", flush=True)
# All workers must save, and only the chief's file is kept.
folder = FOLDER if is_chief else f"{FOLDER}/worker_{strategy.cluster_resolver.task_id}"
tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{folder}/model")
if not is_chief:
    tf.io.gfile.rmtree(folder)
