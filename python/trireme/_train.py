"""Training."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _envs, _trireme
from ._policy import Policy, load_for
from ._text import argument_texts, path_text, plain_text, settings_texts
from ._trireme import Error

Callback = Callable[[dict[str, float]], Any]


class Run(Mapping[str, Any]):
    """A run that has ended, or was stopped: its result, as `trireme train --json` prints it, under the same names.

    run["steps"], run["eval_return_mean"], run["reached_target"], run["params_sha256"], ...
    """

    def __init__(
        self, folder: Path, result: dict[str, Any], interrupted: bool, make: Callable[[], Any] | None = None
    ) -> None:
        self.folder = folder
        """Where everything is: checkpoints, metrics, report.html."""
        self.interrupted = interrupted
        """Whether it was stopped before its end. `train(resume=run.folder)` goes on."""
        self._result = result
        self._policy: Policy | None = None
        self._make = make  # what makes such an environment, where that is known

    @property
    def policy(self) -> Policy:
        """The policy of the best evaluation. `load(run.folder, "last")` gives the last one."""
        if self._policy is None:
            self._policy = load_for(self.folder, "best", self._make)
        return self._policy

    def metrics(self) -> Iterator[dict[str, Any]]:
        """What was measured in each iteration, in order."""
        with open(self.folder / "metrics.jsonl", encoding="utf-8") as rows:
            for row in rows:
                yield json.loads(row)

    def __getitem__(self, name: str) -> Any:
        return self._result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)

    def __repr__(self) -> str:
        return f"<trireme.Run of {self['algo']} on {self['env']}, {self['steps']} steps, in {self.folder}>"


def train(
    env: _envs.EnvLike | None = None,
    algo: str | None = None,
    *,
    steps: int | float | None = None,
    target: float | None = None,
    seed: int | None = None,
    workers: int | None = None,
    store: str | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    env_args: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Trains an agent, and returns the run when it has ended.

    env: a name ("CartPole-v1", "gym:LunarLander-v3", "plugin:./mine.so", "py:file.py:MyEnv"), a class, or a function
        that makes an environment as Gymnasium has it. Classes and functions that can be imported are stepped in
        processes of their own; others, such as lambdas, in this one, which is slower.
    algo: "ppo" unless said otherwise here or in config, "a2c", "dqn", "a3c", ...
    steps: environment steps to train for.
    target: the mean return of an evaluation at which training stops.
    seed: what all randomness follows from. workers: threads. store: where parameters live.
    out: the folder of the run, which must be new or empty; a fresh one below runs/ unless given.
    resume: the folder of a run that goes on, with its own settings but for those given here. Of the environment it
        needs only what cannot be found by name: the class or function that it was trained on.
    config: a TOML file of settings, or a dictionary; other arguments override it.
    env_args: arguments of the environment.
    callback: called with what was measured after every iteration, a dictionary. Where it returns something false, such as
        False or 0, the run stops; None goes on. What it raises stops the run too, and is raised again. There is a
        checkpoint then.
    progress: show a line of progress on standard error. Nothing is printed otherwise.
    settings: any other setting of the run, its algorithm or its environment: `trireme.settings("CartPole-v1", "ppo")`.

    Ctrl-C in the main thread writes a checkpoint and raises KeyboardInterrupt; a second one raises it where Python happens to
    be, in an environment of this process that is stuck for example. Raises trireme.Error for what can be
    mended; what an environment in this process raises comes out as it is.
    """
    if callback is not None and not callable(callback):
        raise Error(f"callback: a function that is called with what was measured, not {callback!r}")
    request = _trireme.Request()
    given = dict(steps=steps, target=target, seed=seed, workers=workers, store=store, **settings)
    if isinstance(config, Mapping):
        given = {**config, **{name: value for name, value in given.items() if value is not None}}
    elif config is not None:
        request.config = path_text("config", config)
    for name in ("env", "algo"):
        if name in given:
            raise Error(f"config: {name} is an argument of its own")
    name = ""
    if resume is not None:
        if algo is not None or config is not None or out is not None or env_args is not None:
            raise Error("resume takes algorithm and settings from the run: leave out algo, config, out and env_args")
        request.resume = path_text("resume", resume)
        name = _trireme.describe_run(request.resume)["env"]
    else:
        if env is None and not request.config:
            raise Error("say which environment: trireme.train(env, ...)")
        request.algo = "" if algo is None else plain_text("algo", algo)
        request.out = "" if out is None else path_text("out", out)
        request.env_args = argument_texts(env_args)
    request.progress = bool(progress)
    with _envs.named(env, name) as named, _envs.host_python(named, given, "env_python"):
        if name and named != name:
            raise Error(f"{request.resume} is a run on {name}, not on {named}: leave out env")
        request.env = named
        request.settings = settings_texts(given)
        return _run(request, callback, _envs.maker(env, env_args))


def _run(request: _trireme.Request, callback: Callback | None, make: Callable[[], Any] | None) -> Run:
    about: dict[str, Any] = {}
    main = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    try:
        _trireme.train(request, callback, main, about)
    except BaseException as error:
        if "folder" in about and "result" in about and hasattr(error, "add_note"):
            error.add_note(f"a checkpoint was written: trireme.train(resume={about['folder']!r}) goes on")
        raise
    return Run(Path(about["folder"]), json.loads(about["result"]), about["interrupted"], make)


def settings(env: str = "CartPole-v1", algo: str = "ppo", store: str = "") -> dict[str, Any]:
    """The settings that a run on `env` by `algo` begins with, preset included, as `train` takes them."""
    named = (plain_text(what, text) for what, text in (("env", env), ("algo", algo), ("store", store)))
    return {name: _value(kind, text) for name, kind, text, _, _ in _trireme.settings(*named)}


def _value(kind: str, text: str) -> Any:
    if kind == "bool":
        return text == "true"
    return json.loads(text)
