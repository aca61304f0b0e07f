# The host process of Gymnasium environments. It makes environments, steps those of its parts when the program rings,
# and writes what they give to memory that the program shares: src/env/host/layout.h says how the two speak. Runs with
# the standard library and NumPy; Gymnasium is needed for environments of its registry only.
# spaces.py comes before it, in one text.
import ctypes
import faulthandler
import importlib
import json
import mmap
import os
import pickle
import platform
import signal
import socket
import struct
import sys
import threading
import traceback

MAGIC, VERSION, NOTE = 0x54524D48, 1, 8192
STEP, RESET = 1, 2
RINGS, SLEEPING, MESSAGES, SERVING = 2, 3, 4, 5  # words of the bell
FIRST, COUNT, REQUEST, COMMAND, DONE, WAITING = range(6)  # words of a part
FAILURES, FAILED_ENV, NOTE_SIZE, OFFENCES, WARNINGS, WARNED_ENV, WARNING_SIZE = range(6, 13)
ANSWERING = 0xFFFFFFFF
PART_BYTES = 64
LOOKS = 200  # for something to do, giving way to others, before it sleeps: to be woken takes long

libc = ctypes.CDLL(None, use_errno=True)
PARENT = int(sys.argv[1])
FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}.get(platform.machine())


def end_with_parent():
    """Whatever ends the program ends this process, in whatever it is doing."""
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != PARENT:
        os._exit(1)


end_with_parent()
os.environ["TRIREME_HOST"] = "1"  # a program that is imported for its classes can tell
faulthandler.register(signal.SIGUSR1)  # says what it is doing


class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]


A_SECOND = Timespec(1, 0)


futex = libc.syscall
futex.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p]


def futex_wait(address, value):
    return futex(FUTEX, address, 0, value, ctypes.addressof(A_SECOND))


def futex_wake(address):
    futex(FUTEX, address, 1, 1, None)


order = threading.Lock()


def fence():
    """What was written before is seen by others before anything that is read after."""
    order.acquire()
    order.release()


class Mapping:
    """Memory of the program."""

    def __init__(self, fd):
        self.memory = mmap.mmap(fd, 0)
        os.close(fd)
        self.view = memoryview(self.memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def words(self, at, count):
        return self.view[at : at + 4 * count].cast("I")


def describe_exception(error):
    """The last lines of a traceback, without the frames of this file."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != "trireme_host.py"]
    lines = traceback.format_exception_only(type(error), error)
    if frames:
        lines = ["Traceback (most recent call last):\n"] + traceback.format_list(frames[-8:]) + lines
    return "".join(lines).strip()


# ---- Environments ----


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
        raise Offence(f"there is no file {path}")
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

    def __init__(self, env):
        self.snapshots = self.reproducible = False
        copy = None
        try:
            copy = load(env, save(env)) if not has_states(env) else None
        except Exception:
            pass
        tried = env if copy is None else copy
        self.obs, self.info = check_reset(tried.reset(seed=self.SEED))
        if getattr(getattr(env, "spec", None), "nondeterministic", False):
            return
        try:
            tried.action_space.seed(self.SEED)
            actions = [tried.action_space.sample() for _ in range(self.STEPS)]
            first = (frozen(self.obs), self.run(tried, actions))
            again = (frozen(check_reset(tried.reset(seed=self.SEED))[0]), self.run(tried, actions))
            self.reproducible = first == again
            if not self.reproducible or (copy is None and not has_states(env)):
                return
            tried.reset(seed=self.SEED)
            self.run(tried, actions[:2])
            state = save(tried)
            ahead = self.run(tried, actions[2:])
            restored = load(tried, state)
            self.snapshots = ahead == self.run(restored, actions[2:])
        except Exception:  # what is wrong with it is found out and said when it is stepped
            pass

    def run(self, env, actions):
        seen = []
        for action in actions:
            obs, reward, terminated, truncated, _ = env.step(action)
            seen.append((frozen(obs), float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                break
        return seen


# ---- The host ----


class Part:
    """Some copies of a batch."""

    def __init__(self, host, number, index, drawn, fd):
        self.host, self.number, self.drawn = host, number, drawn
        self.mapping = Mapping(fd)
        view = self.mapping.view
        header = struct.unpack_from("<8I12Q", view)
        if header[:2] != (MAGIC, VERSION):
            raise Offence("the program and its host are of different versions")
        self.choices, obs_bytes = header[5], header[6]
        parts, notes, warnings, seeds, actions, rewards, terminated, truncated, obs, final, masks, final_masks = header[8:]
        self.words = self.mapping.words(parts + index * PART_BYTES, PART_BYTES // 4)
        self.done_address = self.mapping.address + parts + index * PART_BYTES + 4 * DONE
        self.note_at, self.warning_at = notes + index * NOTE, warnings + index * NOTE
        first, self.count = self.words[FIRST], self.words[COUNT]
        self.answered = self.words[REQUEST]
        self.first = first

        def rows(at, width, count=self.count):
            return view[at + first * width : at + (first + count) * width]

        def split(at, width, code):
            return [rows(at, width)[i * width : (i + 1) * width].cast(code) for i in range(self.count)]

        code = "B" if host.observations.bytes else "f"
        self.seeds = rows(seeds, 4).cast("I")
        self.rewards = rows(rewards, 4).cast("f")
        self.terminated, self.truncated = rows(terminated, 1), rows(truncated, 1)
        self.obs, self.final_obs = split(obs, obs_bytes, code), split(final, obs_bytes, code)
        dtype = host.observations.dtype
        self.obs_rows = [np.frombuffer(row, dtype=dtype) for row in self.obs]
        self.final_rows = [np.frombuffer(row, dtype=dtype) for row in self.final_obs]
        if self.choices:
            self.masks, self.final_masks = split(masks, self.choices, "B"), split(final_masks, self.choices, "B")
        self.read_actions = host.actions.reader(rows(actions, 4 * host.actions.size), self.count)
        self.failures = [0] * self.count
        self.exact = host.observations.exact and self.choices == 0 and not drawn
        self.pictures = [None] * self.count  # of episodes that the last step has ended
        self.warned = False
        self.clock = self.next_cut = 0  # steps of the part; before the second of them nobody is cut off
        self.envs, self.steps, self.limits, self.cuts = ([None] * self.count for _ in range(4))
        for i in range(self.count):
            self.take(i, host.make(drawn))

    def take(self, i, env):
        """The environment that copy i is from now on."""
        self.envs[i] = env
        self.steps[i], self.limits[i] = quick_step(env)
        self.count_from(i, (self.limits[i] and self.limits[i]._elapsed_steps) or 0)

    def count_from(self, i, elapsed):
        """Copy i has made so many steps of its episode."""
        limit = self.limits[i]
        self.cuts[i] = sys.maxsize if limit is None else self.clock + limit._max_episode_steps - elapsed
        self.next_cut = min(self.next_cut, self.cuts[i])

    def carry_out(self):
        words, bell = self.words, self.host.bell
        request = words[REQUEST]
        bell[SERVING] = self.number + 1
        try:
            if words[COMMAND] == STEP:
                self.step()
            else:
                for i in range(self.count):
                    self.begin(i, self.seeds[i])
                    self.rewards[i] = 0.0
        except Offence as offence:
            self.note(offence.env, str(offence))
            words[OFFENCES] = 1
        self.answered = request
        words[DONE] = request
        fence()
        if words[WAITING]:
            futex_wake(self.done_address)
        bell[SERVING] = 0

    def step(self):
        """A step of every copy. What is slow, or has failed, is left to digest()."""
        self.clock += 1
        if self.drawn:
            self.pictures = [None] * self.count
        actions = self.read_actions()
        begin = 0
        while begin < self.count:
            begin = self.step_from(begin, actions)
        if self.clock >= self.next_cut:
            self.cut_off()

    def step_from(self, i, actions):
        """Until one fails, or all have stepped. Returns where to go on."""
        rewards, exact, result = self.rewards, self.exact, None
        try:
            for step, action, row in zip(self.steps[i:], actions[i:], self.obs[i:]):
                result = None
                result = step(action)
                if exact:
                    obs, reward, terminated, truncated, info = result
                    if terminated or truncated:
                        self.digest(i, result)
                    else:
                        row[:] = obs
                        rewards[i] = reward
                else:
                    self.digest(i, result)
                i += 1
            return i
        except Offence as offence:
            offence.env = i
            raise
        except Exception as error:
            if result is None:
                self.fail(i, error)
                self.keep_final(i)
                self.truncated[i] = 1
                self.make_anew(i)
                rewards[i] = 0.0
            else:  # not what the short way takes
                self.exact = self.exact and self.short_way_failed()
                try:
                    self.digest(i, result)
                except Offence as offence:
                    offence.env = i
                    raise
            return i + 1

    def cut_off(self):
        """The episodes that have reached their limit."""
        for i in range(self.count):
            if self.cuts[i] <= self.clock:
                self.keep_final(i)
                self.end(i, self.truncated)
        self.next_cut = min(self.cuts)

    def keep_final(self, i):
        self.final_obs[i][:] = self.obs[i]
        if self.choices:
            self.final_masks[i][:] = self.masks[i]

    def short_way_failed(self):
        """Whether the next step should take it again. It is slower than the long one when it fails every time."""
        self.failed_short = getattr(self, "failed_short", 0) + 1
        return self.failed_short < 3

    def digest(self, i, result):
        """What step() gave, checked and written."""
        obs, reward, terminated, truncated, info = check_step(result, self.choices > 0)
        ended = terminated or truncated
        self.write(i, obs, info, ended)
        if ended:
            self.end(i, self.terminated if terminated else self.truncated)
        self.rewards[i] = reward

    def end(self, i, how):
        """An episode, whose last observation has been written; begins the next."""
        if self.drawn:
            try:
                self.pictures[i] = self.render(i)
            except Exception as error:  # for whoever asks for the picture
                self.pictures[i] = error
        how[i] = 1
        self.begin(i)

    def write(self, i, obs, info, final=False):
        if self.exact:
            try:
                (self.final_obs if final else self.obs)[i][:] = obs
                return
            except (TypeError, ValueError):  # not what the short way takes
                pass
        rows = self.final_rows if final else self.obs_rows
        try:
            self.host.observations.write(obs, rows[i], lambda text: self.warn(i, text))
        except (TypeError, ValueError) as error:
            raise Offence(f"its observation is {shorten(obs)}: {error}") from None
        if not self.choices:
            return
        masks = self.final_masks if final else self.masks
        mask = info.get("action_mask")
        allowed = np.ones(self.choices, np.uint8) if mask is None else self.host.actions.mask(mask)
        first = 0
        for n in self.host.actions.facts["parts"]:
            if not allowed[first : first + n].any():
                if not final:
                    raise Offence('info["action_mask"] allows nothing')
                allowed[first : first + n] = 1
            first += n
        masks[i][:] = allowed

    def render(self, i):
        picture = np.asarray(self.envs[i].render())
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise Offence(f"render() gave {picture.dtype} of shape {picture.shape}, not bytes of (height, width, 3)")
        return picture

    def begin(self, i, seed=None):
        """Another episode; the first with a seed."""
        try:
            env = self.envs[i]
            result = env.reset() if seed is None else env.reset(seed=seed)
        except Offence:
            raise
        except Exception as error:
            self.fail(i, error)
            self.make_anew(i)
            return
        self.begin_with(i, result)

    def begin_with(self, i, result):
        self.count_from(i, 0)
        try:
            obs, info = check_reset(result)
            self.write(i, obs, info)
        except Offence as offence:
            offence.env = i
            raise

    def make_anew(self, i):
        """A copy that has failed. Where that fails too, another process may do better."""
        self.failures[i] += 1
        close(self.envs[i])
        try:
            env = self.host.make(self.drawn)
            self.take(i, env)
            result = env.reset(seed=(self.seeds[i] + 7919 * self.failures[i]) & 0x7FFFFFFF)
        except Exception as error:
            print(describe_exception(error))
            sys.stdout.flush()
            os._exit(3)
        self.begin_with(i, result)

    def fail(self, i, error):
        text = describe_exception(error)
        print(text)
        self.note(i, text)
        self.words[FAILURES] += 1

    def note(self, i, text):
        self.words[FAILED_ENV] = self.first + i
        self.words[NOTE_SIZE] = self.put(self.note_at, text)

    def warn(self, i, text):
        if self.warned:
            return
        self.warned = True
        self.words[WARNED_ENV] = self.first + i
        self.words[WARNING_SIZE] = self.put(self.warning_at, text)
        self.words[WARNINGS] += 1

    def put(self, at, text):
        data = text.encode(errors="replace")[-NOTE:]
        self.mapping.view[at : at + len(data)] = data
        return len(data)

    def load(self, sizes, data):
        at = 0
        for i, size in enumerate(sizes):
            if size == 0:
                self.begin(i, self.seeds[i])
                continue
            self.take(i, load(self.envs[i], data[at : at + size]))
            at += size

    def states(self):
        for env, limit, cut in zip(self.envs, self.limits, self.cuts):
            if limit is not None:
                limit._elapsed_steps = limit._max_episode_steps - (cut - self.clock)
            yield save(env)

    def close(self):
        for env in self.envs:
            close(env)


class Host:
    def __init__(self):
        self.socket = socket.socket(fileno=3)
        self.parts = {}
        message, fds = self.receive()
        bell = Mapping(fds[0])
        self.mapping, self.bell = bell, bell.words(0, 6)
        self.rings_address = bell.address + 4 * RINGS
        self.handled = 1
        self.reply(self.start, message)

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 17, 4)
        if not data:
            os._exit(0)
        return json.loads(data), fds

    def send(self, answer, memory=None):
        data = json.dumps(answer).encode()
        if memory is None:
            self.socket.send(data)
            return
        fd = os.memfd_create("trireme", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            file.write(memory)
            file.flush()
            socket.send_fds(self.socket, [data], [fd])

    def reply(self, function, *arguments):
        try:
            answer = function(*arguments)
        except Offence as offence:
            answer = ({"error": str(offence)}, None)
        except Exception as error:
            answer = ({"error": describe_exception(error)[-NOTE:], "module": getattr(error, "name", None)}, None)
        except SystemExit as error:
            answer = ({"error": f"it called sys.exit({error.code!r})"}, None)
        self.send(*answer)

    def start(self, message):
        global np
        import numpy as np

        if FUTEX is None:
            raise Offence(f"hosts are not made for {platform.machine()} machines")
        if message["protocol"] != VERSION:
            raise Offence("the program and its host are of different versions")
        self.wanted = message["env"]
        if self.wanted["source"] == "gym":
            import gymnasium

            if tuple(int(n) for n in gymnasium.__version__.split(".")[:2]) < (1, 0):
                raise Offence(f"Gymnasium {gymnasium.__version__} is too old: 1.0 is needed")
        self.make = None
        return {}, None

    def prepare(self):
        """What copies are made with. Needs an environment, which becomes the first copy."""
        if self.make is not None:
            return
        make = Maker(self.wanted)
        env = make()
        self.observations, self.actions = Observations(env.observation_space), Actions(env.action_space)
        make.spare = env
        self.make = make

    def describe(self, message):
        self.prepare()
        env = self.make.spare
        trial = Trial(env)
        low, high = self.observations.bounds()
        spec = getattr(env, "spec", None)
        limit = env._max_episode_steps if isinstance(env, TimeLimit) else getattr(spec, "max_episode_steps", None)
        threshold = getattr(spec, "reward_threshold", None)
        if threshold is None:
            threshold = getattr(unwrapped(env), "reward_threshold", None)
        masks = isinstance(trial.info.get("action_mask"), (np.ndarray, tuple, list)) and self.actions.choices > 0
        kind = type(unwrapped(env))
        text = (kind.__doc__ or "").strip().split("\n")[0]
        if text.startswith("#"):  # Gymnasium's have headings
            text = ""
        metadata = getattr(env, "metadata", None) or {}
        drawn = "rgb_array" in metadata.get("render_modes", ())
        bounds = {"low": low, "high": high} if not self.observations.bytes else {"low": [], "high": []}
        facts = {
            "obs": {"shape": list(self.observations.shape), "bytes": self.observations.bytes},
            "action": self.actions.facts,
            "masks": masks,
            "max_episode_steps": int(limit or 0),
            "reward_threshold": None if threshold is None else float(threshold),
            "help": text or f"{kind.__module__}.{kind.__qualname__}",
            "note": notes_of(self.observations, self.actions),
            "pictures_per_second": float(metadata.get("render_fps", 30)) if drawn else 0.0,
            "snapshots": trial.snapshots,
            "reproducible": trial.reproducible,
        }
        return {}, json.dumps({**facts, "bounds": bounds}).encode()

    def list(self, message):
        import gymnasium

        def text(spec):
            entry = spec.entry_point if isinstance(spec.entry_point, str) else getattr(spec.entry_point, "__name__", "")
            limit = f"{spec.max_episode_steps} steps" if spec.max_episode_steps else "no time limit"
            solved = "" if spec.reward_threshold is None else f", solved at {spec.reward_threshold:g}"
            return f"{entry}: {limit}{solved}"

        specs = sorted(gymnasium.registry.values(), key=lambda s: s.id)
        return {}, json.dumps([[spec.id, text(spec)] for spec in specs]).encode()

    def open(self, message, fd):
        self.prepare()
        self.parts[message["part"]] = Part(
            self, message["part"], message["index"], message.get("drawn", False), fd
        )
        return {}, None

    def draw(self, message):
        part, i = self.parts[message["part"]], message["env"]
        picture = part.render(i) if part.pictures[i] is None else part.pictures[i]
        if isinstance(picture, Exception):
            raise picture
        return {"height": picture.shape[0], "width": picture.shape[1]}, picture.tobytes()

    def save(self, message):
        states = list(self.parts[message["part"]].states())
        return {"sizes": [len(state) for state in states]}, b"".join(states)

    def load(self, message, fd):
        with os.fdopen(fd, "rb") as file:
            self.parts[message["part"]].load(message["sizes"], file.read())
        return {}, None

    def end(self):
        for part in self.parts.values():
            part.close()
        sys.stdout.flush()
        os._exit(0)

    def answer(self):
        message, fds = self.receive()
        op = message["op"]
        if op == "end":
            self.end()
        elif op == "close":
            part = self.parts.pop(message["part"], None)
            if part is not None:
                part.close()
        else:
            self.bell[SERVING] = ANSWERING
            self.reply(getattr(self, op), message, *fds)
            self.bell[SERVING] = 0

    def serve(self):
        bell, idle = self.bell, 0
        while True:
            rang, busy = bell[RINGS], False
            for part in tuple(self.parts.values()):
                if part.words[REQUEST] != part.answered:
                    part.carry_out()
                    busy = True
            if bell[MESSAGES] != self.handled:
                self.handled = (self.handled + 1) & 0xFFFFFFFF
                self.answer()
                busy = True
            if busy:
                idle = 0
                continue
            idle += 1
            if idle < LOOKS:
                os.sched_yield()
                continue
            bell[SLEEPING] = 1
            fence()
            if bell[RINGS] == rang and futex_wait(self.rings_address, rang) != 0 and os.getppid() != PARENT:
                os._exit(1)
            bell[SLEEPING] = 0


os.set_inheritable(3, False)
Host().serve()
