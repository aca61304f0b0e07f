"""The face of Stable-Baselines3."""

import unittest
from pathlib import Path

import gymnasium
import numpy as np
from test_train import InScratch

import trireme
from trireme import A2C, DQN, PPO


def refuse(self, pattern, function, *arguments, **keywords):
    with self.assertRaisesRegex(trireme.Error, pattern):
        function(*arguments, **keywords)


class Scripts(InScratch):
    def test_a_script_that_moved_over(self):
        model = PPO(
            "MlpPolicy", "CartPole-v1", learning_rate=1e-3, n_steps=256, n_envs=8, batch_size=256, n_epochs=4, gamma=0.98,
            gae_lambda=0.8, clip_range=0.2, clip_range_vf=None, ent_coef=0.0, vf_coef=0.5, max_grad_norm=0.5,
            policy_kwargs={"net_arch": [32, 32]}, verbose=0, seed=0, device="auto", target_kl=None,
        )  # fmt: skip
        self.assertIs(model.learn(total_timesteps=4096), model)
        self.assertEqual(model.num_timesteps, 4096)
        config = (model.folder / "config.toml").read_text()
        for line in ("horizon = 256", "envs = 8", "minibatches = 8", "epochs = 4", "hidden = [32, 32]", "gamma = 0.98",
                     'learning_rate_schedule = "constant"', "value_clip = 0.0", "seed = 0"):  # fmt: skip
            self.assertIn(f"\n{line}", config)
        obs = np.zeros((10, 4), np.float32)
        actions, state = model.predict(obs, deterministic=True)
        self.assertEqual((actions.shape, actions.dtype, state), ((10,), np.int64, None))
        one, _ = model.predict(obs[0])
        gymnasium.make("CartPole-v1").action_space.contains(one)
        model.save("cartpole")
        self.assertTrue(Path("cartpole.zip").is_file())
        loaded = PPO.load("cartpole")
        self.assertEqual(loaded.num_timesteps, 4096)
        np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], actions)
        self.assertEqual(loaded.learn(2048).num_timesteps, 6144)
        np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], actions)  # another one's

    def test_learning_twice_goes_on(self):
        model = PPO("CartPole-v1", seed=1, envs=16, horizon=32, hidden=[8])
        model.learn(1024)
        before = model.predict(np.zeros(4), deterministic=True)
        self.assertEqual(model.learn(1024).num_timesteps, 2048)
        self.assertEqual(before[1], None)
        folder = model.folder
        del model
        self.assertFalse(folder.exists())

    def test_every_algorithm(self):
        model = A2C("MlpPolicy", "CartPole-v1", n_steps=5, n_envs=4, rms_prop_eps=1e-5, use_rms_prop=True, rounds=4)
        self.assertGreaterEqual(model.learn(500).num_timesteps, 500)
        model = DQN(
            "MlpPolicy", "CartPole-v1", learning_rate=2.3e-3, batch_size=64, buffer_size=10_000, learning_starts=100,
            gamma=0.99, target_update_interval=64, train_freq=16, gradient_steps=8, exploration_fraction=0.16,
            exploration_final_eps=0.04, policy_kwargs=dict(net_arch=[64, 64]), rounds=4,
        )  # fmt: skip
        self.assertGreaterEqual(model.learn(1000).num_timesteps, 1000)
        config = (model.folder / "config.toml").read_text()
        for line in ("horizon = 16", "envs = 1", "updates = 8", "batch = 64", "target_every = 32", "replay = 10000"):
            self.assertIn(f"\n{line}", config)
        model = PPO("MlpPolicy", "Pendulum-v1", envs=16, horizon=32, hidden=[8])
        action, _ = model.learn(512).predict(np.zeros(3))
        self.assertEqual(action.shape, (1,))

    def test_an_environment_that_gymnasium_has_made(self):
        model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), envs=16, horizon=32, hidden=[8])
        self.assertEqual(model.env, "CartPole-v1")
        self.assertEqual(PPO("MlpPolicy", gymnasium.make("Taxi-v4")).env, "gym:Taxi-v4")
        self.assertEqual(PPO("MlpPolicy", "LunarLander-v3").env, "gym:LunarLander-v3")
        refuse(self, "pass the class", PPO, "MlpPolicy", CountingDown())
        refuse(self, "n_envs", PPO, "MlpPolicy", gymnasium.make_vec("CartPole-v1", num_envs=2))

    def test_a_callback_stops_it(self):
        model = PPO("CartPole-v1", envs=16, horizon=32, hidden=[8])
        model.learn(10**9, callback=lambda metrics: metrics["step"] < 1024)
        self.assertEqual(model.num_timesteps, 1024)

    def test_mistakes_are_named(self):
        refuse(self, "no argument n_stesp. Did you mean n_steps", PPO, "MlpPolicy", "CartPole-v1", n_stesp=4)
        refuse(self, "MlpPolicy", PPO, "CnnPolicy", "CartPole-v1")
        refuse(self, "device='tpu'", PPO, "MlpPolicy", "CartPole-v1", device="tpu")
        refuse(self, "'cuda:x' is no device", PPO("MlpPolicy", "CartPole-v1", device="cuda:x").learn, 512)
        refuse(self, "learning_rate_schedule", PPO, "MlpPolicy", "CartPole-v1", learning_rate=lambda left: left)
        refuse(self, "net_arch", PPO, "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": dict(pi=[8], vf=[9])})
        refuse(self, "features_extractor_class", PPO, "MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": 1})
        refuse(self, "use_sde", PPO, "MlpPolicy", "CartPole-v1", use_sde=True)
        refuse(self, "learn", PPO("CartPole-v1").predict, np.zeros(4))
        refuse(self, "learn", PPO("CartPole-v1").save, "x")
        refuse(self, "function", PPO("CartPole-v1").learn, 100, callback=5)
        refuse(self, "there is no missing.zip", PPO.load, "missing")
        Path("other.zip").write_text("no model")
        refuse(self, "no model", PPO.load, "other")
        PPO("CartPole-v1", envs=16, horizon=32, hidden=[8]).learn(512).save("ppo")
        refuse(self, "PPO.load", DQN.load, "ppo")


class CountingDown(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)


if __name__ == "__main__":
    unittest.main()
