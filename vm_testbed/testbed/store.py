# SPDX-License-Identifier: Apache-2.0
"""The daemons' store: an etcd on this machine, which the machines reach over eth0, the network of their own that management has.
Not in a machine: emulated, it took seconds for an answer, and daemons give up after two."""
import contextlib
import pathlib
import shutil
import socket
import subprocess

from .errors import require
from .waiting import wait_until

START_LIMIT_S = 60


class EtcdStore:
    """Listens at `address`, to be started when that exists; `seen_as`: the machines' name for it."""

    def __init__(self, address, seen_as, folder, preexec_fn=None):
        require(shutil.which("etcd"), "etcd is missing: tools/install-deps")
        client, peer = f"http://{address}:{free_port(address)}", f"http://127.0.0.1:{free_port('127.0.0.1')}"
        self.url = client.replace(address, seen_as)
        self._log = pathlib.Path(folder) / "etcd.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                ["etcd", "--data-dir", pathlib.Path(folder) / "etcd", "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", f"default={peer}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=preexec_fn)
        wait_until(f"etcd answers, see {self._log}", lambda: self._answers(address, int(client.rsplit(":", 1)[1])), START_LIMIT_S)

    def stop(self):
        self._process.kill()
        self._process.wait()

    def _answers(self, address, port):
        require(self._process.poll() is None, f"etcd ended, see {self._log}")
        with contextlib.closing(socket.socket()) as probe:
            return probe.connect_ex((address, port)) == 0


def free_port(address):
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]
