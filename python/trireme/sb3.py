"""The face of Stable-Baselines3: a script moves over by changing an import.

    from trireme import PPO          # from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", learning_rate=3e-4, verbose=1)
    model.learn(total_timesteps=100_000)
    model.save("cartpole")
    action, _ = PPO.load("cartpole").predict(obs, deterministic=True)

Arguments have the names and meanings they have there. What is not given is Trireme's preset for the environment, or its
default; any of Trireme's own settings can be given too. What cannot be honoured is an error, never ignored.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _envs, _trireme
from ._policy import Policy, load_for
from ._text import argument_dict
from ._train import Run, settings, train
from ._trireme import Error

Model = TypeVar("Model", bound="_Model")

# What every model takes, beside what its class says.
_COMMON = ("policy_kwargs", "tensorboard_log", "device", "n_envs", "use_sde", "sde_sample_freq", "stats_window_size")
_ABOUT = "trireme.json"


class _Model:
    _algo: ClassVar[str]
    # SB3's name: ours. Others have a function.
    _names: ClassVar[dict[str, str]]
    _others: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        policy: str | _envs.EnvLike,
        env: Any = None,
        *,
        env_args: Mapping[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        **arguments: Any,
    ) -> None:
        if env is None:
            policy, env = "MlpPolicy", policy
        if policy != "MlpPolicy":
            raise Error(f"{policy!r} is no policy here: there is MlpPolicy, whose layers are policy_kwargs or hidden")
        self.verbose, self.seed = verbose, seed
        self.env, self._env_args = _resolve(env, env_args)
        self._example = None if isinstance(env, str) or callable(env) else env  # of what it acts in
        self._settings = self._translate(arguments)
        self._scratch: Path | None = None
        self._run: Run | None = None
        self._acting: Policy | None = None
        self.num_timesteps = 0

    # ---- What SB3's arguments mean ----

    def _translate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        known = settings(self.env if isinstance(self.env, str) else "object:", self._algo)
        translated: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in self._names:
                translated[self._names[key]] = _number(key, value)
            elif key not in _COMMON and key not in self._others:
                if key not in known and not key.startswith("env_"):
                    raise Error(self._unknown(key, known))
                translated[key] = value
        if "learning_rate" in arguments:
            translated.setdefault("learning_rate_schedule", "constant")
        self._translate_common(arguments, translated)
        self._translate_batches(arguments, {**known, **translated}, translated)
        return translated

    def _unknown(self, key: str, known: Mapping[str, Any]) -> str:
        import difflib

        names = [*self._names, *self._others, *_COMMON, *known]
        near = difflib.get_close_matches(key, names, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"{type(self).__name__}: there is no argument {key}.{hint} docs/settings.md lists all settings"

    def _translate_common(self, arguments: dict[str, Any], translated: dict[str, Any]) -> None:
        device = str(arguments.get("device", "auto"))
        if device.startswith("cuda"):
            translated["device"] = device
        elif device not in ("auto", "cpu"):  # both are the fused executor, which is faster than libtorch there
            raise Error(f"device={device!r}: there are cpu, cuda and cuda:1; trireme.train takes all that trireme devices lists")
        if arguments.get("use_sde"):
            raise Error("use_sde: state-dependent exploration is not there: leave it out")
        if arguments.get("tensorboard_log") is not None:
            raise Error("tensorboard_log: events are in the folder of the run; trireme.train(out=...) says where that is")
        policy = dict(arguments.get("policy_kwargs") or {})
        layers = policy.pop("net_arch", None)
        if isinstance(layers, Mapping):
            kinds = list(layers.values())
            if any(list(kind) != list(kinds[0]) for kind in kinds):
                raise Error(f"net_arch={dict(layers)}: policy and value have the same hidden layers here: say one list")
            layers = kinds[0] if kinds else None
        if layers is not None:
            translated["hidden"] = list(layers)
        activation = policy.pop("activation_fn", None)
        if activation is not None:
            name = activation if isinstance(activation, str) else getattr(activation, "__name__", str(activation))
            translated["activation"] = name.lower()
        if "ortho_init" in policy:
            translated["init"] = "orthogonal" if policy.pop("ortho_init") else "xavier"
        if policy:
            raise Error(f"policy_kwargs: {next(iter(policy))} is not there; net_arch, activation_fn and ortho_init are")

    def _translate_batches(
        self, arguments: dict[str, Any], known: Mapping[str, Any], translated: dict[str, Any]
    ) -> None:
        raise NotImplementedError

    def _fix_envs(self, arguments: dict[str, Any], translated: dict[str, Any], by_default: int = 1) -> int:
        """As many environments as SB3 would have, cut into as many parts as that allows."""
        envs = int(arguments.get("n_envs") or by_default)
        translated["envs"] = envs
        translated["shards"] = next(n for n in (8, 4, 2, 1) if envs % n == 0)
        return envs

    # ---- What models do ----

    def learn(
        self: Model,
        total_timesteps: int,
        callback: Callable[[dict[str, float]], Any] | None = None,
        log_interval: int | None = None,
        tb_log_name: str = "",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Model:
        """Trains for so many steps; when called again, for as many more, from where it was.

        callback: called with a dictionary of what was measured after every iteration; False stops. Schedules run over
        all steps that are known so far. After Ctrl-C the model has what it had learned, and learn() goes on. log_interval
        and tb_log_name are accepted and mean nothing; reset_num_timesteps makes no difference: steps are always counted
        on.
        """
        if callback is not None and not callable(callback):
            raise Error("callback: a function that is called with a dictionary of what was measured; False stops")
        steps = self.num_timesteps + int(total_timesteps)
        common: dict[str, Any] = dict(steps=steps, callback=callback, progress=bool(self.verbose) or progress_bar)
        self._acting = None
        try:
            if self._run is None and self.num_timesteps == 0:
                self._make_scratch()
                quiet = {"eval_every": 0, "eval_episodes": 1}
                self._run = train(
                    self.env,
                    self._algo,
                    seed=self.seed,
                    out=self.folder,
                    env_args=self._env_args,
                    **{**quiet, **self._settings},
                    **common,
                )
            else:
                self._run = train(self.env if not isinstance(self.env, str) else None, resume=self.folder, **common)
        finally:
            self.num_timesteps = self._steps()
        return self

    @property
    def folder(self) -> Path:
        """The run behind the model: checkpoints, metrics, report. Ends with the model: save() what is to stay."""
        if self._scratch is None:
            raise Error("nothing was learned yet: call learn() first")
        return self._scratch / "run"

    def _make_scratch(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="trireme-"))
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)

    def _steps(self) -> int:
        checkpoints = self.folder.glob("checkpoint-*.trireme")
        return max((int(path.stem.split("-")[1]) for path in checkpoints), default=0)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], Any]:
        """(action, state), for one observation or a batch, as the environment's spaces have them (see Policy.predict); the
        state means nothing, as with SB3's MlpPolicy."""
        if self._acting is None:
            self._acting = load_for(self.folder, "last", self._example or _envs.maker(self.env, self._env_args))
            if self.seed is not None:
                self._acting.seed(self.seed)
        return np.asarray(self._acting.predict(observation, deterministic=deterministic)), state

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, `path` or path.zip, with all that load() and a further learn() need."""
        names = [self.folder / "config.toml", *sorted(self.folder.glob("*.trireme"))]
        about = {"class": type(self).__name__, "env": self.env if isinstance(self.env, str) else None}
        target = _zip_path(path)
        unfinished = target.with_name(target.name + ".tmp")
        with zipfile.ZipFile(unfinished, "w") as archive:
            archive.writestr(_ABOUT, json.dumps(about))
            for file in names:
                archive.write(file, file.name)
        os.replace(unfinished, target)

    @classmethod
    def load(cls: type[Model], path: str | os.PathLike[str], env: Any = None, **arguments: Any) -> Model:
        """The model in a file that save() wrote. `env` is needed to learn on only, and only where it has no name."""
        file = _zip_path(path)
        if not file.is_file():
            raise Error(f"there is no {file}")
        try:
            archive = zipfile.ZipFile(file)
            about = json.loads(archive.read(_ABOUT))
        except (zipfile.BadZipFile, KeyError, ValueError):
            raise Error(f"{file} is no model that trireme has saved") from None
        if about.get("class") != cls.__name__:
            raise Error(f"{file} holds a model of class {about.get('class')}: use {about.get('class')}.load")
        if env is None:
            env = about["env"] or _Unknown()
        model = cls("MlpPolicy", env, **arguments)
        model._make_scratch()
        model.folder.mkdir()
        with archive:
            for name in archive.namelist():
                if name != _ABOUT and Path(name).name == name:
                    (model.folder / name).write_bytes(archive.read(name))
        model.num_timesteps = model._steps()
        return model

    def __repr__(self) -> str:
        return f"trireme.{type(self).__name__}({self.env!r}), after {self.num_timesteps} steps"


class _Unknown:
    """The environment of a model that was loaded without one: it can act."""

    def __call__(self) -> Any:
        raise Error("this model was trained on an environment without a name: load(path, env=...)")


class PPO(_Model):
    """Proximal policy optimisation, with the arguments of stable_baselines3.PPO."""

    _algo = "ppo"
    _names = {
        "learning_rate": "learning_rate",
        "n_epochs": "epochs",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "clip_range": "clip",
        "clip_range_vf": "value_clip",
        "normalize_advantage": "normalise_advantages",
        "ent_coef": "entropy_coef",
        "vf_coef": "value_coef",
        "max_grad_norm": "max_grad_norm",
        "target_kl": "target_kl",
    }
    _others = ("n_steps", "batch_size")

    def _translate_batches(
        self, arguments: dict[str, Any], known: Mapping[str, Any], translated: dict[str, Any]
    ) -> None:
        envs, horizon = known["envs"], known["horizon"]
        if "n_steps" in arguments or "n_envs" in arguments:
            envs, horizon = self._fix_envs(arguments, translated), int(arguments.get("n_steps", 2048))
            translated["horizon"] = horizon
        if "batch_size" in arguments:
            translated["minibatches"] = max(1, -(-envs * horizon // int(arguments["batch_size"])))


class A2C(_Model):
    """Advantage actor-critic, with the arguments of stable_baselines3.A2C."""

    _algo = "a2c"
    _names = {
        "learning_rate": "learning_rate",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "ent_coef": "entropy_coef",
        "vf_coef": "value_coef",
        "max_grad_norm": "max_grad_norm",
        "rms_prop_eps": "optimizer_eps",
        "normalize_advantage": "normalise_advantages",
    }
    _others = ("n_steps", "use_rms_prop")

    def _translate_batches(
        self, arguments: dict[str, Any], known: Mapping[str, Any], translated: dict[str, Any]
    ) -> None:
        if "n_steps" in arguments or "n_envs" in arguments:
            self._fix_envs(arguments, translated)
            translated["horizon"] = int(arguments.get("n_steps", 5))
        if "use_rms_prop" in arguments:
            translated["optimizer"] = "rmsprop" if arguments["use_rms_prop"] else "adam"


class DQN(_Model):
    """Deep Q-learning, with the arguments of stable_baselines3.DQN. It is double unless double=False."""

    _algo = "dqn"
    _names = {
        "learning_rate": "learning_rate",
        "buffer_size": "replay",
        "learning_starts": "learning_starts",
        "batch_size": "batch",
        "tau": "target_tau",
        "gamma": "gamma",
        "exploration_fraction": "exploration_fraction",
        "exploration_initial_eps": "epsilon_start",
        "exploration_final_eps": "epsilon_end",
        "max_grad_norm": "max_grad_norm",
        "n_steps": "n_step",
    }
    _others = ("train_freq", "gradient_steps", "target_update_interval", "optimize_memory_usage")

    def _translate_batches(
        self, arguments: dict[str, Any], known: Mapping[str, Any], translated: dict[str, Any]
    ) -> None:
        envs, horizon, updates = known["envs"], known["horizon"], known["updates"]
        if any(name in arguments for name in ("train_freq", "gradient_steps", "n_envs")):
            frequency = arguments.get("train_freq", 4)
            if isinstance(frequency, (tuple, list)):
                frequency, unit = frequency
                if unit != "step":
                    raise Error(f"train_freq={(frequency, unit)}: learning goes by steps: train_freq={frequency}")
            envs, horizon = self._fix_envs(arguments, translated), int(frequency)
            updates = int(arguments.get("gradient_steps", 1))
            updates = horizon * envs if updates < 0 else updates
            translated.update(horizon=horizon, updates=updates)
        if "batch_size" in arguments:
            translated.setdefault("shards", next(n for n in (8, 4, 2, 1) if envs % n == int(arguments["batch_size"]) % n == 0))
        if "target_update_interval" in arguments:
            # SB3 counts environment steps, Trireme gradient steps.
            interval = int(arguments["target_update_interval"]) * updates // (envs * horizon)
            translated["target_every"] = max(1, interval)


def _number(key: str, value: Any) -> Any:
    if callable(value):
        raise Error(f"{key}: a function is no schedule here: say {key} as a number, and {key}_schedule='linear' or 'cosine'")
    return 0 if value is None else value  # None: off


def _resolve(env: Any, env_args: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    arguments = argument_dict(env_args)
    if isinstance(env, str):
        known = env in _trireme.env_names() or env.startswith(tuple(_trireme.env_prefixes()))
        return (env if known else f"gym:{env}"), arguments
    if callable(env):
        return env, arguments
    if getattr(env, "num_envs", None) is not None:
        raise Error("a vector of environments cannot be trained on: pass its name, or a function, and n_envs=")
    name, own = _envs.name_of_instance(env)
    return name, {**own, **arguments}


def _zip_path(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    return file if file.suffix else file.with_suffix(".zip")
