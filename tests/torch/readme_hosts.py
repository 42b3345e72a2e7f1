# SPDX-License-Identifier: Apache-2.0
"""Three hosts as the README's "Several machines" has them: 10.0.0.1 to 10.0.0.3, each with a name, an installed mlnet and
folders of its own, so that the README's paths are real ones. A lab gives the links; the rest are namespaces.
MLNET_TEST_IPV6=1: the same hosts as fd00::1 to fd00::3, without any IPv4 address."""
import os
import re
import subprocess

from torch_lab import BUILD, HERE, Lab

README = HERE.parents[1] / "README.md"
SECTION = "Several machines"
NUM_HOSTS = 3
IS_IPV6 = os.environ.get("MLNET_TEST_IPV6") == "1"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Debian's, whatever Python the test is run from
# Of each host alone; /usr/local holds what `cmake --install` put there.
OWN_FOLDERS = ["/run", "/var/lib", "/etc/slurm"]


def section():
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"^## {SECTION}\n(.*?)^## ", text, re.M | re.S)
    return found.group(1)


def code_blocks():
    """The indented blocks of the section, in order."""
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", section(), re.M)
    return ["\n".join(line[4:] for line in block.strip("\n").split("\n")) for block in blocks]


def in_family(text):
    """The README's addresses, or what a reader with IPv6 writes in their place: in brackets before a port."""
    if not IS_IPV6:
        return text
    text = re.sub(r"\b10\.0\.0\.(\$?\w)(?=:)", r"[fd00::\1]", text)
    return re.sub(r"\b10\.0\.0\.(\$?\w)", r"fd00::\1", text)


def block_with(words):
    found = [block for block in code_blocks() if words in block]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} blocks of '{SECTION}' have '{words}'")
    return in_family(found[0])


def line_with(words):
    return next(line for line in block_with(words).split("\n") if words in line)


class Host:
    """A namespace of mounts and of the host's name, kept by one process, within the network namespace of a host of the lab."""

    def __init__(self, lab, lab_host, number, folder, usr_local):
        self.lab, self.lab_host, self.number = lab, lab_host, number
        self.name, self.address = f"h{number}", in_family(f"10.0.0.{number}")
        self.folder = folder / self.name
        self.folder.mkdir()
        netns = lab_host["netns"]
        own = [f"{self.address}/64", "nodad"] if IS_IPV6 else [f"{self.address}/24"]
        for words in (["flush", "dev", "eth0", "scope", "global"], ["add", *own, "dev", "eth0"]):
            subprocess.run(["ip", "-n", netns, "addr", *words], check=True)
        subprocess.run(["ip", "-n", netns, "link", "set", "lo", "up"], check=True)
        etc = self.folder / "etc"
        mounts = [f"mount --bind {usr_local} /usr/local", f"cp -r /usr/local/etc {etc}", f"mount --bind {etc} /usr/local/etc"]
        mounts += [f"mount -t tmpfs tmpfs {path}" for path in OWN_FOLDERS]
        mounts += ["mount -t bpf bpf /sys/fs/bpf", f"hostname {self.name}", "mkdir -p /var/lib/etcd"]
        script = "; ".join(["set -e", *mounts, "echo ready", "exec sleep infinity"])
        self.holder = lab.spawn(lab_host, ["unshare", "--mount", "--uts", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespace for {self.name}")

    def start(self, script, name, cwd="/"):
        """A shell script on this host; its output goes to a log."""
        log = open(self.folder / f"{name}.log", "w", encoding="utf-8")
        command = ["nsenter", "--target", str(self.holder.pid), "--mount", "--uts", "--net", "env",
                   f"--chdir={cwd}", f"PATH={PATH}", "bash", "-c", script]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def run(self, script, name="run"):
        """(exit code, output)"""
        code = self.start(script, name).wait()
        return code, self.log(name)


class ThreeHosts:
    def __init__(self, folder):
        self.lab = Lab(NUM_HOSTS, more=["--no-daemons"] + (["--ipv6"] if IS_IPV6 else []))
        self.folder = folder
        usr_local = folder / "usr_local"
        (usr_local / "etc").mkdir(parents=True)
        self._install(usr_local)
        self.hosts = [Host(self.lab, lab_host, n + 1, folder, usr_local) for n, lab_host in enumerate(self.lab.workers)]

    @staticmethod
    def _install(usr_local):
        """Into a folder that is /usr/local for these hosts only; the list of what the user has installed stays as it was."""
        manifest = BUILD / "install_manifest.txt"
        before = manifest.read_bytes() if manifest.exists() else None
        script = f"mount --bind {usr_local} /usr/local && cmake --install {BUILD} --prefix /usr/local"
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if before is None:
            manifest.unlink(missing_ok=True)
        else:
            manifest.write_bytes(before)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)

    def down(self):
        self.lab.down()
