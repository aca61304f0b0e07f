"""train: results, settings, callbacks, interruptions, resuming, threads."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path

import numpy as np

import trireme

SMALL = dict(envs=16, horizon=32, hidden=[16], eval_every=0, eval_episodes=4)


class InScratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = Path(folder.name)
        before = os.getcwd()
        os.chdir(self.scratch)
        self.addCleanup(os.chdir, before)

    def refuse(self, pattern, *arguments, **keywords):
        with self.assertRaisesRegex(trireme.Error, pattern):
            trireme.train(*arguments, **keywords)


class Training(InScratch):
    def test_a_run_has_a_result_a_folder_and_a_policy(self):
        run = trireme.train("CartPole-v1", "ppo", steps=1e4, seed=3, workers=1, out="run", **SMALL)
        self.assertGreaterEqual(run["steps"], 10_000)
        self.assertEqual((run["env"], run["algo"], run["seed"]), ("CartPole-v1", "ppo", 3))
        self.assertFalse(run.interrupted)
        self.assertIn("params_sha256", dict(run))
        self.assertTrue((run.folder / "report.html").is_file())
        self.assertEqual([row["step"] for row in run.metrics()][-1], run["steps"])
        self.assertIn(run.policy.predict(np.zeros(4)), (0, 1))
        self.assertIn("CartPole-v1", repr(run))

    def test_the_program_gives_the_same_bits(self):
        program = os.environ.get("TRIREME_PROGRAM")
        if not program:
            self.skipTest("TRIREME_PROGRAM does not say where the program is")
        run = trireme.train("CartPole-v1", "a2c", steps=8192, seed=5, hidden=[8, 8], out="ours")
        command = [program, "train", "--env", "CartPole-v1", "--algo", "a2c", "--steps", "8192", "--seed", "5"]
        done = subprocess.run([*command, "--set", "hidden=[8,8]", "--out", "theirs", "--json"], capture_output=True, check=True)
        self.assertIn(run["params_sha256"], done.stdout.decode())

    def test_a_target_stops_it(self):
        run = trireme.train("CartPole-v1", "ppo", target=100, steps=2_000_000, seed=1, eval_every=16384)
        self.assertTrue(run["reached_target"])
        self.assertLess(run["steps"], 2_000_000)
        self.assertEqual(run.folder.parent.name, "runs")

    def test_settings_come_from_files_dictionaries_and_arguments(self):
        Path("a.toml").write_text('env = "CartPole-v1"\nalgo = "a2c"\nsteps = 2048\nseed = 7\n')
        run = trireme.train(config="a.toml", seed=8, out="by_file", envs=16, horizon=4, rounds=2, eval_episodes=2)
        self.assertEqual((run["algo"], run["seed"]), ("a2c", 8))
        run = trireme.train("CartPole-v1", config={"seed": 9, "steps": 2048, **SMALL}, steps=4096, out="by_dictionary")
        self.assertEqual((run["seed"], run["steps"]), (9, 4096))
        known = trireme.settings("CartPole-v1", "dqn")
        self.assertEqual(known["algo"], "dqn")
        self.assertIsInstance(known["hidden"], list)
        self.assertIsInstance(known["prioritised"], bool)

    def test_stores_and_systems(self):
        run = trireme.train("CartPole-v1", "a3c", steps=4096, workers=2, eval_episodes=2, eval_every=0)
        self.assertEqual((run["algo"], run["store"]), ("a2c", "shared"))
        run = trireme.train("CartPole-v1", "ppo", steps=2048, store="local", **SMALL)
        self.assertEqual((run["store"], run["workers"]), ("local", 1))

    def test_parameter_servers_are_the_programs(self):
        program = """
            import glob, trireme
            small = dict(steps=4096, envs=16, horizon=32, hidden=[32, 32], eval_every=0, eval_episodes=4, seed=1, workers=2)
            try:
                run = trireme.train("CartPole-v1", store="server", servers=2, out="server", **small)
            except trireme.Error as error:
                print(error)
            else:
                same = trireme.train("CartPole-v1", out="threads", **small)["params_sha256"] == run["params_sha256"]
                left = [open(file).read() for file in glob.glob("/proc/self/task/*/children")]
                print(run["store"], run["steps"], same, "".join(left))
        """

        def train(**variables):
            environment = {key: value for key, value in os.environ.items() if key != "TRIREME_PLUGINS"}
            command = [sys.executable, "-c", textwrap.dedent(program)]
            done = subprocess.run(command, capture_output=True, text=True, env={**environment, **variables})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout

        self.assertRegex(train(PATH="/nowhere"), "TRIREME_PLUGINS|put it into PATH")
        self.assertFalse(Path("server").exists())
        folder = Path(os.environ.get("TRIREME_PROGRAM", "")).parent
        if not (folder / "libtrireme_grpc.so").is_file():
            self.skipTest("TRIREME_PROGRAM has no gRPC beside it")
        self.assertIn("put it into PATH", train(PATH="/nowhere", TRIREME_PLUGINS=str(folder)))
        given = train(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", TRIREME_PLUGINS=str(folder))
        self.assertEqual(given, "server 4096 True \n")

    def test_nothing_is_printed(self):
        program = "import trireme; trireme.train('CartPole-v1', steps=2048, out='quiet', progress={})"
        for progress in (False, True):
            folder = tempfile.TemporaryDirectory()
            done = subprocess.run([sys.executable, "-c", program.format(progress)], capture_output=True, cwd=folder.name, check=True)
            self.assertEqual(done.stdout, b"")
            self.assertEqual(done.stderr != b"", progress)
            folder.cleanup()

    def test_mistakes_are_named(self):
        self.refuse("Did you mean .CartPole-v1", "CartPole-v9")
        self.refuse("unknown setting 'horizn'.*horizon", "CartPole-v1", horizn=3)
        self.refuse("gamma: expected", "CartPole-v1", gamma=3)
        self.refuse("'tpu' is no device", "CartPole-v1", device="tpu")
        self.refuse("hidden", "CartPole-v1", hidden={"a": 1})
        self.refuse("say which environment")
        self.refuse("an environment is a name", 5)
        self.refuse("algo is an argument of its own", "CartPole-v1", config={"algo": "dqn"})
        self.refuse("unknown algorithm 'ppoo'.*ppo", "CartPole-v1", "ppoo")
        self.refuse("dqn cannot drive", "Pendulum-v1", "dqn")
        self.refuse("no such|cannot", "CartPole-v1", config="missing.toml")
        self.assertFalse(Path("runs").exists() and any(Path("runs").iterdir()))
        trireme.train("CartPole-v1", steps=2048, out="taken", **SMALL)
        self.refuse("taken", "CartPole-v1", steps=2048, out="taken")
        self.refuse("leave out", algo="ppo", resume="taken")
        self.refuse("is a run on CartPole-v1", "Pendulum-v1", resume="taken")
        self.refuse("no folder nowhere", resume="nowhere")

    def test_what_is_of_another_kind_is_named(self):
        self.refuse("env_args: a dictionary", "CartPole-v1", env_args=["a=1"])
        self.refuse("env_args: a text", "CartPole-v1", env_args={1: 2})
        self.refuse("callback: a function", "CartPole-v1", callback=5, out="run")
        self.refuse("algo: a text", "CartPole-v1", 5)
        self.refuse("env: .*surrogates", "CartPole\udcff")
        self.refuse("out: a path", "CartPole-v1", out=5)
        self.refuse("resume: a path", resume=5)
        self.refuse("config: a path", config=5)
        self.refuse("store: .*surrogates", "CartPole-v1", store="\udcff")
        for out in ("a\udcff", b"a\xff"):
            self.refuse("out: .*surrogates", "CartPole-v1", steps=512, out=out, **SMALL)
        self.refuse("out: .*zero byte", "CartPole-v1", steps=512, out="a\0b", **SMALL)
        self.refuse("resume: .*zero byte", resume="a\0b")
        self.assertEqual(os.listdir(), [])
        with self.assertRaisesRegex(trireme.Error, "env: a text"):
            trireme.settings(5)
        run = trireme.train("CartPole-v1", steps=512, out=b"by_bytes", **SMALL)
        self.assertEqual(run.folder, Path("by_bytes"))

    def test_settings_of_a_run_that_were_damaged_are_named(self):
        trireme.train("CartPole-v1", steps=512, out="run", **SMALL)
        for text in ("", "env = 5\n"):
            Path("run/config.toml").write_text(text)
            self.refuse("run/config.toml", resume="run")
            with self.assertRaisesRegex(trireme.Error, "run/config.toml"):
                trireme.load("run")


class Callbacks(InScratch):
    def test_they_see_every_row_and_can_stop(self):
        rows = []

        def stop_after_three(metrics):
            rows.append(metrics)
            return len(rows) < 3

        run = trireme.train("CartPole-v1", steps=1_000_000, callback=stop_after_three, out="run", **SMALL)
        self.assertTrue(run.interrupted)
        self.assertEqual([row["step"] for row in rows], [512, 1024, 1536])
        self.assertTrue(all(isinstance(value, (int, float)) for row in rows for value in row.values()))
        self.assertTrue(all(value == value for row in rows for value in row.values()))  # no NaN
        self.assertIn("policy_loss", rows[0])
        self.assertEqual(run["steps"], 1536)
        self.assertTrue((run.folder / "checkpoint-1536.trireme").is_file())
        seen = []
        more = trireme.train(resume=run.folder, steps=4096, callback=seen.append)
        self.assertEqual((seen[0]["step"], more["steps"], more.interrupted), (2048, 4096, False))
        whole = trireme.train("CartPole-v1", steps=4096, out="whole", **SMALL)
        self.assertEqual(len(whole["params_sha256"]), 64)

    def test_what_is_false_stops_and_none_goes_on(self):
        for answer, stops in ((False, True), (np.False_, True), (0, True), (None, False), (True, False), (1, False)):
            run = trireme.train("CartPole-v1", steps=2048, callback=lambda _: answer, out=f"run-{answer!r}", **SMALL)
            self.assertEqual(run.interrupted, stops, repr(answer))
        with self.assertRaisesRegex(ValueError, "ambiguous"):  # neither
            trireme.train("CartPole-v1", steps=2048, callback=lambda _: np.zeros(2), out="neither", **SMALL)

    def test_what_they_raise_comes_out_and_a_checkpoint_stays(self):
        class Enough(Exception):
            pass

        def fail(metrics):
            raise Enough("of this")

        with self.assertRaisesRegex(Enough, "of this") as raised:
            trireme.train("CartPole-v1", steps=1_000_000, callback=fail, out="run", **SMALL)
        self.assertTrue(Path("run/checkpoint-512.trireme").is_file())
        if sys.version_info >= (3, 11):
            self.assertIn("resume='run'", raised.exception.__notes__[0])
        self.assertEqual(trireme.train(resume="run", steps=1024)["steps"], 1024)

    def test_a_run_that_was_stopped_goes_on_exactly(self):
        whole = trireme.train("CartPole-v1", steps=4096, out="whole", seed=2, **SMALL)
        trireme.train("CartPole-v1", steps=4096, out="parts", seed=2, callback=lambda m: m["step"] < 2048, **SMALL)
        parts = trireme.train(resume="parts")
        self.assertEqual(parts["params_sha256"], whole["params_sha256"])

    def test_a_run_may_be_trained_within_another(self):
        inner = []

        def train_inside(metrics):
            inner.append(trireme.train("CartPole-v1", steps=1024, out=f"inner{len(inner)}", seed=4, **SMALL))

        trireme.train("CartPole-v1", steps=1024, out="outer", callback=train_inside, **SMALL)
        self.assertEqual(inner[0]["params_sha256"], inner[1]["params_sha256"])


INTERRUPTED = """
import signal, sys, trireme
rows = 0
def tell(metrics):
    global rows
    rows += 1
    if rows == 3:
        print("training", flush=True)
{before}
try:
    trireme.train("CartPole-v1", steps=10**12, out="run", envs=16, horizon=32, hidden=[16], eval_every=0, callback=tell)
except KeyboardInterrupt as error:
    print("interrupted", getattr(error, "__notes__", ["resume='run'"])[0], flush=True)
    run = trireme.train(resume="run", steps=trireme.load("run", "last").steps + 512)
    print("went on to", run["steps"], run.interrupted, flush=True)
"""


class Interruptions(InScratch):
    def interrupt(self, before=""):
        program = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED.format(before=before)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "training\n")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=300)
        return out, err, program.returncode

    def test_ctrl_c_leaves_a_checkpoint_and_is_raised(self):
        out, err, code = self.interrupt()
        self.assertEqual(code, 0, err)
        self.assertRegex(out, "interrupted .*resume='run'.*\nwent on to [0-9]+ False\n")
        self.assertEqual(err, "")

    def test_a_handler_of_ones_own_is_asked(self):
        handler = """
        def handle(*_):
            print("handled", flush=True)
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, handle)
        """
        out, err, code = self.interrupt(textwrap.dedent(handler))
        self.assertEqual(code, 0, err)
        self.assertRegex(out, "^handled\ninterrupted")


STUCK = """
import sys, threading, time, gymnasium, numpy as np, trireme
class Sleeper(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {{}}
    def step(self, action):
        self.steps += 1
        if self.steps == 7:
            assert threading.current_thread() is threading.main_thread()
            print("stuck", flush=True)
            {stuck}
        return np.zeros(1, np.float32), 0.0, False, False, {{}}
try:
    trireme.train(lambda: Sleeper(), steps=10**6, workers={workers}, envs=8, horizon=32, out="run")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class StuckEnvironments(InScratch):
    def test_ctrl_c_reaches_what_is_stuck_in_this_process(self):
        reading = "import os; os.read(os.pipe()[0], 1)"  # a call that a signal must end
        for stuck, workers in (("time.sleep(1000)", 1), ("time.sleep(1000)", 2), ("while True: pass", 2), (reading, 1)):
            with self.subTest(stuck=stuck, workers=workers):
                program = subprocess.Popen(
                    [sys.executable, "-c", STUCK.format(stuck=stuck, workers=workers)], stdout=subprocess.PIPE, text=True
                )
                self.addCleanup(program.stdout.close)
                self.addCleanup(program.kill)
                self.assertEqual(program.stdout.readline(), "stuck\n")
                program.send_signal(signal.SIGINT)
                self.wait_for_delivery(program.pid)  # two that wait would be one
                program.send_signal(signal.SIGINT)
                self.assertEqual(program.wait(120), 0)
                self.assertEqual(program.stdout.read(), "interrupted\n")
                shutil.rmtree("run")

    def wait_for_delivery(self, pid):
        deadline = time.monotonic() + 120
        while True:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            waiting = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
            if not any(mask & 1 << (signal.SIGINT - 1) for mask in waiting):
                return
            self.assertLess(time.monotonic(), deadline, "the signal is still waiting")
            time.sleep(0.01)


class Threads(InScratch):
    def test_two_at_once(self):
        alone = trireme.train("CartPole-v1", steps=8192, seed=6, workers=1, out="alone", **SMALL)
        results = {}

        def train(name):
            results[name] = trireme.train("CartPole-v1", steps=8192, seed=6, workers=2, out=name, **SMALL)

        threads = [threading.Thread(target=train, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([results[n]["params_sha256"] for n in ("one", "two")], [alone["params_sha256"]] * 2)

    def test_one_folder_is_for_one_run(self):
        run = trireme.train("CartPole-v1", steps=2048, out="run", **SMALL)
        refused = []

        def disturb(metrics):
            try:
                trireme.train(resume="run", steps=10**6)
            except trireme.Error as error:
                refused.append(str(error))
            return False

        trireme.train(resume=run.folder, steps=10**6, callback=disturb)
        self.assertEqual(len(refused), 1)


if __name__ == "__main__":
    unittest.main()
