"""`relay.py SOCKET HOST COMMAND`: the launcher starts this where it would start ssh. It hands its three
descriptors to the driver, which connects them with the agent of the host, and stays until that has ended.
"""

import socket
import sys


def main(path: str, host: str) -> int:
    """The status of the agent."""
    with socket.socket(socket.AF_UNIX) as driver:
        try:
            driver.connect(path)
            socket.send_fds(driver, [host.encode()], [0, 1, 2])
            status = driver.recv(1)
        except OSError as error:
            print(f"the driver of this job cannot be reached: {error}", file=sys.stderr)
            return 1
    return status[0] if status else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
