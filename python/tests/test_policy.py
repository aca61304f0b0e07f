"""load and predict."""

import shutil
import threading
import unittest
from pathlib import Path

import gymnasium
import numpy as np
from test_train import SMALL, InScratch

import trireme


class Policies(InScratch):
    def test_one_observation_or_many(self):
        run = trireme.train("CartPole-v1", steps=4096, out="run", **SMALL)
        policy = trireme.load("run")
        obs = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)  # more than act at a time
        actions = policy.predict(obs)
        self.assertEqual((actions.dtype, actions.shape), (np.int64, (300,)))
        self.assertEqual([policy.predict(row) for row in obs], actions.tolist())
        self.assertIs(type(policy.predict(obs[0])), int)
        self.assertEqual(policy.predict(obs.astype(np.float64)).tolist(), actions.tolist())
        self.assertEqual(policy.predict(obs[::2]).tolist(), actions[::2].tolist())  # not contiguous
        self.assertEqual(policy.predict(np.empty((0, 4))).shape, (0,))
        self.assertIn(policy.predict([0, 0, 0, 0]), policy.action_space)
        self.assertEqual((policy.env, policy.algo, policy.steps), ("CartPole-v1", "ppo", run["steps"]))

    def test_observations_are_finite(self):
        trireme.train("CartPole-v1", steps=512, out="run", **SMALL)
        policy = trireme.load("run")
        for bad in (np.nan, np.inf, -np.inf, 1e300):
            for obs in ([0, 0, bad, 0], np.array([[0] * 4, [0, 0, bad, 0]])):
                for deterministic in (True, False):
                    with self.assertRaisesRegex(trireme.Error, "number 2 of observation [01] of CartPole-v1 is .*finite"):
                        policy.predict(obs, deterministic)
        self.assertIn(policy.predict([0, 0, 1e30, 0]), (0, 1))

    def test_what_is_no_path_or_no_run_is_named(self):
        Path("junk.trireme").write_bytes(b"junk")
        for pattern, path in (("junk.trireme", "junk.trireme"), ("path: a path", 5), ("path: .*zero byte", "a\0")):
            with self.assertRaisesRegex(trireme.Error, pattern):
                trireme.load(path)
        with self.assertRaisesRegex(trireme.Error, "which: a text"):
            trireme.load("run", 5)

    def test_boxes_are_kept(self):
        trireme.train("Pendulum-v1", steps=4096, out="run", normalise_obs=True, initial_log_std=2.0, **SMALL)
        policy = trireme.load("run", "last")
        self.assertEqual(policy.predict(np.zeros(3)).shape, (1,))
        drawn = policy.predict(np.zeros((500, 3)), deterministic=False)
        self.assertEqual((drawn.dtype, drawn.shape), (np.float32, (500, 1)))
        self.assertTrue((np.abs(drawn) <= 2).all())
        self.assertTrue((np.abs(drawn) == 2).any())  # clipped

    def test_drawing_follows_its_seed(self):
        trireme.train("CartPole-v1", steps=2048, out="run", **SMALL)
        policy = trireme.load("run")
        obs = np.zeros((200, 4), np.float32)
        self.assertEqual(len(set(policy.predict(obs).tolist())), 1)
        policy.seed(3)
        first = [policy.predict(obs, deterministic=False).tolist() for _ in range(2)]
        self.assertNotEqual(first[0], first[1])
        self.assertEqual(set(first[0]), {0, 1})
        policy.seed(3)
        self.assertEqual([policy.predict(obs, deterministic=False).tolist() for _ in range(2)], first)

    def test_the_best_and_the_last_and_each_file(self):
        trireme.train("CartPole-v1", steps=20_000, out="run", **{**SMALL, "eval_every": 4096, "checkpoint_every_s": 0})
        best, last = trireme.load("run"), trireme.load("run", which="last")
        self.assertEqual((best.which, last.which), ("best", "last"))
        obs = np.random.default_rng(0).normal(size=(500, 4))
        for policy in (best, last):
            prefix = "best" if policy is best else "checkpoint"
            file = Path(f"run/{prefix}-{policy.steps}.trireme")
            alone = trireme.load(file)
            self.assertEqual((alone.which, alone.steps), (policy.which, policy.steps))
            self.assertEqual(alone.predict(obs).tolist(), policy.predict(obs).tolist())

    def test_a_trained_policy_balances(self):
        run = trireme.train("CartPole-v1", target=475, seed=1)
        self.assertTrue(run["reached_target"])
        env = gymnasium.make("CartPole-v1")  # Gymnasium's own
        total, (obs, _) = 0, env.reset(seed=5)
        for _ in range(500):
            obs, reward, terminated, truncated, _ = env.step(run.policy.predict(obs))
            total += reward
            if terminated or truncated:
                break
        self.assertGreater(total, 300)

    def test_from_several_threads(self):
        trireme.train("CartPole-v1", steps=2048, out="run", **SMALL)
        policy = trireme.load("run")
        obs = np.random.default_rng(0).normal(size=(1000, 4))
        expected, wrong = policy.predict(obs).tolist(), []

        def act():
            for _ in range(50):
                if policy.predict(obs).tolist() != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=act) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_mistakes_are_named(self):
        trireme.train("CartPole-v1", steps=2048, out="run", **SMALL)
        policy = trireme.load("run")

        def refuse(pattern, function, *arguments, **keywords):
            with self.assertRaisesRegex(trireme.Error, pattern):
                function(*arguments, **keywords)

        refuse(r"shape \(4,\), and a batch \(n, 4\); this one has shape \(5,\)", policy.predict, np.zeros(5))
        refuse("shape", policy.predict, np.zeros((2, 2, 4)))
        refuse("shape", policy.predict, 3.0)
        refuse("float32, not of <U1", policy.predict, ["a", "b", "c", "d"])
        refuse("float32, not of object", policy.predict, [None] * 4)
        refuse("no action_mask", policy.predict, np.zeros(4), action_mask=[1, 0])
        refuse("which: expected one of best, last", trireme.load, "run", "worst")
        refuse("no folder nowhere", trireme.load, "nowhere")
        Path("empty").mkdir()
        refuse("no run", trireme.load, "empty")
        damaged = next(Path("run").glob("checkpoint-*"))
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
        refuse("damaged", trireme.load, "run", "last")
        shutil.rmtree("run")
        self.assertIn(policy.predict(np.zeros(4)), (0, 1))  # needs its files no more


if __name__ == "__main__":
    unittest.main()
