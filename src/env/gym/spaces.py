# How observations and actions of Gymnasium's spaces become rows of numbers, and what reset() and step() may give. The host process
# (host.py) has it, and the Python package, which steps environments of its own process by the same rules.
np = None  # NumPy: whoever uses this imports it when it is needed


class Offence(Exception):
    """A rule that an environment has broken."""


def kind_of(space):
    """The class of Gymnasium's spaces that a space is, by name: any package's spaces of that name will do."""
    known = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
    return next((c.__name__ for c in type(space).__mro__ if c.__name__ in known), None)


def shape_of(space):
    """Of an element, where it has no parts."""
    kind = kind_of(space)
    if kind == "MultiDiscrete":
        return np.shape(space.nvec)
    if kind == "MultiBinary":
        return (int(space.n),) if np.isscalar(space.n) else tuple(int(k) for k in space.n)
    return () if kind == "Discrete" else tuple(space.shape)


def refuse(what, space):
    known = {"observation": "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple", "action": "Box of floats, Discrete, MultiDiscrete or MultiBinary"}
    raise Offence(f"its {what} space is {space!r}, which is not supported: make it {known[what]}")


class Leaf:
    """A part of an observation, from element `first` on: an array, or choices as one-hot vectors."""

    def __init__(self, space, path, first):
        self.space, self.path, self.first, self.kind = space, path, first, kind_of(space)
        if self.kind is None or (self.kind == "Box" and np.dtype(space.dtype).kind not in "biuf"):
            refuse("observation", space)
        self.shape = shape_of(space)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        if self.kind == "Box":
            self.low, self.high = (np.broadcast_to(b, self.shape).ravel() for b in (space.low, space.high))
        elif self.kind in ("Discrete", "MultiDiscrete"):
            self.nvec = np.ravel(space.n if self.kind == "Discrete" else space.nvec)
            self.start = np.broadcast_to(getattr(space, "start", 0), self.shape).ravel()
            self.offsets = np.concatenate([[0], np.cumsum(self.nvec)[:-1]]).astype(np.int64)
            self.size = int(self.nvec.sum())
        if self.kind != "Box":
            self.low, self.high = np.zeros(self.size), np.ones(self.size)
        self.end = first + self.size

    def name(self):
        return "".join(f"[{key!r}]" for key in self.path)

    def write(self, obs, row):
        for key in self.path:
            try:
                obs = obs[key]
            except (KeyError, IndexError, TypeError):
                raise Offence(f"its observation has no {self.name()}") from None
        array = np.asarray(obs)
        if array.shape != self.shape or array.dtype.kind not in "biuf":
            part = f"observation{self.name()}"
            if array.dtype.kind not in "biuf":
                raise Offence(f"its {part} is of {array.dtype}, not {getattr(self.space, 'dtype', 'numbers')}")
            raise Offence(f"its {part} has shape {array.shape}, not {self.shape}")
        if self.kind in ("Box", "MultiBinary"):
            row[self.first : self.end] = array.ravel()
            return
        choices = array.ravel().astype(np.int64) - self.start
        if (choices < 0).any() or (choices >= self.nvec).any():
            raise Offence(f"its observation{self.name()} is {obs!r}, which is not in {self.space!r}")
        row[self.first : self.end] = 0
        row[self.first + self.offsets + choices] = 1


def leaves_of(space, path=(), first=0):
    kind = kind_of(space)
    if kind not in ("Dict", "Tuple"):
        return [Leaf(space, path, first)]
    items = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
    leaves = []
    for key, part in items:
        leaves += leaves_of(part, path + (key,), leaves[-1].end if leaves else first)
    if not leaves:
        refuse("observation", space)
    return leaves


class Observations:
    """How observations of a space become rows: in Gymnasium's order where they have several parts."""

    def __init__(self, space):
        self.leaves = leaves_of(space)
        if self.leaves[-1].end == 0:
            raise Offence(f"its observation has no elements: its space is {space!r}")
        only = self.leaves[0] if kind_of(space) == "Box" else None
        self.bytes = only is not None and np.dtype(space.dtype) == np.uint8
        self.dtype = np.dtype(np.uint8 if self.bytes else np.float32)
        self.shape = (only.shape or (1,)) if only else (self.leaves[-1].end,)
        self.exact = only is not None and len(only.shape) == 1  # rows can be copied as they are
        self.only = only
        self.note = ""
        if only is None:
            parts = ", ".join(f"{leaf.name() or kind_of(space)} {leaf.first}-{leaf.end - 1}" for leaf in self.leaves)
            self.note = f"observations are flattened as gymnasium.spaces.flatten does: {parts}"
        elif only.shape == ():
            self.note = "observations are single numbers"

    def bounds(self):
        most = np.finfo(np.float32).max
        for name in ("low", "high"):
            values = np.concatenate([getattr(leaf, name) for leaf in self.leaves]).astype(np.float64)
            values = np.clip(values, -most, most)
            yield (values[:1] if (values == values[0]).all() else values).tolist()

    def write(self, obs, row, warn):
        """Into a row of self.dtype, flat."""
        if self.only is None:
            for leaf in self.leaves:
                leaf.write(obs, row)
            return
        array = np.asarray(obs)
        wanted = np.dtype(self.only.space.dtype)
        if array.dtype.kind not in "biuf" or (self.bytes and array.dtype != np.uint8):
            raise Offence(f"its observation is of {array.dtype}, not {wanted}")
        if array.shape != self.only.shape:
            raise Offence(f"its observation has shape {array.shape}, not {self.only.shape}")
        if array.dtype != wanted:
            warn(f"its observation is of {array.dtype}, not {wanted}; it is converted")
        row[:] = array.ravel()


def float32_within(low, high):
    """The least and the greatest float32 that are finite and within bounds of any type of float."""
    most = np.finfo(np.float32).max
    near_low, near_high = (np.clip(bound, -most, most).astype(np.float32) for bound in (low, high))
    return (
        np.where(near_low < low, np.nextafter(near_low, np.float32(np.inf)), near_low),
        np.where(near_high > high, np.nextafter(near_high, np.float32(-np.inf)), near_high),
    )


class Actions:
    """How rows of actions become what step() takes."""

    def __init__(self, space):
        self.kind = kind_of(space)
        self.facts = {"kind": "choices"}
        if self.kind not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary") or (
            self.kind == "Box" and np.dtype(space.dtype).kind != "f"
        ):
            refuse("action", space)
        self.shape, self.dtype = shape_of(space), getattr(space, "dtype", np.int64)
        self.start = np.broadcast_to(getattr(space, "start", 0), self.shape)
        if self.kind == "Discrete":
            self.facts.update(single=True, parts=[int(space.n)])
        elif self.kind == "MultiDiscrete":
            self.facts.update(parts=np.ravel(space.nvec).tolist())
        elif self.kind == "MultiBinary":
            self.facts.update(parts=[2] * int(np.prod(self.shape, dtype=np.int64)))
        else:
            low, high = float32_within(np.ravel(space.low), np.ravel(space.high))
            self.facts = {"kind": "box", "low": low.tolist(), "high": high.tolist()}
        self.size = len(self.facts.get("parts", self.facts.get("low")))
        if self.size == 0:
            raise Offence(f"its action has no elements: its space is {space!r}")
        notes = [f"choices count from {self.start.tolist()}"] if self.start.any() else []
        if len(self.shape) > 1 or (self.kind == "Box" and self.shape == ()):
            notes.append(f"actions have shape {self.shape}")
        self.note = ", ".join(notes)
        self.choices = sum(self.facts.get("parts", []))

    def reader(self, view, count):
        """A function that gives the actions of `count` copies as a list, new ones each time: of the types that sample() gives,
        which spaces are quickest to check."""
        rows = np.frombuffer(view, dtype=np.float32 if self.kind == "Box" else np.int32).reshape((count,) + self.shape)
        dtype, start = self.dtype, self.start
        if np.all(start == 0):
            return lambda: list(rows.astype(dtype))
        return lambda: list((rows + start).astype(dtype))

    def mask(self, mask):
        """What info["action_mask"] says, flat."""
        if isinstance(mask, (tuple, list)) and len(mask) > 0 and np.ndim(mask[0]) > 0:
            mask = np.concatenate([np.ravel(part) for part in mask])
        flat = np.ravel(np.asarray(mask))
        if flat.size != self.choices:
            raise Offence(f'info["action_mask"] has {flat.size} elements, not {self.choices}')
        return (flat != 0).astype(np.uint8)


def notes_of(*sides):
    """What a person should know of Observations and Actions, who sees only rows: one text, empty if there is nothing."""
    return "; ".join(side.note for side in sides if side.note)


def check_reset(result):
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise Offence(f"reset() gave {shorten(result)}, not (observation, info)")
    return result


def shorten(value):
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."


def check_number(what, value):
    """A reward as a float. Numbers of any type will do, also arrays of one."""
    try:
        if hasattr(value, "dtype"):
            array = np.asarray(value)
            if array.size == 1 and array.dtype.kind in "biuf":
                return float(array.item())
        elif not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except Exception:  # whatever it raises, it is no number
        pass
    raise Offence(f"its {what} is {shorten(value)}, not a number")


def check_flag(what, value):
    """`terminated` or `truncated` as True or False. Numbers will do, also arrays of one."""
    if value is True or value is False:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise Offence(f"{what} is {shorten(value)}, not True or False")
    return bool(array.item())


def check_step(result, masks):
    """(observation, reward, terminated, truncated, info), the reward as a number, the flags as True or False; info matters where it
    has masks."""
    if not isinstance(result, (tuple, list)) or len(result) != 5:
        raise Offence(f"step() gave {shorten(result)}, not (observation, reward, terminated, truncated, info)")
    obs, reward, terminated, truncated, info = result
    if masks and not isinstance(info, dict):
        raise Offence(f"step() gave {shorten(info)} as info, not a dictionary")
    if type(reward) is not float:
        reward = check_number("reward", reward)
    return obs, reward, check_flag("terminated", terminated), check_flag("truncated", truncated), info
