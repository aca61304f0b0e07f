# What a host process shares with the program: memory and words in it, as src/env/host/layout.h says, how to wait for one, and its end.
import ctypes
import faulthandler
import mmap
import os
import platform
import signal
import sys
import threading

MAGIC, VERSION, NOTE = 0x54524D48, 1, 8192
STEP, RESET = 1, 2
RINGS, SLEEPING, MESSAGES, SERVING, PROGRESS = 2, 3, 4, 5, 6  # words of the bell
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
