# The host process of Gymnasium environments. It makes environments, steps those of its parts when the program rings,
# and writes what they give to memory that the program shares. Runs with the standard library and NumPy; Gymnasium is needed for
# environments of its registry only. One text with spaces.py, memory.py, environments.py and part.py, in this order before it.
import json
import os
import platform
import socket
import sys


class Host:
    def __init__(self):
        self.socket = socket.socket(fileno=3)
        self.parts = {}
        message, fds = self.receive()
        bell = Mapping(fds[0])
        self.mapping, self.bell = bell, bell.words(0, 7)
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

    def went_on(self):
        """Something that takes an environment its time is done: whoever waits for the answer may wait as long again."""
        self.bell[PROGRESS] = (self.bell[PROGRESS] + 1) & 0xFFFFFFFF

    def prepare(self, message=None):
        """What copies are made with. Needs an environment, which becomes the first copy."""
        if self.make is not None:
            return {}, None
        make = Maker(self.wanted)
        env = make()
        self.observations, self.actions = Observations(env.observation_space), Actions(env.action_space)
        make.spare = env
        self.make = make
        return {}, None

    def describe(self, message):
        self.prepare()
        env = self.make.spare
        trial = Trial(env, self.went_on)
        low, high = self.observations.bounds()
        spec = getattr(env, "spec", None)
        limit = env._max_episode_steps if isinstance(env, TimeLimit) else getattr(spec, "max_episode_steps", None)
        threshold = getattr(spec, "reward_threshold", None)
        if threshold is None:
            threshold = getattr(unwrapped(env), "reward_threshold", None)
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
            "masks": trial.masks and self.actions.choices > 0,
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
