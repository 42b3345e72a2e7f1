# SPDX-License-Identifier: Apache-2.0
"""A training while the daemons' store, an etcd of three members on three hosts, loses one of them and then all.

The story happens once, in setUpModule; the tests look at what was noted of it.
"""
import json
import pathlib
import subprocess
import tempfile
import time
import unittest

from torch_lab import BUILD, Lab, wait_until

WORKERS = 3
STALE_S = 10.5  # a host whose heartbeats are older is a dead one
STEPS_AFTER = 30  # of the training, after each thing that happens
WAIT_S = 90
ETCD_PORT, PEER_PORT = 2379, 2380
lab = cluster = story = None


class Member:
    """An etcd on one host."""

    def __init__(self, host, number, folder):
        self.host, self.name = host, f"e{number}"
        self.data, self.log = folder / f"{self.name}.data", open(folder / f"{self.name}.log", "a", encoding="utf-8")
        self.url = f"http://{host['address']}:{ETCD_PORT}"
        self.peer_url = f"http://{host['address']}:{PEER_PORT}"
        self.process = None

    def start(self, cluster_urls):
        self.process = lab.spawn(self.host, [
            "etcd", "--name", self.name, "--data-dir", str(self.data), "--initial-cluster", cluster_urls,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url], stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, path, *more):
        done = lab.spawn(self.host, ["curl", "-s", "-m", "2", f"{self.url}{path}", *more], stdout=subprocess.PIPE, text=True)
        text = done.communicate()[0]
        return json.loads(text) if text else {}


class Cluster:
    """Three members, and daemons on all hosts that share nothing else."""

    def __init__(self, folder):
        self.folder = folder
        self.members = [Member(host, n + 1, folder) for n, host in enumerate(lab.workers)]
        self.urls = ",".join(f"{m.name}={m.peer_url}" for m in self.members)
        self.store = "etcd:" + ",".join(m.url for m in self.members)

    def start(self):
        for member in self.members:
            member.start(self.urls)
        for member in self.members:
            wait_until(f"{member.name} is healthy", lambda m=member: m.ask("/health").get("health") == "true")

    def leader(self):
        def leads(member):
            status = member.ask("/v3/maintenance/status", "-d", "{}")
            return status.get("leader") and status["leader"] == status["header"]["member_id"]

        leaders = []

        def is_one_leading():
            leaders[:] = [member for member in self.members if leads(member)]
            return leaders
        wait_until("a member leads", is_one_leading)  # none does during an election
        return leaders[0]

    def start_daemon(self, host):
        config = self.folder / f"{host['name']}.toml"
        config.write_text(
            f'[daemon]\nhost = "{host["name"]}"\ninstance = "{lab.name}-{host["name"]}"\nsocket = "{host["socket"]}"\n'
            f'[store]\nurl = "{self.store}"\n'
            f'[[iface]]\nname = "eth0"\naggregator = {str(host["role"] == "aggregator").lower()}\n', encoding="utf-8")
        log = open(self.folder / f"{host['name']}.log", "w", encoding="utf-8")
        lab.spawn(host, [str(BUILD / "bin" / "mlnetd"), "--config", str(config)], stdout=log, stderr=log)
        self.ctl(host, "status", "--wait", str(WAIT_S), check=True)

    def ctl(self, host, *words, check=False):
        done = lab.spawn(host, [str(BUILD / "bin" / "mlnetctl"), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = done.communicate()[0]
        if check and done.returncode != 0:
            raise RuntimeError(f"mlnetctl {' '.join(words)} on {host['name']}: {text}")
        return text

    def log_of(self, host):
        return (self.folder / f"{host['name']}.log").read_text(encoding="utf-8")


class Training:
    def __init__(self, folder, name, **more):
        self.progress, self.stop_file = folder / f"{name}.progress", folder / f"{name}.stop"
        self.session = lab.start_session("ranks_outage", {"PROGRESS": self.progress, "STOP": self.stop_file, **more}, WORKERS)

    def steps(self):
        text = self.progress.read_text(encoding="utf-8") if self.progress.exists() else ""
        return int(text or 0)

    def go_on(self, seconds=0):
        """Returns when STEPS_AFTER more steps are done, and so much time is over."""
        begin, began = self.steps(), time.monotonic()
        wait_until(f"more steps than {begin}", lambda: not self.session.is_running() or (
            self.steps() >= begin + STEPS_AFTER and time.monotonic() > began + seconds))
        return self.session.is_running()


class Story:
    """What happens, in order."""

    def __init__(self, folder):
        training = Training(folder, "disturbed")
        self.began = training.go_on()
        lost = cluster.leader()
        lost.kill()
        self.went_on_without_one = training.go_on()
        self.joined_without_one = lab.session("ranks_join", {"MLNET_JOB": "second", "JOIN_TIMEOUT_S": 30}, WORKERS)
        for member in cluster.members:
            if member is not lost:
                member.kill()
        for host in lab.hosts:
            wait_until(f"{host['name']} says that there is no store", lambda h=host: "no answer from the store" in cluster.ctl(h, "status"))
        self.went_on_without_any = training.go_on(STALE_S)
        self.impatient = lab.session("ranks_join", {"MLNET_JOB": "impatient", "JOIN_TIMEOUT_S": 2}, WORKERS)
        waiting = lab.start_session("ranks_join", {"MLNET_JOB": "waiting", "JOIN_TIMEOUT_S": WAIT_S}, WORKERS)
        for host in lab.workers:
            wait_until("the new job is logged as waiting", lambda h=host: "job waiting-" in cluster.log_of(h))
        self.status = cluster.ctl(lab.workers[0], "status")
        self.waited = waiting.is_running()
        self.went_on_beside_the_waiting = training.go_on()
        cluster.start()
        self.waiting = waiting.wait()
        self.went_on_after = training.go_on()
        training.stop_file.touch()
        self.disturbed = training.session.wait()
        steps = self.disturbed[0]["result"].get("facts", {}).get("steps", STEPS_AFTER)
        self.undisturbed = Training(folder, "undisturbed", STEPS=steps).session.wait(timeout_s=300)
        self.logs = {host["name"]: cluster.log_of(host) for host in lab.hosts}


def setUpModule():
    global lab, cluster, story
    folder = tempfile.TemporaryDirectory(prefix="mlnet-etcd-")
    unittest.addModuleCleanup(folder.cleanup)
    lab = Lab(WORKERS, more=["--no-daemons"])
    unittest.addModuleCleanup(lab.down)
    cluster = Cluster(pathlib.Path(folder.name))
    cluster.start()
    for host in lab.hosts:
        cluster.start_daemon(host)
    story = Story(pathlib.Path(folder.name))


class EtcdLost(unittest.TestCase):
    def expect_in_order(self, ranks, check):
        for rank, data in enumerate(ranks):
            self.assertEqual(data["returncode"], 0, f"rank {rank}: {data['stderr']}")
            self.assertEqual(data["result"]["problems"][check], [], f"rank {rank}: {data['stderr']}")

    def test_the_training_goes_on_through_all_of_it(self):
        for phase in ("began", "went_on_without_one", "went_on_without_any", "went_on_beside_the_waiting", "went_on_after"):
            self.assertTrue(getattr(story, phase), f"{phase}: {story.disturbed[0]['stderr']}\n{story.logs}")
        self.expect_in_order(story.disturbed, "training_goes_on")

    def test_its_parameters_are_those_of_an_undisturbed_one_at_every_step(self):
        self.expect_in_order(story.undisturbed, "training_goes_on")
        facts = [data["result"]["facts"] for data in story.disturbed + story.undisturbed]
        self.assertGreater(len(facts[0]["digests"]), 3)
        for other in facts[1:]:
            self.assertEqual(other["digests"], facts[0]["digests"])
        self.assertLess(facts[0]["last_loss"], 0.7 * facts[0]["first_loss"], "it learnt something")
        self.assertGreater(facts[0]["summed_in_kernel"], facts[0]["steps"])

    def test_with_one_member_lost_a_new_job_starts_as_ever(self):
        self.expect_in_order(story.joined_without_one, "the_job_starts_and_sums")

    def test_without_any_a_new_job_waits_and_starts_when_they_are_back(self):
        self.assertTrue(story.waited)
        self.expect_in_order(story.waiting, "the_job_starts_and_sums")

    def test_what_it_waits_for_is_in_status_and_in_the_log(self):
        addresses = cluster.store.removeprefix("etcd:").replace(",", ", ")
        self.assertIn(f"no answer from the store at {addresses}", story.status)
        self.assertRegex(story.status, "rank 0 of job 'waiting-[0-9a-f]+' has been waiting for the store for ")
        for host in lab.workers:
            self.assertRegex(story.logs[host["name"]], f"job waiting-.* is waiting for the store at {addresses}")

    def test_who_does_not_wait_so_long_is_told_by_the_library(self):
        for rank, data in enumerate(story.impatient):
            text = data["result"]["problems"]["the_job_starts_and_sums"][0]
            self.assertIn(f"waiting for the store at http://{lab.workers[0]['address']}:{ETCD_PORT}", text)
            self.assertRegex(text, f"rank {rank} of job 'impatient-[0-9a-f]+' gave up after")


if __name__ == "__main__":
    unittest.main(verbosity=2)
