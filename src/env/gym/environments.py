# Environments of Gymnasium and Python classes: making them, what is around them, saving them, and finding out what can be relied on.
import importlib
import os
import pickle
import sys
import traceback


def describe_exception(error):
    """The last lines of a traceback, without the frames of the host."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != "trireme_host.py"]
    lines = traceback.format_exception_only(type(error), error)
    if frames:
        lines = ["Traceback (most recent call last):\n"] + traceback.format_list(frames[-8:]) + lines
    return "".join(lines).strip()


class TimeLimit:
    """Cuts episodes off, where Gymnasium does not."""

    def __init__(self, env, steps):
        self.env, self._max_episode_steps, self._elapsed_steps = env, steps, 0

    def __getattr__(self, name):
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, **arguments):
        self._elapsed_steps = 0
        return self.env.reset(**arguments)

    def step(self, action):
        result = self.env.step(action)
        self._elapsed_steps += 1
        return (*result[:3], True, *result[4:]) if self._elapsed_steps >= self._max_episode_steps else result


def import_file(path):
    """The module in a file, which can import what is beside it."""
    import importlib.util

    if not os.path.isfile(path):
        raise Offence(f"there is no file {os.path.abspath(path)}")
    folder, name = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(name)[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before its code, as import does: what it makes can be pickled
    spec.loader.exec_module(module)
    return module


class Maker:
    """Makes the environment that was asked for, again and again."""

    def __init__(self, wanted):
        self.arguments, self.max_steps = wanted["args"], wanted["max_steps"]
        self.spare = None
        if wanted["source"] == "gym":
            import gymnasium

            self.id, self.make = wanted["name"], self.from_registry
            self.gymnasium = gymnasium
            return
        place, _, name = wanted["name"].rpartition(":")
        if not place or not name:
            raise Offence("say which class of which file: py:path/to/file.py:MyEnv, or py:module:MyEnv")
        module = import_file(place) if place.endswith(".py") else importlib.import_module(place)
        found = getattr(module, name, None)
        if not callable(found):
            near = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
            raise Offence(f"{place} has no class {name}" + (f"; it has {', '.join(near)}" if near else ""))
        self.found, self.make = found, self.from_class

    def from_registry(self, **more):
        arguments = {**self.arguments, **more}
        if self.max_steps > 0:
            arguments["max_episode_steps"] = self.max_steps
        return self.gymnasium.make(self.id, disable_env_checker=True, **arguments)

    def from_class(self, **more):
        env = self.found(**{**self.arguments, **more})
        missing = [n for n in ("reset", "step", "observation_space", "action_space") if not hasattr(env, n)]
        if missing:
            raise Offence(f"{type(env).__name__} is no environment: it has no {', '.join(missing)}")
        limit = self.max_steps or getattr(env, "max_episode_steps", 0) or 0
        return TimeLimit(env, int(limit)) if limit else env

    def __call__(self, drawn=False):
        if drawn:
            return self.make(render_mode="rgb_array")
        env, self.spare = self.spare, None
        return self.make() if env is None else env


def is_wrapper(env):
    return isinstance(env, TimeLimit) or any(c.__name__ == "Wrapper" for c in type(env).__mro__)


def unwrapped(env):
    while is_wrapper(env):
        env = env.env
    return env


def quick_step(env):
    """What step() does inside the wrappers that gymnasium.make() adds, and the one of them that cuts episodes off, or None: a part
    counts steps by itself, once for all its copies."""
    limit = None
    wrappers = getattr(sys.modules.get("gymnasium"), "wrappers", None)
    limits, orders = (TimeLimit, getattr(wrappers, "TimeLimit", TimeLimit)), getattr(wrappers, "OrderEnforcing", None)
    if type(env) in limits and hasattr(env, "_max_episode_steps") and hasattr(env, "_elapsed_steps"):
        limit, env = env, env.env
    if type(env) is orders:
        env = env.env
    return env.step, limit


def close(env):
    try:
        getattr(env, "close", lambda: None)()
    except Exception as error:
        print(f"close() raised {error!r}")


def has_states(env):
    inner = unwrapped(env)
    return callable(getattr(inner, "get_state", None)) and callable(getattr(inner, "set_state", None))


def wrappers_of(env):
    while is_wrapper(env):
        yield env
        env = env.env


def save(env):
    """The state of an environment as bytes: what its get_state() gives, or the environment itself."""
    if not has_states(env):
        return pickle.dumps(env, protocol=4)
    inner = unwrapped(env)
    plain = (bool, int, float, str, type(None))
    around = [{k: v for k, v in vars(w).items() if isinstance(v, plain)} for w in wrappers_of(env)]
    return pickle.dumps((inner.get_state(), getattr(inner, "_np_random", None), around), protocol=4)


def load(env, state):
    """The environment in that state: the one that was given, or another."""
    if not has_states(env):
        return pickle.loads(state)
    inner = unwrapped(env)
    own, random, around = pickle.loads(state)
    inner.set_state(own)
    if random is not None:
        inner._np_random = random
    for wrapper, values in zip(wrappers_of(env), around):
        vars(wrapper).update(values)
    return env


def frozen(value):
    """What can be compared later, also when the environment writes to its arrays again."""
    if isinstance(value, dict):
        return tuple((key, frozen(part)) for key, part in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(frozen(part) for part in value)
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()


class Trial:
    """Finds out, with a copy of the environment if it can be copied, what can be relied on."""

    STEPS, SEED = 6, 20240229

    def __init__(self, env, went_on):
        """`went_on` is called after each reset and step."""
        self.went_on = went_on
        self.snapshots = self.reproducible = self.masks = False
        copy = None
        try:
            copy = load(env, save(env)) if not has_states(env) else None
        except Exception:
            pass
        tried = env if copy is None else copy
        obs = self.reset(tried)
        if getattr(getattr(env, "spec", None), "nondeterministic", False):
            return
        try:
            tried.action_space.seed(self.SEED)
            actions = [tried.action_space.sample() for _ in range(self.STEPS)]
            first = (frozen(obs), self.run(tried, actions))
            again = (frozen(self.reset(tried)), self.run(tried, actions))
            self.reproducible = first == again
            if not self.reproducible or (copy is None and not has_states(env)):
                return
            self.reset(tried)
            self.run(tried, actions[:2])
            state = save(tried)
            ahead = self.run(tried, actions[2:])
            restored = load(tried, state)
            self.snapshots = ahead == self.run(restored, actions[2:])
        except Exception:  # what is wrong with it is found out and said when it is stepped
            pass

    def reset(self, env):
        obs, info = check_reset(env.reset(seed=self.SEED))
        self.went_on()
        self.look_for_mask(info)
        return obs

    def run(self, env, actions):
        seen = []
        for action in actions:
            obs, reward, terminated, truncated, info = env.step(action)
            self.went_on()
            self.look_for_mask(info)
            seen.append((frozen(obs), float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                break
        return seen

    def look_for_mask(self, info):
        mask = info.get("action_mask") if isinstance(info, dict) else None
        self.masks |= isinstance(mask, (np.ndarray, tuple, list))
