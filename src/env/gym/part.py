# Some copies of a batch, stepped when the program asks: what they give is checked and written to the batch's memory.
import os
import struct
import sys


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
            host.went_on()

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
        rewards, exact, result, no = self.rewards, self.exact, None, np.False_
        try:
            for step, action, row in zip(self.steps[i:], actions[i:], self.obs[i:]):
                result = None
                result = step(action)
                if exact:
                    obs, reward, terminated, truncated, info = result
                    # None, for example, is as false as these but no flag: the long way tells.
                    if (terminated is False or terminated is no) and (truncated is False or truncated is no):
                        row[:] = obs
                        rewards[i] = reward
                        if info:  # most have nothing to say
                            self.look_for_mask(i, info)
                    else:
                        self.digest(i, result)
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
                self.read(i, lambda: self.digest(i, result))
            return i + 1

    def read(self, i, function):
        """Of what an environment gave. Whatever is wrong with that is its offence, not the host's."""
        try:
            function()
        except Offence as offence:
            offence.env = i
            raise
        except Exception as error:
            offence = Offence(f"what it gave cannot be read: {describe_exception(error)}")
            offence.env = i
            raise offence from None

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
        self.look_for_mask(i, info)
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
        self.read(i, lambda: self.write(i, *check_reset(result)))
        self.look_for_mask(i, result[1])

    def look_for_mask(self, i, info):
        """Where there should be none."""
        if self.choices or self.warned:
            return
        if isinstance(info, dict) and "action_mask" in info:
            why = "there was none in the first steps" if self.host.actions.choices else "its actions are no choices"
            self.warn(i, f'info["action_mask"] is not kept to: {why}')

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
            self.host.went_on()
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
            self.host.went_on()

    def close(self):
        for env in self.envs:
            close(env)
