"""Environments of this interpreter."""

import unittest

import gymnasium
import numpy as np
from gymnasium import spaces
from test_train import InScratch

import trireme

QUICK = dict(steps=512, envs=8, horizon=16, hidden=[8], eval_every=0, eval_episodes=4)


def make_walk(**faults):
    """A class that nobody can import: a walk on a line, one step at a time."""

    class Walk(gymnasium.Env):
        observation_space = spaces.Box(-10, 10, (2,), np.float32)
        action_space = spaces.Discrete(2)
        made = 0
        seeds = []
        closed = 0

        def __init__(self, end=5):
            type(self).made += 1
            self.end = end

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                type(self).seeds.append(seed)
            self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
            return self.seen(), {}

        def seen(self):
            return np.array([self.place, self.steps], np.float32)

        def step(self, action):
            assert action in (0, 1), action
            self.steps += 1
            self.place += 1 if action == 1 else -1
            if self.steps == faults.get("at", 3):
                if "raises" in faults:
                    raise faults["raises"]
                if "gives" in faults:
                    return faults["gives"]
            return self.seen(), 1.0 if action == 1 else 0.0, self.place > self.end, self.steps >= 9, {}

        def close(self):
            type(self).closed += 1

    return Walk


class Objects(InScratch):
    def test_a_closure_is_trained_on(self):
        Walk = make_walk()
        run = trireme.train(lambda: Walk(), "ppo", steps=20_000, out="run", seed=1, **{k: v for k, v in QUICK.items() if k != "steps"})
        self.assertEqual(run["env"], "object:lambda")
        self.assertGreater(run["eval_return_mean"], 4)
        self.assertEqual(Walk.made, Walk.closed)
        self.assertEqual(len(set(Walk.seeds)), len(Walk.seeds) - Walk.seeds.count(0) + 1)
        self.assertIn(run.policy.predict(np.zeros(2)), (0, 1))

    def test_the_same_seed_gives_the_same_bits_for_any_number_of_workers(self):
        runs = [
            trireme.train(make_walk(), out=str(i), workers=workers, seed=2, **QUICK)
            for i, workers in enumerate((None, 1, 2))
        ]
        self.assertEqual([run["workers"] for run in runs], [1, 1, 2])
        self.assertEqual(len({run["params_sha256"] for run in runs}), 1)

    def test_it_goes_on_with_the_environment_given_again(self):
        trireme.train(make_walk(), out="run", **QUICK)
        self.refuse("must say again how", resume="run", steps=1024)
        self.assertEqual(trireme.train(make_walk(), resume="run", steps=1024)["steps"], 1024)
        self.assertIn(trireme.load("run").predict(np.zeros(2)), (0, 1))  # without it

    def test_arguments(self):
        seen = []
        Walk = make_walk()

        def make(end, name):
            seen.append((end, name))
            return Walk(end)

        def local(**arguments):
            return make(**arguments)

        trireme.train(local, env_args={"end": 3, "name": "x y"}, out="run", **QUICK)
        self.assertEqual(set(seen), {(3, "x y")})

    def test_what_environments_raise_comes_out(self):
        with self.assertRaisesRegex(ZeroDivisionError, "in the middle"):
            trireme.train(make_walk(raises=ZeroDivisionError("in the middle")), **QUICK)
        with self.assertRaisesRegex(RuntimeError, "made"):
            def fail():
                raise RuntimeError("not made")
            trireme.train(fail, **QUICK)

    def test_broken_rules_are_named_with_their_step(self):
        good = np.zeros(2, np.float32)
        for gives, pattern in [
            ((good, 1.0, False, False), "environment 0 at step 3: step.. gave"),
            ((np.zeros(3), 1.0, False, False, {}), r"shape \(3,\), not \(2,\)"),
            ((np.array([np.nan, 0]), 1.0, False, False, {}), "environment 0 at step 3: its observation is not finite"),
            ((np.array([np.nan, 0]), 1.0, True, False, {}), "its observation is not finite"),
            ((good, float("nan"), False, False, {}), "its reward is not finite"),
            ((good, "much", False, False, {}), "its reward is 'much', not a number"),
            ((good, "1.0", False, False, {}), "its reward is '1.0', not a number"),
            ((good, 1.0, False, None, {}), "truncated is None, not True or False"),
            ((good, 1.0, np.zeros(2, bool), False, {}), "terminated is array.*, not True or False"),
            ((["a", "b"], 1.0, False, False, {}), "observation"),
            ((good, 1.0, False, False, {"action_mask": [1, 0]}), "action_mask.*was not there at the first reset"),
        ]:
            with self.subTest(pattern):
                self.refuse(pattern, make_walk(gives=gives), **QUICK)
        self.refuse("no environment: it has no reset", lambda: object(), **QUICK)
        Odd = make_walk()
        Odd.observation_space = spaces.Text(5)
        self.refuse("observation space is Text.*not supported", Odd, **QUICK)

    def test_spaces(self):
        def make(observation, action, mask=None):
            class Any_(gymnasium.Env):
                observation_space, action_space = observation, action

                def reset(self, *, seed=None, options=None):
                    super().reset(seed=seed)
                    self.observation_space.seed(seed)
                    self.steps = 0
                    return self.observation_space.sample(), self.info()

                def info(self):
                    return {} if mask is None else {"action_mask": np.array(mask, np.int8)}

                def step(self, taken):
                    assert self.action_space.contains(taken), taken
                    assert mask is None or mask[taken]
                    self.steps += 1
                    return self.observation_space.sample(), 0.0, False, self.steps == 7, self.info()

            return Any_

        box = spaces.Box(-1, 1, (3,), np.float32)
        for i, (observation, action, mask) in enumerate([
            (box, spaces.Box(-2, np.array([2, 3], np.float32), dtype=np.float32), None),
            (box, spaces.MultiDiscrete([2, 3]), None),
            (box, spaces.MultiBinary(3), None),
            (box, spaces.Discrete(4, start=2), None),
            (box, spaces.Discrete(4), [1, 0, 1, 0]),
            (spaces.Box(0, 255, (4, 4), np.uint8), spaces.Discrete(2), None),
            (spaces.Dict(a=box, b=spaces.Discrete(3)), spaces.Discrete(2), None),
            (spaces.Tuple((box, spaces.MultiDiscrete([2, 2]))), spaces.Discrete(2), None),
        ]):
            with self.subTest(observation=observation, action=action):
                run = trireme.train(make(observation, action, mask), out=f"spaces{i}", **QUICK)
                self.assertEqual(run["steps"], 512)
                policy = run.policy
                obs = policy.observation_space.sample()
                taken = policy.predict(obs) if mask is None else policy.predict(obs, action_mask=mask)
                self.assertTrue(policy.action_space.contains(taken) or isinstance(taken, int))

    def test_a_model_of_it_is_saved_and_goes_on(self):
        model = trireme.PPO(make_walk(), envs=8, horizon=16, hidden=[8])
        model.learn(512).learn(512)
        model.save("walk")
        loaded = trireme.PPO.load("walk")
        self.assertEqual(loaded.predict(np.zeros((3, 2)))[0].shape, (3,))
        with self.assertRaisesRegex(trireme.Error, "load"):
            loaded.learn(512)
        self.assertEqual(trireme.PPO.load("walk", env=make_walk()).learn(512).num_timesteps, 1536)


if __name__ == "__main__":
    unittest.main()
