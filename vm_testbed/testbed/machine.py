# SPDX-License-Identifier: Apache-2.0
"""A machine of the testbed, whoever runs it: reached by ssh as root."""
import io
import pathlib
import subprocess
import tarfile
import time

from .errors import TestbedError

# An emulated processor that shares a core with others: generous, since only a hang should meet it.
COMMAND_LIMIT_S = 300


class Machine:
    def __init__(self, name, host, port, key, folder):
        self.name = name
        self.log = pathlib.Path(folder) / f"{name}.commands.log"
        self._ssh = ["ssh", "-F", "none", "-i", str(key), "-p", str(port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                     "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=20",
                     "-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-o", f"ControlPath={folder}/{name}.ssh", f"root@{host}"]

    def wait_for_ssh(self, limit_s, is_alive=lambda: True):
        deadline, error = time.monotonic() + limit_s, ""
        while time.monotonic() < deadline:
            if not is_alive():
                raise TestbedError(f"{self.name} ended while it was booting")
            try:
                done = subprocess.run(self._ssh + ["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                      text=True, timeout=120)
                if done.returncode == 0:
                    return
                error = done.stderr.strip()
            except subprocess.TimeoutExpired:
                error = "no answer"
            time.sleep(0.5)
        raise TestbedError(f"{self.name} has no ssh after {limit_s} s: {error}")

    def run(self, script, check=True, limit_s=COMMAND_LIMIT_S):
        """A shell script; its standard output. All of it is in the machine's log."""
        done = self.result(script, limit_s)
        if check and done.returncode != 0:
            raise TestbedError(f"{self.name}: exit code {done.returncode} of: {script.strip()}\n{done.stdout}{done.stderr}")
        return done.stdout

    def result(self, script, limit_s=COMMAND_LIMIT_S):
        start = time.monotonic()
        try:
            done = subprocess.run(self._ssh + ["bash -s"], input="set -e\n" + script, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=limit_s)
        except subprocess.TimeoutExpired as expired:
            raise TestbedError(f"{self.name}: not done in {limit_s} s: {script.strip()}\n{expired.stdout}{expired.stderr}") from None
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {script.strip()}\n{done.stdout}{done.stderr}[{done.returncode}, {time.monotonic() - start:.1f} s]\n")
        return done

    def start(self, script, output):
        """A shell script that goes on while others run; its output goes to a file here."""
        stream = open(output, "wb")
        process = subprocess.Popen(self._ssh + ["bash -s"], stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.STDOUT)
        process.stdin.write(("set -e\n" + script).encode())
        process.stdin.close()
        stream.close()
        return process

    def put(self, folder, files):
        """Files by name into a folder of the machine: of here (a path) or with this content (bytes)."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, source in files.items():
                if isinstance(source, bytes):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(source)
                    tar.addfile(entry, io.BytesIO(source))
                else:
                    tar.add(source, name)
        command = f"mkdir -p {folder} && tar -x --no-same-owner -f - -C {folder}"
        done = subprocess.run(self._ssh + [command], input=archive.getvalue(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise TestbedError(f"{self.name}: cannot put files into {folder}: {done.stderr.decode()}")

    def get(self, path):
        """The content of a file of the machine, or of a shell command's output: get("| dmesg")."""
        command = path[1:] if path.startswith("|") else f"cat {path}"
        return subprocess.run(self._ssh + [command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=COMMAND_LIMIT_S).stdout

    def disconnect(self):
        """Forgets the shared connection, as after a reboot."""
        subprocess.run(self._ssh[:-1] + ["-O", "exit", self._ssh[-1]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
