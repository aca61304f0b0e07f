"""make_vec and make: Gymnasium's rules, its checkers, its traces."""

import unittest

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

import trireme

NATIVE = trireme.env_names()


def actions_for(env, rng):
    space = env.single_action_space
    if isinstance(space, gymnasium.spaces.Box):
        return rng.uniform(space.low, space.high, (env.num_envs, *space.shape)).astype(np.float32)
    return rng.integers(space.n, size=env.num_envs)


class Rules(unittest.TestCase):
    def test_spaces_and_metadata(self):
        for name in NATIVE:
            with self.subTest(name):
                env = trireme.make_vec(name, 5)
                reference = gymnasium.make(name)
                self.assertIsInstance(env, gymnasium.vector.VectorEnv)
                self.assertEqual(env.num_envs, 5)
                self.assertEqual(env.single_action_space, reference.action_space)
                self.assertEqual(env.single_observation_space.shape, reference.observation_space.shape)
                self.assertEqual(env.observation_space.shape, (5, *reference.observation_space.shape))
                self.assertEqual(env.metadata["autoreset_mode"], gymnasium.vector.AutoresetMode.SAME_STEP)
                env.close()

    def test_gymnasiums_checker_passes_each_environment(self):
        for name in NATIVE:
            with self.subTest(name):
                check_env(trireme.make(name), skip_render_check=True, skip_close_check=True)

    def test_steps_have_shapes_and_types(self):
        rng = np.random.default_rng(0)
        for name in NATIVE:
            for copy in (False, True):
                with self.subTest(name, copy=copy):
                    env = trireme.make_vec(name, 13, copy=copy)
                    obs, infos = env.reset(seed=1)
                    self.assertIn(obs, env.observation_space)
                    self.assertEqual(infos, {})
                    for _ in range(50):
                        obs, rewards, terminated, truncated, infos = env.step(actions_for(env, rng))
                        self.assertIn(obs, env.observation_space)
                        self.assertEqual((rewards.dtype, rewards.shape), (np.float32, (13,)))
                        for flags in (terminated, truncated):
                            self.assertEqual((flags.dtype, flags.shape), (np.bool_, (13,)))
                        self.assertFalse((terminated & truncated).any())

    def test_an_episode_that_ends_leaves_its_last_observation(self):
        rng = np.random.default_rng(0)
        for copy in (False, True):
            env, alone = trireme.make_vec("CartPole-v1", 16, copy=copy), trireme.make("CartPole-v1")
            env.reset(seed=3)
            ends = 0
            for _ in range(200):
                before = [env._native.state(i) for i in range(16)]
                actions = actions_for(env, rng)
                obs, _, terminated, truncated, infos = env.step(actions)
                done = terminated | truncated
                if not done.any():
                    self.assertNotIn("final_obs", infos)
                    continue
                ends += 1
                np.testing.assert_array_equal(infos["_final_obs"], done)
                np.testing.assert_array_equal(infos["_final_info"], done)
                self.assertEqual(infos["final_info"], {})
                self.assertEqual((infos["final_obs"].dtype, infos["final_obs"].shape), (object, (16,)))
                for i in range(16):
                    if not done[i]:
                        self.assertIsNone(infos["final_obs"][i])
                        continue
                    alone.reset(seed=0)
                    alone._native.set_state(0, before[i])
                    np.testing.assert_array_equal(infos["final_obs"][i], alone.step(int(actions[i]))[0])
                    self.assertLess(np.abs(obs[i]).max(), 0.05001)  # a new start
            self.assertGreater(ends, 10)

    def test_truncated_is_not_terminated(self):
        env = trireme.make_vec("CartPole-v1", 4, max_steps=7)
        env.reset(seed=0)
        for t in range(1, 15):
            _, _, terminated, truncated, _ = env.step(np.full(4, t % 2))
            self.assertFalse(terminated.any())
            self.assertEqual(truncated.all(), t % 7 == 0)

    def test_views_are_overwritten_and_copies_are_not(self):
        env = trireme.make_vec("CartPole-v1", 4)
        first, _ = env.reset(seed=0)
        start = first.copy()
        second = env.step(np.zeros(4, np.int64))[0]
        self.assertTrue(np.shares_memory(first, second))
        self.assertFalse((first == start).all())
        with self.assertRaises(ValueError):
            first[0] = 1  # read-only
        env = trireme.make_vec("CartPole-v1", 4, copy=True)
        first, _ = env.reset(seed=0)
        env.step(np.zeros(4, np.int64))
        np.testing.assert_array_equal(first, start)

    def test_views_outlive_the_environment(self):
        env = trireme.make_vec("CartPole-v1", 4096)
        obs, _ = env.reset(seed=0)
        values = obs.copy()
        del env
        np.testing.assert_array_equal(obs, values)

    def test_wrappers_of_gymnasium_work(self):
        env = gymnasium.wrappers.vector.RecordEpisodeStatistics(trireme.make_vec("CartPole-v1", 8, copy=True))
        env.reset(seed=0)
        lengths = []
        for _ in range(100):
            infos = env.step(env.action_space.sample())[4]
            lengths += list(infos["episode"]["l"][infos["_episode"]]) if "episode" in infos else []
        self.assertGreater(len(lengths), 8)
        self.assertGreater(np.mean(lengths), 5)


class Seeds(unittest.TestCase):
    def test_the_same_seed_gives_the_same_episodes(self):
        for name in NATIVE:
            with self.subTest(name):
                traces = []
                for _ in range(2):
                    env, rng = trireme.make_vec(name, 6, copy=True), np.random.default_rng(5)
                    trace = [env.reset(seed=11)[0]]
                    trace += [env.step(actions_for(env, rng))[0] for _ in range(300)]
                    traces.append(np.stack(trace))
                np.testing.assert_array_equal(*traces)

    def test_a_number_is_the_list_that_counts_from_it(self):
        by_number, by_list = (trireme.make_vec("CartPole-v1", 3, copy=True) for _ in range(2))
        np.testing.assert_array_equal(by_number.reset(seed=4)[0], by_list.reset(seed=[4, 5, 6])[0])
        rng = np.random.default_rng(0)
        for _ in range(100):  # also the episodes that follow
            actions = rng.integers(2, size=3)
            np.testing.assert_array_equal(by_number.step(actions)[0], by_list.step(actions)[0])
        same, _ = by_list.reset(seed=[9, 9, 1])
        np.testing.assert_array_equal(same[0], same[1])
        self.assertFalse((same[0] == same[2]).all())

    def test_without_a_seed_other_episodes_follow_from_the_last_one(self):
        env = trireme.make_vec("CartPole-v1", 3, copy=True)
        starts = []
        for _ in range(2):
            first, _ = env.reset(seed=1)
            second, _ = env.reset()
            self.assertFalse((first == second).any())
            starts.append((first, second))
        np.testing.assert_array_equal(starts[0], starts[1])
        unseeded = [trireme.make_vec("CartPole-v1", 3).reset()[0] for _ in range(2)]
        self.assertFalse((unseeded[0] == unseeded[1]).all())


class Traces(unittest.TestCase):
    """From the same state and with the same actions, Gymnasium's own environment gives the same numbers."""

    def test_cart_pole_is_gymnasiums(self):
        env = trireme.make_vec("CartPole-v1", 32, copy=True)
        theirs = [gymnasium.make("CartPole-v1") for _ in range(32)]
        env.reset(seed=2)
        rng = np.random.default_rng(3)

        def align(i):
            theirs[i].reset()
            theirs[i].unwrapped.state = np.array(env._native.state(i))

        for i in range(32):
            align(i)
        ends = 0
        for _ in range(400):
            actions = rng.integers(2, size=32)
            obs, rewards, terminated, truncated, infos = env.step(actions)
            for i, other in enumerate(theirs):
                their_obs, reward, end, cut, _ = other.step(int(actions[i]))
                self.assertEqual((rewards[i], terminated[i], truncated[i]), (reward, end, cut))
                ours = infos["final_obs"][i] if end or cut else obs[i]
                np.testing.assert_allclose(ours, their_obs, rtol=1e-6, atol=1e-7)
                if end or cut:
                    ends += 1
                    align(i)
        self.assertGreater(ends, 200)


class Refusals(unittest.TestCase):
    def refuse(self, pattern, function, *arguments, **keywords):
        with self.assertRaisesRegex(trireme.Error, pattern):
            function(*arguments, **keywords)

    def test_what_cannot_be_made(self):
        self.refuse("Did you mean .CartPole-v1", trireme.make_vec, "CartPole-v2", 4)
        self.refuse("whole number", trireme.make_vec, "CartPole-v1", 0)
        self.refuse("whole number", trireme.make_vec, "CartPole-v1", 2.5)
        self.refuse("max_steps", trireme.make_vec, "CartPole-v1", 4, max_step=5)
        self.refuse("by name, not.*py:file.py:Name", trireme.make_vec, gymnasium.Env, 4)
        self.refuse("by name", trireme.make, 5)
        self.refuse("env_args: a dictionary", trireme.make_vec, "CartPole-v1", 4, env_args=["a=1"])

    def test_what_was_closed_stays_closed(self):
        env = trireme.make_vec("CartPole-v1", 4)
        obs, _ = env.reset(seed=0)
        first = obs.copy()
        env.close()
        env.close()
        self.refuse("closed", env.step, np.zeros(4, np.int64))
        self.refuse("closed", env.reset, seed=0)
        np.testing.assert_array_equal(obs, first)  # memory stays while somebody looks at it
        single = self.begun("CartPole-v1")
        single.close()
        self.refuse("closed", single.step, 0)
        self.refuse("closed", single.reset)

    def test_what_cannot_be_done(self):
        env = trireme.make_vec("CartPole-v1", 4)
        self.refuse("reset", env.step, np.zeros(4, np.int64))
        env.reset(seed=0)
        state = [env._native.state(i) for i in range(4)]
        self.refuse("environment 2 is not one of 0 ... 1", env.step, np.array([0, 1, 2, 0]))
        self.refuse("action -1 of environment 3", env.step, np.array([0, 1, 1, -1]))
        self.refuse("shape", env.step, np.zeros(3, np.int64))
        self.refuse("shape", env.step, np.zeros((4, 1), np.int64))
        self.refuse("whole numbers", env.step, np.zeros(4, np.float32))
        self.refuse("seeds", env.reset, seed=[1, 2])
        for seed in (-1, 2**64, 2**64 - 3, 1.5, "a", [1, 2, 3, -1], [1, None, 3, 4], [2**64] * 4):
            self.refuse("a seed is", env.reset, seed=seed)
        for seed in (2**64, -1, 1.5):
            self.refuse("a seed is", trireme.make("CartPole-v1").reset, seed=seed)
        self.refuse("options", env.reset, options={"low": 0})
        self.assertEqual([env._native.state(i) for i in range(4)], state)  # nothing has moved
        self.refuse("not an action", self.begun("CartPole-v1").step, 2)
        self.refuse("reset", trireme.make("CartPole-v1").step, 0)
        box = trireme.make_vec("Pendulum-v1", 2)
        box.reset(seed=0)
        self.refuse("shape", box.step, np.zeros(2, np.float32))
        self.assertEqual(box.step(np.zeros((2, 1)))[1].shape, (2,))  # float64 is converted
        self.refuse("environment 1 is not a number", box.step, np.array([[0], [np.nan]]))

    def begun(self, name):
        env = trireme.make(name)
        env.reset(seed=0)
        return env


if __name__ == "__main__":
    unittest.main()
