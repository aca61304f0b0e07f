"""predict takes and gives what the spaces of an environment have, whatever they are."""

import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from test_train import InScratch

import trireme
from trireme._rows import ObservationRows

QUICK = dict(steps=256, envs=8, horizon=16, hidden=[8], eval_every=0, eval_episodes=2)
BOX = spaces.Box(-1, 1, (3,), np.float32)
NESTED = spaces.Dict(
    b=spaces.Discrete(3, start=-1), a=BOX, c=spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[5, 7]), spaces.MultiBinary(2)))
)
ACTIONS = {
    "discrete": spaces.Discrete(4, start=10),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[10, -20]),
    "multi_discrete_2d": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "multi_binary": spaces.MultiBinary(3),
    "box_2d": spaces.Box(-2, np.array([[0.1, 2], [3, 4]], np.float32), dtype=np.float32),
    "box_float64": spaces.Box(0.1, 0.3, (2,), np.float64),
}
OBSERVATIONS = {
    "nested": NESTED,
    "tuple": spaces.Tuple((BOX, spaces.Discrete(2))),
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, 4]),
    "multi_binary": spaces.MultiBinary([2, 2]),
    "image": spaces.Box(0, 255, (2, 3, 1), np.uint8),
    "number": spaces.Box(-np.inf, np.inf, (), np.float64),
    "box_2d": spaces.Box(-1, 1, (2, 2), np.float32),
}


def make_class(observation, action):
    class Any_(gymnasium.Env):
        observation_space, action_space = observation, action

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                self.observation_space.seed(seed)
            self.steps = 0
            return self.observation_space.sample(), {}

        def step(self, taken):
            assert self.action_space.contains(taken), taken
            self.steps += 1
            return self.observation_space.sample(), 0.0, False, self.steps == 7, {}

    return Any_


def batch_of(space, samples):
    concatenated = gymnasium.vector.utils.create_empty_array(space, len(samples))
    return gymnasium.vector.utils.concatenate(space, samples, concatenated)


class OwnSpaces(InScratch):
    def check(self, policy, observation, action):
        samples = [observation.sample() for _ in range(5)]
        batched = batch_of(observation, samples)
        for deterministic in (True, False):
            one = policy.predict(samples[0], deterministic=deterministic)
            self.assertTrue(action.contains(one), one)
            many = policy.predict(batched, deterministic=deterministic)
            self.assertEqual(len(many), 5)
            for taken in many:
                self.assertTrue(action.contains(taken), taken)
        each = [policy.predict(sample) for sample in samples]
        np.testing.assert_array_equal(policy.predict(batched), batch_of(action, each))

    def test_actions_are_those_that_step_takes(self):
        for name, action in ACTIONS.items():
            with self.subTest(name):
                run = trireme.train(make_class(BOX, action), out=name, **QUICK)
                self.check(run.policy, BOX, action)
                if name not in ("multi_binary", "box_float64"):  # which are as good by the library's own description
                    self.assertEqual(run.policy.action_space, action)

    def test_observations_are_those_that_step_gives(self):
        for name, observation in OBSERVATIONS.items():
            with self.subTest(name):
                run = trireme.train(make_class(observation, spaces.Discrete(3)), out=name, **QUICK)
                self.check(run.policy, observation, spaces.Discrete(3))

    def test_parts_are_flattened_as_gymnasium_does(self):
        for name, observation in OBSERVATIONS.items():
            with self.subTest(name):
                samples = [observation.sample() for _ in range(7)]
                rows, single = ObservationRows(observation, name).rows(batch_of(observation, samples))
                self.assertFalse(single)
                np.testing.assert_array_equal(rows, [spaces.flatten(observation, s).astype(rows.dtype) for s in samples])

    def test_whose_environments_are_elsewhere(self):
        env = "from test_spaces import *\nEnv = make_class(NESTED, ACTIONS['discrete'])\n"
        Path("envs.py").write_text(env)
        sys.path.insert(0, str(self.scratch))
        self.addCleanup(sys.path.remove, str(self.scratch))
        trireme.train("py:envs.py:Env", out="run", env_hosts=1, **QUICK)
        self.check(trireme.load("run", env=make_class(NESTED, ACTIONS["discrete"])), NESTED, ACTIONS["discrete"])
        with self.assertRaisesRegex(trireme.Error, r"\['c'\]\[1\] 11-12; choices count from 10. load\(path, env=env\)"):
            trireme.load("run").predict(NESTED.sample())
        by_name = trireme.train("gym:Taxi-v4", out="taxi", env_hosts=1, **QUICK).policy  # makes one
        self.check(by_name, spaces.Discrete(500), spaces.Discrete(6))

    def test_without_the_environment_it_is_asked_for(self):
        Env = make_class(BOX, ACTIONS["discrete"])
        trireme.train(Env, out="run", **QUICK)
        with self.assertRaisesRegex(trireme.Error, r"choices count from 10. load\(path, env=env\)"):
            trireme.load("run").predict(BOX.sample())
        for env in (Env(), Env, lambda: Env(), gymnasium.vector.SyncVectorEnv([Env, Env])):
            self.check(trireme.load("run", env=env), BOX, ACTIONS["discrete"])
        trireme.train(make_class(BOX, ACTIONS["box_2d"]), out="shape", **QUICK)
        with self.assertRaisesRegex(trireme.Error, r"actions have shape \(2, 2\)"):
            trireme.load("shape").predict(BOX.sample())

    def test_without_gymnasium(self):
        trireme.train(make_class(NESTED, ACTIONS["discrete"]), out="run", **QUICK)
        program = """
            import sys
            sys.modules["gymnasium"] = None
            import numpy as np, trireme
            def space(kind, **attributes):
                made = type(kind, (), {})()
                vars(made).update(attributes)
                return made
            class Env:
                observation_space = space("Dict", spaces={
                    "a": space("Box", shape=(3,), dtype=np.float32, low=np.full(3, -1), high=np.ones(3)),
                    "b": space("Discrete", n=3, start=-1),
                    "c": space("Tuple", spaces=[
                        space("MultiDiscrete", nvec=[2, 3], start=[5, 7], dtype=int), space("MultiBinary", n=2)])})
                action_space = space("Discrete", n=4, start=10)
            obs = {"a": [0.5, 0.5, 0.5], "b": -1, "c": ([5, 8], [0, 1])}
            print(trireme.load("run", env=Env).predict(obs) in range(10, 14))
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("True\n", ""))

    def test_what_does_not_fit_is_refused(self):
        action = ACTIONS["discrete"]
        trireme.train(make_class(NESTED, action), out="run", **QUICK)

        def refuse(pattern, function, *arguments, **keywords):
            with self.assertRaisesRegex(trireme.Error, pattern):
                function(*arguments, **keywords)

        refuse("does not fit", trireme.load, "run", env=make_class(BOX, action)())
        refuse("does not fit", trireme.load, "run", env=make_class(NESTED, spaces.Discrete(5))())
        refuse("does not fit", trireme.load, "run", env=make_class(NESTED, BOX)())
        refuse("not supported", trireme.load, "run", env=make_class(NESTED, spaces.Tuple((BOX, BOX)))())
        refuse("an environment is needed", trireme.load, "run", env="CartPole-v1")
        policy, obs = trireme.load("run", env=make_class(NESTED, action)), NESTED.sample()
        refuse(r"has no \['b'\]", policy.predict, {k: v for k, v in obs.items() if k != "b"})
        refuse(r"no \['b'\]", policy.predict, np.zeros(13))
        refuse(r"observation\['b'\].* is 2, which is not in its space", policy.predict, {**obs, "b": 2})
        refuse(r"is 0.5, which is not in its space", policy.predict, {**obs, "b": 0.5})
        refuse("batches of another size", policy.predict, {**obs, "a": np.zeros((2, 3))})
        refuse(r"observation\['a'\].* shape \(3,\), and a batch \(n, 3\)", policy.predict, {**obs, "a": np.zeros(4)})
        refuse(r"observations\['a'\].* not of <U1", policy.predict, {**obs, "a": ["x", "y", "z"]})

    def test_masks_of_several_parts(self):
        action = spaces.MultiDiscrete([2, 3], start=[1, 1])

        class Masked(make_class(BOX, action)):
            def reset(self, **keywords):
                return super().reset(**keywords)[0], {"action_mask": (np.array([1, 0]), np.array([0, 0, 1]))}

            def step(self, taken):
                assert taken.tolist() == [1, 3], taken
                return *super().step(taken)[:4], {"action_mask": (np.array([1, 0]), np.array([0, 0, 1]))}

        policy = trireme.train(Masked, out="run", **QUICK).policy
        self.assertEqual(policy.predict(BOX.sample(), action_mask=([1, 0], [0, 0, 1])).tolist(), [1, 3])
        self.assertEqual(policy.predict(BOX.sample(), action_mask=[1, 0, 0, 0, 1]).tolist(), [1, 3])
        masks = (np.array([[1, 0], [0, 1]]), np.array([[0, 0, 1], [1, 0, 0]]))
        self.assertEqual(policy.predict(np.zeros((2, 3)), action_mask=masks).tolist(), [[1, 3], [2, 1]])
        with self.assertRaisesRegex(trireme.Error, "allows nothing"):
            policy.predict(BOX.sample(), action_mask=([1, 0], [0, 0, 0]))


class Models(InScratch):
    def test_models_too(self):
        Env = make_class(NESTED, ACTIONS["multi_discrete"])
        model = trireme.PPO(Env, envs=8, horizon=16, hidden=[8]).learn(256)
        model.save("model")
        samples = [NESTED.sample() for _ in range(3)]
        for model in (model, trireme.PPO.load("model", env=Env)):
            action, _ = model.predict(samples[0], deterministic=True)
            self.assertTrue(ACTIONS["multi_discrete"].contains(action), action)
            actions, _ = model.predict(batch_of(NESTED, samples), deterministic=True)
            self.assertEqual((actions.shape, actions[0].tolist()), ((3, 2), action.tolist()))
        with self.assertRaisesRegex(trireme.Error, "load.path, env="):
            trireme.PPO.load("model").predict(samples[0])
        model = trireme.DQN("MlpPolicy", "FrozenLake-v1", train_freq=16, learning_starts=16).learn(64)
        env = gymnasium.make("FrozenLake-v1")
        action, _ = model.predict(env.reset(seed=0)[0], deterministic=True)
        self.assertIn(int(action), range(4))
        model.save("lake")
        self.assertEqual(trireme.DQN.load("lake", env=env).predict(3, deterministic=True)[0].shape, ())
        self.assertEqual(trireme.DQN.load("lake").predict(np.array([3, 2]))[0].shape, (2,))  # made by name


if __name__ == "__main__":
    unittest.main()
