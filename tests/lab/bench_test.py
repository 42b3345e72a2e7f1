# SPDX-License-Identifier: Apache-2.0
"""tools/bench in its quick form: it runs, everything is right, and the page has every part that was measured (with MLNET_LONG=1: that is
all of them). No time is asserted."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop())
IS_LONG = os.environ.get("MLNET_LONG") == "1"
LAB_PARTS = ["link", "cpu", "latency", "scaling", "sizes", "loss", *(["ddp"] if (BUILD / "python").is_dir() else [])] if IS_LONG else ["link", "loss"]
PARTS = [*LAB_PARTS, *(["micro"] if IS_LONG else [])]
TEXTS = ["--quick, so the numbers mean nothing", "a veth is not a NIC", "Links are the limit", "int16 against gloo-fp16", "int32 against mpi",
         *(["Processors are the limit", "p99 over Gloo's", "growth", "MiB", "bench_schedule"] if IS_LONG else [])]


def bench(*arguments):
    command = [ROOT / "tools/bench", "--build", BUILD, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.output = pathlib.Path(cls.folder.name)
        cls.run_of_all = bench("--quick", "--only", ",".join(PARTS), "-o", cls.output)
        assert cls.run_of_all.returncode == 0, cls.run_of_all.stderr
        cls.results = json.loads((cls.output / "bench.json").read_text())
        cls.page = (cls.output / "README.md").read_text()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_part_has_rows_and_every_element_is_right(self):
        self.assertEqual(list(self.results["parts"]), PARTS)
        for name in LAB_PARTS:
            rows = self.results["parts"][name]["rows"]
            self.assertTrue(rows, name)
            for row in rows:
                self.assertEqual(row["wrong"], 0, row)
                self.assertGreater(row["checked"], 0, row)
        self.assertIn(", 0 wrong", self.run_of_all.stdout)

    def test_both_sides_are_in_the_rows(self):
        names = {(row["backend"], row["wire"]) for row in self.results["parts"]["link"]["rows"]}
        self.assertEqual(names, {("mlnet", "int32"), ("mlnet", "int16"), ("mlnet", "int8"), ("gloo", None), ("gloo-fp16", None),
                                 ("mpi", None)})
        for row in self.results["parts"]["link"]["rows"]:
            self.assertGreater(row["link_percent"], 0, row)
            self.assertGreater(row["memory_bytes"], 0, row)
            self.assertGreater(row["cpu_s_per_GB"]["user"] + row["cpu_s_per_GB"]["system"], 0, row)
            self.assertEqual(len(row["round_us_p50"]), 3, row)

    def test_the_page_says_of_each_number_what_it_should_be_and_that_these_mean_nothing(self):
        for text in TEXTS:
            self.assertIn(text, self.page)
        for name in LAB_PARTS:
            self.assertTrue((self.output / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name)

    def test_the_report_can_be_made_again_without_measuring(self):
        (self.output / "README.md").unlink()
        self.assertEqual(bench("--report", "-o", self.output).returncode, 0)
        self.assertEqual((self.output / "README.md").read_text(), self.page)

    def test_no_lab_is_left(self):
        left = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
        pid = self.results["pid"]
        self.assertNotIn(f"ml-bench{pid}", left)

    def test_asked_to_end_it_removes_its_lab_first(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with tempfile.TemporaryDirectory() as output, subprocess.Popen(
                    [ROOT / "tools/bench", "--build", BUILD, "--quick", "--only", "link,loss,latency", "-o", output],
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as run:
                said = []
                for line in run.stderr:
                    said.append(line)
                    if line.startswith("turn 1 "):
                        break
                self.assertTrue(said[-1].startswith("turn 1 "), said)  # or there was no lab to remove
                run.send_signal(number)
                said += run.stderr
                self.assertNotEqual(run.wait(), 0, said)
                left = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
                self.assertNotIn(f"ml-bench{run.pid}", left, said)

    def test_a_part_that_does_not_exist_is_named(self):
        done = bench("--only", "link,speed", "-o", self.output)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such part: speed; there are link,", done.stderr)

    def test_a_folder_without_a_build_is_named(self):
        done = subprocess.run([ROOT / "tools/bench", "--build", self.output, "-o", self.output], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"nothing is built in {self.output}", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
