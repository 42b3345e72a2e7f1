# SPDX-License-Identifier: Apache-2.0
"""The README's "Several machines", done as it stands there: its own lines, on three hosts that have its addresses."""
import json
import pathlib
import re
import shutil
import tempfile
import unittest

from readme_hosts import IS_IPV6, ThreeHosts, block_with, in_family, line_with, section
from torch_lab import HERE, wait_until

hosts = folder = None


def etcd_script(number):
    """`N=1` becomes the host's number, which is what its comment says."""
    text, count = re.subn(r"^N=1 +# 2, 3 on the others$", f"N={number}", block_with("etcd --name"), flags=re.M)
    assert count == 1, block_with("etcd --name")
    return text


def start_everything():
    for host in hosts:
        host.start(etcd_script(host.number), "etcd")
    for host in hosts:
        wait_until(f"etcd on {host.name}: {host.log('etcd')}",
                   lambda h=host: '"health":"true"' in h.run(f"curl -s -m 2 http://{in_family('10.0.0.%d:2379' % h.number)}/health")[1])
    path = re.search(r"^In `(/\S+/mlnetd\.toml)`", section(), re.M).group(1)
    assert "`systemctl start mlnetd` everywhere" in section()
    for host in hosts:
        assert host.run(f"test -f {path} && cat >{path} <<'END'\n{block_with('[store]')}\nEND")[0] == 0, f"{path} was not installed"
        # What systemd would do, from the unit that was installed.
        host.start("exec $(sed -n 's/^ExecStart=//p' /usr/local/lib/systemd/system/mlnetd.service)", "mlnetd")
    for host in hosts:
        code, text = host.run("mlnetctl status --wait 60")
        assert code == 0, f"{text}\n{host.log('mlnetd')}"


def start_slurm():
    """A Slurm of all hosts whose controller is the first; as plain as it can be."""
    nodes = "".join(f"NodeName={h.name} NodeAddr={h.address} State=UNKNOWN\n" for h in hosts)
    text = (HERE / "readme_slurm.conf").read_text(encoding="utf-8") + nodes
    for host in hosts:
        code, output = host.run(f"mkdir -p /run/slurm/state && cat >/etc/slurm/slurm.conf <<'END'\n{text}END")
        assert code == 0, output
    hosts[0].start("exec slurmctld -D", "slurmctld")
    for host in hosts:
        host.start(f"exec slurmd -D -N {host.name}", "slurmd")
    wait_until(f"three idle nodes: {hosts[0].log('slurmctld')}",
               lambda: hosts[0].run("sinfo -h -t idle -o %D")[1].strip() == str(len(hosts)))


def setUpModule():
    global hosts, folder
    temporary = tempfile.TemporaryDirectory(prefix="mlnet-readme-")
    unittest.addModuleCleanup(temporary.cleanup)
    folder = pathlib.Path(temporary.name)
    three = ThreeHosts(folder)
    unittest.addModuleCleanup(three.down)
    hosts = three.hosts
    start_everything()
    shutil.copy(HERE / "readme_train.py", folder / "train.py")


class SeveralMachines(unittest.TestCase):
    def expect_training(self, outputs):
        # torchrun and srun may put a name in front of a line.
        results = [json.loads(line[line.index("{"):]) for text in outputs for line in text.splitlines() if '{"rank"' in line]
        logs = "\n".join(outputs) + hosts[0].log("mlnetd")
        self.assertEqual(sorted((r["rank"], r["host"]) for r in results), [(0, "h1"), (1, "h2"), (2, "h3")], logs)
        self.assertEqual(len({r["parameters"] for r in results}), 1, logs)
        for result in results:
            self.assertEqual(result["size"], 3)
            self.assertLess(result["last_loss"], 0.6 * result["first_loss"])
            self.assertGreater(result["stats"]["summed_in_kernel"], 25)
            self.assertEqual(result["stats"]["delegated_calls"], 0)

    def test_torchrun_trains_on_all_three(self):
        line, count = re.subn(r"--node([-_])rank R ", r"--node\1rank {} ", line_with("torchrun"))
        self.assertEqual(count, 1, line)
        running = [host.start(line.format(host.number - 1), "torchrun", cwd=folder) for host in hosts]
        codes = [process.wait(120) for process in running]
        outputs = [host.log("torchrun") for host in hosts]
        self.assertEqual(codes, [0, 0, 0], "\n".join(outputs))
        self.expect_training(outputs)

    def test_what_it_says_of_racks_is_understood(self):
        code, output = hosts[0].run(f"cat >/run/racks.toml <<'END'\n{block_with('[site]')}\nEND\nmlnetd --check-config --config /run/racks.toml")
        self.assertEqual(code, 0, output)

    @unittest.skipIf(IS_IPV6, "Slurm's own addressing is not mlnet's")
    def test_srun_trains_on_all_three(self):
        start_slurm()
        process = hosts[0].start(line_with("srun"), "srun", cwd=folder)
        self.assertEqual(process.wait(120), 0, hosts[0].log("srun"))
        self.expect_training([hosts[0].log("srun")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
