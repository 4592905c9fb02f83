"""A driver on Ray that does what its parent asks: each line of stdin names a function of ray_scenarios.

python ray_program.py ADDRESS NODE_IP      ADDRESS "local" starts a Ray of its own
"""

import json
import os
import sys
import traceback

import ray
import ray_scenarios


def main():
    address, node = sys.argv[1:3]
    fd = int(os.environ.pop("RUEDA_TEST_ANSWERS"))
    os.set_inheritable(fd, False)
    answers = os.fdopen(fd, "w", buffering=1)
    if address == "local":
        ray.init(
            num_cpus=4,
            num_gpus=2,  # Ray only counts them
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=os.environ["RUEDA_TEST_RAY"],
        )
    else:
        ray.init(address=address, _node_ip_address=node)
    print("ready", file=answers)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            answer = {"value": getattr(ray_scenarios, name)(*arguments)}
        except BaseException as error:
            answer = {"error": type(error).__name__, "text": str(error), "cause": repr(error.__cause__)}
            if not isinstance(error, (RuntimeError, ValueError, NotImplementedError, KeyboardInterrupt)):
                traceback.print_exc()
        answers.write(json.dumps(answer) + "\n")
    ray.shutdown()


if __name__ == "__main__":
    main()
