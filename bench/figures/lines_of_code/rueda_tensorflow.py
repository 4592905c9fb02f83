"""The training of single.py with rueda: rueda run -np 2 python rueda_tensorflow.py FOLDER"""

import sys

import numpy as np
import tensorflow as tf

import rueda.tensorflow as hvd

STEPS, BATCH = 200, 64
FOLDER = sys.argv[1]


def make_dataset():
    random = np.random.default_rng(1)
    images = random.normal(size=(8192, 64)).astype(np.float32)
    labels = np.argmax(images @ random.normal(size=(64, 10)), axis=1)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(8192, seed=1).repeat()


hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
model.build((None, 64))
optimizer = tf.keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


batches = iter(make_dataset().shard(hvd.size(), hvd.rank()).batch(BATCH // hvd.size()))
for number in range(STEPS):
    images, labels = next(batches)
    loss = hvd.allreduce(step(images, labels))
    if number % 50 == 0 and hvd.rank() == 0:
        print(f"step {number}: loss {float(loss):.3f}", flush=True)
if hvd.rank() == 0:
    print(f"end: loss {float(loss):.3f}", flush=True)
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{FOLDER}/model")
