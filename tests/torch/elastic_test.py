#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun starts all ranks again after one was killed: the job's next incarnation has nothing of the last one's packets."""
import json
import subprocess
import tempfile
import unittest

from torch_lab import BUILD, HERE, PYTHON, Lab


class ElasticRestart(unittest.TestCase):
    def test_after_a_killed_rank_the_next_attempt_goes_through(self):
        lab = Lab(workers=2)
        self.addCleanup(lab.down)
        environment = {"PYTHONPATH": BUILD / "python", "PYTHONDONTWRITEBYTECODE": 1, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "eth0"}
        command = [PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "2", "--max_restarts", "2",
                   "--monitor_interval", "1", "--master_addr", lab.workers[0]["address"], "--master_port", "29500", "-r", "1", "-t", "1"]
        agents, logs = [], []
        for node_rank, host in enumerate(lab.workers):
            logs.append(tempfile.TemporaryFile("w+"))
            self.addCleanup(logs[-1].close)
            agents.append(lab.spawn(host, [*command, "--node_rank", str(node_rank), str(HERE / "ranks_elastic.py")], environment, stdout=logs[-1], stderr=subprocess.STDOUT))
        for agent in agents:
            self.addCleanup(agent.wait)
            self.addCleanup(agent.kill)
        codes = [agent.wait(100) for agent in agents]
        outputs = []
        for log in logs:
            log.seek(0)
            outputs.append(log.read())
        text = "\n".join(outputs)
        self.assertEqual(codes, [0, 0], text)
        results = [json.loads(line[line.index("{"):]) for line in text.splitlines() if '{"rank"' in line]
        self.assertEqual(sorted(r["rank"] for r in results), [0, 1, 2, 3], text)
        self.assertEqual({(r["size"], r["attempt"]) for r in results}, {(4, 1)}, text)
        for result in results:
            self.assertEqual(result["stats"]["summed_in_user_space"], 0)
        self.assertIn("E_RANK_LOST", text)


if __name__ == "__main__":
    unittest.main()
