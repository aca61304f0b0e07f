"""Classes that another process can import, and Gymnasium's environments by name."""

import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

import numpy as np
from test_train import InScratch

import trireme

QUICK = dict(steps=512, envs=8, horizon=16, hidden=[8], eval_every=0, eval_episodes=4, env_hosts=2)

MODULE = """
import os
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, end=5):
        self.end = end
        with open("processes", "a") as file:
            file.write(f"{os.getpid()}\\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, self.steps], np.float32)

    def step(self, action):
        self.steps += 1
        self.place += 2 * action - 1
        return self.seen(), float(action), bool(self.place > self.end), self.steps >= 9, {}

def make_walk(end=3):
    return Walk(end)
"""


class Hosted(InScratch):
    def setUp(self):
        super().setUp()
        Path("folder").mkdir()
        Path("folder/walks.py").write_text(MODULE)
        Path("package").mkdir()
        Path("package/__init__.py").write_text("")
        Path("package/inner.py").write_text(MODULE)
        for path in (self.scratch / "folder", self.scratch):
            sys.path.insert(0, str(path))
            self.addCleanup(sys.path.remove, str(path))
        for name in ("walks", "package.inner", "package"):
            self.addCleanup(sys.modules.pop, name, None)

    def processes(self):
        return set(Path("processes").read_text().split())

    def test_classes_and_functions_of_modules(self):
        import os

        import package.inner
        import walks

        for env, name in [
            (walks.Walk, f"py:{self.scratch}/folder/walks.py:Walk"),
            (walks.make_walk, f"py:{self.scratch}/folder/walks.py:make_walk"),
            (package.inner.Walk, "py:package.inner:Walk"),
        ]:
            with self.subTest(name):
                run = trireme.train(env, out=name.rpartition(":")[2] + env.__module__, seed=1, **QUICK)
                self.assertEqual(Path(run["env"][3:]).name, Path(name[3:]).name)
                self.assertEqual(run["env"].startswith("py:"), True)
                self.assertNotIn(str(os.getpid()), self.processes())
                self.assertIn(run.policy.predict(np.zeros(2)), (0, 1))
                self.assertEqual(trireme.train(resume=run.folder, steps=1024)["steps"], 1024)

    def test_here_and_elsewhere_the_same_bits(self):
        import walks

        elsewhere = trireme.train(walks.Walk, out="elsewhere", seed=3, **QUICK)
        options = {key: value for key, value in QUICK.items() if key != "env_hosts"}
        here = trireme.train(lambda: walks.Walk(), out="here", seed=3, **options)
        self.assertEqual(here["params_sha256"], elsewhere["params_sha256"])

    def test_classes_of_a_program(self):
        program = textwrap.dedent(
            """
            import trireme
            if __name__ == "__main__":
                run = trireme.train(Walk, out="run", steps=512, envs=8, horizon=16, eval_every=0, eval_episodes=4)
                print(run["env"])
            """
        )
        Path("program.py").write_text(MODULE + program)
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "^py:.*program.py:Walk\n$")

    def test_a_program_that_trains_when_it_is_imported_is_told(self):
        program = 'import trireme\ntrireme.train(Walk, out="run", steps=512, envs=8, horizon=16)\n'
        Path("program.py").write_text(MODULE + program)
        done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('if __name__ == "__main__":', done.stderr)
        self.assertFalse(Path("run").exists())

    def test_gymnasiums_own_by_name(self):
        run = trireme.train("gym:CartPole-v1", out="gym", **QUICK)
        self.assertEqual((run["env"], run["steps"]), ("gym:CartPole-v1", 512))
        model = trireme.PPO("MlpPolicy", "Taxi-v4", envs=8, horizon=16, hidden=[8])
        self.assertEqual(model.learn(128).num_timesteps, 128)

    def test_they_are_a_vector_too(self):
        envs = trireme.make_vec("gym:CartPole-v1", 4)
        obs, _ = envs.reset(seed=1)
        self.assertIn(obs, envs.observation_space)
        ends = 0
        for _ in range(60):
            obs, _, terminated, _, infos = envs.step(np.ones(4, np.int64))
            ends += int(terminated.sum())
            self.assertEqual("final_obs" in infos, bool(terminated.any()))
        self.assertGreater(ends, 8)
        with self.assertRaisesRegex(trireme.Error, "one seed for all"):
            envs.reset(seed=[1, 2, 3, 4])


if __name__ == "__main__":
    unittest.main()
