"""Environments for tests, with spaces of their own: hosts ask for the names of Gymnasium's, not for Gymnasium."""

import os
import random
import signal
import subprocess
import time

import numpy as np


class Box:
    def __init__(self, low, high, shape, dtype=np.float32):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)

    def __repr__(self):
        return "Box(...)"

    def seed(self, seed):
        pass

    def sample(self):
        return self.low.copy()


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def seed(self, seed):
        self.random = random.Random(seed)

    def sample(self):
        return self.start + self.random.randrange(self.n)


class Graph:
    def __repr__(self):
        return "Graph(...)"


class Walk:
    """A walk of at most 20 steps between two walls, pushed about at random."""

    max_episode_steps = 20

    def __init__(self, start=0):
        self.observation_space = Box(-10, 10, (3,))
        self.action_space = Discrete(2, start)
        self.random = random.Random()

    def observe(self):
        return np.array([self.place, self.steps * 0.1, self.push], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random.seed(seed)
        self.place, self.steps, self.push = self.random.uniform(-1, 1), 0, 0.0
        return self.observe(), {}

    def step(self, action):
        assert action in (self.action_space.start, self.action_space.start + 1), action
        self.push = self.random.uniform(-0.5, 0.5)
        self.place += self.push + (1 if action > self.action_space.start else -1)
        self.steps += 1
        return self.observe(), 1.0 - 0.01 * abs(self.place), abs(self.place) > 5, False, {}


class Laborious(Walk):
    """Takes a second of its process's time before it is made."""

    def __init__(self):
        super().__init__()
        while time.process_time() < 1:
            pass


class Unsaved(Walk):
    """Can neither be pickled nor copied."""

    def __init__(self):
        super().__init__()
        self.lock = open(os.devnull)


class Stateful(Unsaved):
    """Offers its state itself."""

    def get_state(self):
        return self.place, self.steps, self.push, self.random.getstate()

    def set_state(self, state):
        self.place, self.steps, self.push, self.random = *state[:3], random.Random()
        self.random.setstate(state[3])


class Winds(Walk):
    """Draws its numbers in the order in which a set of texts is gone over."""

    def observe(self):
        winds = {name: self.random.uniform(-1, 1) for name in {"north", "east", "south", "west", "up", "down"}}
        return np.array([winds["north"], winds["west"], winds["up"]], np.float32)


class Unpredictable(Walk):
    def reset(self, seed=None, options=None):
        return super().reset(seed=random.SystemRandom().getrandbits(30))


class Masked(Walk):
    """Only steps towards the middle are allowed."""

    def step(self, action):
        if not self.allowed[action]:
            raise ValueError("a forbidden action was taken")
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self.masks()

    def reset(self, seed=None, options=None):
        return super().reset(seed=seed)[0], self.masks()

    def masks(self):
        self.allowed = np.array([self.place > -1, self.place < 1], np.int8)
        return {"action_mask": self.allowed}


class Drawn(Walk):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        assert self.render_mode == "rgb_array"
        return np.full((4, 5, 3), self.steps, np.uint8)


class BadSpace(Walk):
    def __init__(self):
        super().__init__()
        self.observation_space = Graph()


class BadAction(Walk):
    def __init__(self):
        super().__init__()
        self.action_space = Graph()


class NothingToSee(Walk):
    def __init__(self):
        super().__init__()
        self.observation_space = Box(-1, 1, (0,))


class NothingToDo(Walk):
    def __init__(self):
        super().__init__()
        self.action_space = Box(-1, 1, (0,))


class HangsInFirstReset(Walk):
    def reset(self, seed=None, options=None):
        time.sleep(3600)


class HangsWhenDrawn(Drawn):
    def render(self):
        time.sleep(3600)


class MaskedInSteps(Masked):
    """Says what is allowed only after steps; before the first one everything is."""

    def reset(self, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        self.allowed[:] = 1
        return obs, {}


class MaskedNumbers(Walk):
    """Has masks for actions that are no choices."""

    def __init__(self):
        super().__init__()
        self.action_space = Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        self.steps = 0
        return np.zeros(3, np.float32), {"action_mask": [1, 0]}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {"action_mask": [1, 0]}


class RaisesInConstructor:
    def __init__(self):
        raise RuntimeError("no licence for the simulator")


class RaisesInReset(Walk):
    def reset(self, seed=None, options=None):
        raise RuntimeError("the simulator is in use")


class ExitsInConstructor:
    def __init__(self):
        os._exit(7)


class NoEnvironment:
    pass


class ForgetsInfo(Walk):
    def reset(self, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Film(Walk):
    """Shows bytes, and numbers between 0 and 1 from its third step on."""

    def __init__(self):
        super().__init__()
        self.observation_space = Box(0, 255, (2, 2), np.uint8)

    def observe(self):
        return np.full((2, 2), 0.5) if self.steps == 3 else np.full((2, 2), self.steps, np.uint8)


class Typed(Walk):
    """Rewards of 1 and 0, and flags, of several types."""

    TYPES = {
        "plain": lambda number: number,
        "numpy": lambda number: np.bool_(number) if isinstance(number, bool) else np.float64(number),
        "arrays": lambda number: np.array(number),
        "arrays of one": lambda number: np.array([number]),
        "integers": lambda number: int(number),
    }

    def __init__(self, types):
        super().__init__()
        self.type = types

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        convert = self.TYPES[self.type]
        return obs, convert(float(self.place > 0)), convert(terminated), convert(truncated), info


class Spawns(Walk):
    """Starts a program that does not end by itself; its process id is written to a file."""

    def __init__(self, where):
        super().__init__()
        self.program = subprocess.Popen(["sleep", "3600"])
        with open(where, "a") as file:
            file.write(f"{self.program.pid}\n")


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("nobody may look")


class Huge(Walk):
    def __init__(self):
        super().__init__()
        self.observation_space = Box(0, 1, (1 << 20,))

    def observe(self):
        return np.zeros(1 << 20, np.float32)


def factory(start=0):
    return Walk(start)


class Trouble(Walk):
    """Does something wrong, once its steps or resets have come to `at`: only while `once` is no file, if that is given.

    A file named by `where` gets the process ids of those that were made. Of these, numbers refuse_from to refuse_to are not
    made after all: the constructor raises."""

    def __init__(self, what="nothing", at=3, once=None, where=None, refuse_from=0, refuse_to=0):
        super().__init__()
        self.what, self.at, self.once, self.count = what, at, once, 0
        if where:
            with open(where, "a") as file:
                file.write(f"{os.getpid()}\n")
            with open(where) as file:
                number = len(file.readlines())
            if refuse_from <= number <= refuse_to:
                raise RuntimeError(f"no licence for number {number}")

    def due(self, what):
        if self.calm:  # while the host finds out what it is
            return False
        self.count += 1
        if self.what != what or self.count < self.at:
            return False
        if not self.once:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.calm, self.count = seed == 20240229, 0
        if self.what.endswith("in reset") and seed is None:
            if self.due(self.what):
                self.do(self.what.split()[0])
        return super().reset(seed=seed)

    def do(self, what):
        print(f"about to {what}")
        if what == "raise":
            raise RuntimeError("the robot fell over")
        if what == "hang":
            time.sleep(3600)
        if what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if what == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            os._exit(5)
        if what == "leave":
            raise SystemExit("enough")

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.what.endswith("in reset") or not self.due(self.what):
            return obs, reward, terminated, truncated, info
        self.do(self.what)
        if self.what == "shape":
            obs = obs[:2]
        if self.what == "scalar":
            obs = 0.5
        if self.what == "strings":
            obs = ["a", "b", "c"]
        if self.what == "dtype":
            obs = obs.astype(np.float64)
        if self.what == "list":
            obs = obs.tolist()
        if self.what == "nan":
            obs[1] = np.nan
        if self.what == "infinite":
            obs[1] = np.inf
        if self.what == "reward":
            reward = float("nan")
        if self.what == "no reward":
            reward = None
        if self.what == "mask":
            info = {"action_mask": np.ones(2, np.int8)}
        if self.what == "text as reward":
            reward = "1.0"
        if self.what == "bytes as reward":
            reward = b"1.0"
        if self.what == "huge reward":
            reward = 10**400
        if self.what == "two rewards":
            reward = np.array([1.0, 2.0])
        if self.what == "no flag":
            truncated = None
        if self.what == "text as flag":
            truncated = "no"
        if self.what == "two flags":
            terminated = np.array([terminated, terminated])
        if self.what == "unreadable":
            obs = Unreadable()
        if self.what == "outside":
            obs[2] = 11
        return (obs, reward, terminated, info) if self.what == "tuple" else (obs, reward, terminated, truncated, info)
