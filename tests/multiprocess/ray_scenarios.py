"""What a driver on Ray is asked to do; every function returns what JSON can hold."""

import os
import signal
import socket
import subprocess
import sys
import time

import ray

import rueda.ray

KEPT = {}  # the executor that scenarios share


def where():
    """On a rank."""
    import numpy as np

    import rueda.numpy as hvd

    hvd.init()
    total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum, name="where")
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank()]
    return numbers, total.tolist(), ray.util.get_node_ip_address(), gpus, os.environ.get("TEST_WORD")


def run_with_gpus():
    news = []

    def train(first, second):
        print("a line of the rank")
        rueda.ray.log({"from": int(os.environ["RUEDA_RANK"])})
        return first + second, where()

    results = rueda.ray.run(
        train,
        (1,),
        {"second": 2},
        num_workers=2,
        gpus_per_worker=1,
        env={"TEST_WORD": "x"},
        callbacks=[news.append],
    )
    return results, news, ray.available_resources().get("CPU")


def run_on(count, strategy):
    return [found[:3] for found in rueda.ray.run(where, num_workers=int(count), strategy=strategy)]


def run_by_hosts(hosts, per_host):
    options = {"num_hosts": int(hosts), "num_workers_per_host": int(per_host)}
    return [found[:3] for found in rueda.ray.run(where, **options)]


def too_many(count, seconds="100"):
    return rueda.ray.run(where, num_workers=int(count), placement_timeout=float(seconds), verbose=0)


def horovods_too_many(count, seconds="100"):
    from horovod.ray import RayExecutor

    settings = RayExecutor.create_settings(placement_group_timeout_s=float(seconds))
    RayExecutor(settings, num_workers=int(count)).start()


def occupied(seconds, ask=too_many):
    """Somebody else holds three of the CPUs."""
    group = ray.util.placement_group([{"CPU": 3}])
    assert group.wait(30)
    try:
        return ask(2, seconds)
    finally:
        ray.util.remove_placement_group(group)


def horovods_occupied(seconds):
    return occupied(seconds, horovods_too_many)


def horovods_workers():
    """Two actors of the class that scripts start themselves."""
    from horovod.ray import BaseHorovodWorker

    assert (BaseHorovodWorker.executable, BaseHorovodWorker.__init__.__defaults__) == (None, (0, 1))
    found = []
    for rank in range(2):
        worker = ray.remote(num_cpus=1)(BaseHorovodWorker).remote(world_rank=rank, world_size=2)
        worker.update_env_vars.remote({"TEST_WORD": 5})
        worker.start_executable.remote(Counter, [rank], {"step": 3})
        names = ("HOROVOD_RANK", "HOROVOD_SIZE", "TEST_WORD", "HOROVOD_HOSTNAME")
        variables = ray.get(worker.env_vars.remote())
        kept = ray.get(worker.execute.remote(lambda counter: counter.value + counter.step))
        host = ray.get(worker.hostname.remote())
        assert ray.get(worker.get_gpu_ids.remote()) == []
        found.append([*(variables[name] for name in names), kept, host])
        ray.kill(worker)
    return found


def keep():
    """Starts an executor for the scenarios below."""
    KEPT["executor"] = rueda.ray.Executor(2)
    KEPT["executor"].start()
    return [hello.pid for hello in KEPT["executor"]._hellos]


def raise_on_rank_1():
    def fail():
        import numpy as np

        import rueda.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise LookupError("mine")
        hvd.allreduce(np.ones(1), name="never")

    return KEPT["executor"].run(fail)


def exit_with(status):
    return KEPT["executor"].run(lambda: sys.exit(int(status)))


def unsendable():
    import threading

    return KEPT["executor"].run(threading.Lock)


def again():
    return [found[0] for found in KEPT["executor"].run(where)]


def start_children(folder):
    """On a rank: one program and one fork, which leave its process tree. Leaves the pids in a file."""
    shell = "setsid sleep 600 > /dev/null 2>&1 & echo $!"
    program = int(subprocess.run(["sh", "-c", shell], capture_output=True, check=True, timeout=90).stdout)
    reader, writer = os.pipe()
    if (first := os.fork()) == 0:
        os.setsid()
        if (second := os.fork()) == 0:
            while True:
                time.sleep(10)
        os.write(writer, str(second).encode())
        os._exit(0)
    os.waitpid(first, 0)
    fork = int(os.read(reader, 32))
    rank = os.environ["RUEDA_RANK"]
    with open(f"{folder}/{rank}.part", "w") as file:
        file.write(f"{os.getpid()} {program} {fork}")
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.pids")


def start_and_wait(folder):
    """On a rank."""
    import rueda.numpy as hvd

    hvd.init()
    start_children(folder)
    hvd.barrier()
    while True:
        time.sleep(10)


def run_and_wait(folder, strategy="PACK"):
    return rueda.ray.run(start_and_wait, (folder,), num_workers=2, strategy=strategy)


def shut_down(folder):
    """The ports and the ranks of an executor after its end."""
    executor = rueda.ray.Executor(2)
    executor.start()
    executor.run(start_children, (folder,))
    executor.run(where)
    ports = [port for hello in executor._hellos for port in hello.ports]
    executor.shutdown()
    executor.shutdown()
    deadline = time.monotonic() + 60
    while taken := [port for port in ports if not is_free(port)]:
        assert time.monotonic() < deadline, f"ports {taken} of {ports} are still taken"
        time.sleep(0.02)
    return len(ports)


def shut_down_slowly():
    """Ray takes its time between the ranks, as with many nodes."""
    kill = ray.kill

    def kill_slowly(actor):
        kill(actor)
        time.sleep(1)

    ray.kill = kill_slowly
    try:
        return [found[0][0] for found in rueda.ray.run(where, num_workers=2)]
    finally:
        ray.kill = kill


def shut_down_in_a_call():
    """The seconds that the end takes while a rank computes for five minutes."""
    executor = rueda.ray.Executor(2)
    executor.start()
    executor.run(where)
    executor.run_remote(lambda: time.sleep(300))
    began = time.monotonic()
    executor.shutdown()
    return time.monotonic() - began


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections may linger in TIME_WAIT
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def other_version(folder):
    """On nodes with another rueda."""
    return rueda.ray.run(where, num_workers=1, env={"PYTHONPATH": folder, "RUEDA_TEST_FIRST": folder})


class Counter:
    """What ranks of `executables` hold."""

    def __init__(self, start, step):
        self.value, self.step = start, step

    def add(self):
        import horovod.torch as hvd

        hvd.init()
        self.value += self.step * (hvd.rank() + 1)
        return self.value


def executables():
    """Horovod's own way, by its own names."""
    from horovod.ray import RayExecutor, ray_logger

    settings = RayExecutor.create_settings(timeout_s=30, placement_group_timeout_s=60, nics={"lo"})
    executor = RayExecutor(settings, num_workers=2, cpus_per_worker=1)
    executor.start(Counter, [10], {"step": 5}, {"TEST_WORD": "y"})
    try:
        news = []
        added = executor.execute(lambda counter: counter.add())
        added += executor.execute(lambda counter: counter.add())
        executor.run(lambda: ray_logger.log({"a": 1}), callbacks=[news.append])
        word = executor.execute_single(lambda counter: (counter.value, os.environ["TEST_WORD"]))
        remote = ray.get(executor.run_remote(lambda x: x + os.environ["HOROVOD_RANK"], ["r"]))
        return added, word, remote, news, os.environ.get("RUEDA_INTERFACE")
    finally:
        executor.shutdown()


def interrupted(folder):
    """Ctrl-C in the middle of a call."""
    import threading

    def press():
        while len([name for name in os.listdir(folder) if name.endswith(".pids")]) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    return run_and_wait(folder)


def train_too_many(count):
    """Ray Train would wait for other nodes."""
    from ray.train import ScalingConfig

    from rueda.ray import RuedaTrainer

    def loop():
        raise AssertionError("started")

    return RuedaTrainer(loop, scaling_config=ScalingConfig(num_workers=int(count))).fit()


def train(folder):
    """Ray Train: rank 1 is killed after the second epoch, and training goes on from the checkpoint."""
    import tempfile

    from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig

    from rueda.ray import RuedaConfig, RuedaTrainer

    def loop(config):
        import numpy as np

        import rueda.numpy as hvd

        hvd.init()
        context = ray.train.get_context()
        assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
        first, restored = 0, ray.train.get_checkpoint()
        if restored is not None:
            with restored.as_directory() as place, open(f"{place}/epoch") as file:
                first = int(file.read()) + 1
        for epoch in range(first, config["epochs"]):
            total = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum, name="total").item()
            with tempfile.TemporaryDirectory() as place:
                saved = None
                if hvd.rank() == 0:
                    with open(f"{place}/epoch", "w") as file:
                        file.write(str(epoch))
                    saved = Checkpoint.from_directory(place)
                metrics = {"epoch": epoch, "first": first, "total": total, "word": os.environ["TEST_WORD"]}
                ray.train.report(metrics, checkpoint=saved)
            if restored is None and epoch == 1:
                ray.train.get_all_reported_checkpoints()  # waits until Train has them
                if hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

    result = RuedaTrainer(
        loop,
        train_loop_config={"epochs": 3},
        rueda_config=RuedaConfig(env={"TEST_WORD": "z"}),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=folder, name="run", failure_config=FailureConfig(max_failures=1)),
    ).fit()
    return result.metrics, os.path.isdir(result.checkpoint.path)


def say(step_and_size):
    """On a rank."""
    rueda.ray.log({"said": list(step_and_size)})


def elastic(least, first, doomed=""):
    """Nodes are named by their addresses. doomed: the process that is killed at the fifth step."""
    from elastic_sums import train

    news = []
    results = rueda.ray.run(
        train,
        (10, int(first)),
        {"doomed": (doomed, 5), "news": say},
        min_workers=int(least),
        num_workers=int(first),
        max_workers=int(first),
        callbacks=[news.append],
    )
    return results, [one["said"] for one in news]


def elastic_while_nodes_go(grown, size):
    """Goes on until the job has had so many ranks, and somebody has changed the cluster such that it has this
    size. Prints the steps that so many ranks have made.
    """
    from elastic_sums import train

    def tell(news):
        step, ranks = news["said"]
        if ranks == int(grown):
            print(f"step {step} is made by {ranks} ranks", flush=True)

    options = {"news": say, "grown": int(grown)}
    return rueda.ray.run(train, (10, int(size)), options, min_workers=1, callbacks=[tell])


def elastic_fails():
    from elastic_sums import train

    return rueda.ray.run(train, (10, 2), {"fails": True}, min_workers=2, max_workers=2)


def elastic_by_horovods_names(slots):
    from elastic_sums import train

    from horovod.ray import ElasticRayExecutor, RayExecutor
    from horovod.ray.elastic import RayHostDiscovery
    from horovod.runner.elastic.discovery import FixedHosts

    found = RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots()
    settings = ElasticRayExecutor.create_settings(min_num_proc=int(slots))
    settings.discovery = FixedHosts({address: int(slots) for address in found})
    executor = ElasticRayExecutor(settings, env_vars={"TEST_WORD": "w"}, override_discovery=False)
    executor.start()
    first = executor.run(lambda: (*train(3, int(slots)), os.environ["TEST_WORD"]))
    other = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=2)
    other.start(dict, executable_kwargs={"a": 1})
    second = other.execute(lambda made: (*train(3, 2), made))
    other.shutdown()
    return list(found.values()), first, second


def elastic_on_a_full_cluster(seconds):
    """Somebody else holds all CPUs."""
    group = ray.util.placement_group([{"CPU": 4}])
    assert group.wait(30)
    try:
        return rueda.ray.run(where, min_workers=1, elastic_timeout=float(seconds), verbose=0)
    finally:
        ray.util.remove_placement_group(group)
