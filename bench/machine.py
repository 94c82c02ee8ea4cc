"""The state of the machine that a comparison changes and restores: huge page settings, swap on
zram or in a file, and the cgroups around a run. Needs root.
"""

import atexit
import ctypes
import fcntl
import glob
import hashlib
import mmap
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time

THP = "/sys/kernel/mm/transparent_hugepage"
MADV_POPULATE_WRITE = 23  # Linux 5.14, not in Python's module
# Of prctl(2), which Python's module does not have.
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38


def read(path, default=""):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return default


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def target():
    """The directory of what `cargo build --release` makes."""
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(here, "..", "target")), "release")


def found_command(given):
    """The path of folioswap's command: the one that was given, or that of the target directory."""
    return os.path.abspath(given or os.path.join(target(), "folioswap"))


def need_command(given):
    """The same, which must be there."""
    command = found_command(given)
    if not os.path.exists(command):
        raise SystemExit(f"{command} is missing: cargo build --release -p folioswap-cli")
    return command


def end_by_signals():
    """Ends at these signals as at an exception, so that all is put back."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(130))


def chosen(text):
    """The chosen word of a setting such as `always [madvise] never`."""
    return text[text.index("[") + 1:text.index("]")]


class Huge:
    """Settings of transparent huge pages, restored at the end."""

    def __init__(self):
        files = [f"{THP}/enabled", f"{THP}/defrag"] + sorted(glob.glob(f"{THP}/hugepages-*/enabled"))
        self.before = {file: chosen(read(file)) for file in files if "[" in read(file)}
        atexit.register(self.restore)

    def restore(self):
        for file, value in self.before.items():
            try:
                write(file, value)
            except OSError as error:
                print(f"{file}: {error}", file=sys.stderr)

    def use(self, setting):
        """Allows folios of `setting` (4K, 64K, 2M, all); None restores the machine's settings."""
        self.restore()
        if setting is None:
            return
        for file in self.before:
            if file.endswith("/defrag"):
                write(file, "always")
            elif file == f"{THP}/enabled":
                write(file, "never" if setting == "4K" else "madvise")
            else:
                here = int(file.split("hugepages-")[1].split("kB")[0])
                on = setting == "all" or (setting == "64K" and here == 64) or (setting == "2M" and here == 2048)
                write(file, "always" if on else "never")


class SwapLock:
    """The lock that allows one run under the kernel's swap at a time on the whole machine.

    `folioswap bench` and the tests take it too.
    """

    def __init__(self):
        self.file = open("/run/folioswap-acc.lock", "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def close(self):
        self.file.close()


def swap_on(device):
    """Enables a device or file as swap, before all other swap: no page of a run may go
    elsewhere."""
    subprocess.run(["mkswap", device], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["swapon", "--priority", "32767", device], check=True)


def swap_off(device):
    """Disables swap on a device or file. While processes of a killed run still end, swapoff(8) can fail for want of memory
    in their cgroup, so it is repeated for up to a minute."""
    for _ in range(60):
        if device not in [line.split()[0] for line in read("/proc/swaps").splitlines()]:
            return True
        if subprocess.run(["swapoff", device], stderr=subprocess.DEVNULL).returncode != 0:
            time.sleep(1)
    print(f"{device} is still swap: swapoff failed", file=sys.stderr)
    return False


class SwapFile:
    """An ordinary swap file in the directory `place`."""

    def __init__(self, size_bytes, place):
        self.path = None
        atexit.register(self.close)
        self.lock = SwapLock()
        self.path = os.path.join(place, "folioswap-acc-swap")
        with open(self.path, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        swap_on(self.path)

    def close(self):
        if self.path is None:
            return
        path, self.path = self.path, None
        if swap_off(path):
            os.unlink(path)
        self.lock.close()


class Zram:
    """A zram device with LZ4 as swap."""

    def __init__(self, size_bytes):
        self.number = None
        self.added = False
        atexit.register(self.close)
        self.lock = SwapLock()
        try:
            self.number = int(read("/sys/class/zram-control/hot_add"))
            self.added = True
        except ValueError:
            if read("/sys/block/zram0/disksize").strip() != "0":
                raise SystemExit("no zram device can be had")
            self.number = 0
        write(self.sys("comp_algorithm"), "lz4")
        write(self.sys("disksize"), size_bytes)
        swap_on(f"/dev/zram{self.number}")

    def sys(self, file):
        return f"/sys/block/zram{self.number}/{file}"

    def used(self):
        """Compressed bytes, and bytes of memory that they occupy."""
        words = read(self.sys("mm_stat"), "0 0 0").split()
        return int(words[1]), int(words[2])

    def close(self):
        if self.number is None:
            return
        number, self.number = self.number, None
        swap_off(f"/dev/zram{number}")
        for _ in range(100):
            try:
                write(f"/sys/block/zram{number}/reset", "1")
                break
            except OSError:
                time.sleep(0.05)
        if self.added:
            try:
                write("/sys/class/zram-control/hot_remove", number)
            except OSError as error:
                print(f"zram{number} was not removed: {error}", file=sys.stderr)
        self.lock.close()


class Groups:
    """A memory cgroup around one run, and a cpuacct cgroup where there is one (both v1).

    `limit` bounds resident memory, in bytes; None sets no limit.
    """

    live = set()

    def __init__(self, limit):
        mounts = {}
        for line in read("/proc/self/mounts").splitlines():
            _, point, kind, options = line.split()[:4]
            if kind == "cgroup":
                for option in options.split(","):
                    mounts[option] = point
        if "memory" not in mounts:
            raise SystemExit("this comparison needs the memory cgroup, version 1")
        name = f"folioswap-acc-{os.getpid()}-{len(Groups.live)}"
        self.memory = os.path.join(mounts["memory"], name)
        self.cpu = os.path.join(mounts["cpuacct"], name) if "cpuacct" in mounts else None
        Groups.live.add(self)
        for path in self.paths():
            os.mkdir(path)
        if limit:
            write(f"{self.memory}/memory.limit_in_bytes", limit)

    def paths(self):
        return [path for path in (self.memory, self.cpu) if path]

    def enter(self):
        """Moves the calling process into the groups; for preexec_fn."""
        for path in self.paths():
            write(f"{path}/cgroup.procs", "0")

    def resident(self):
        """Anonymous and shared memory of the group, bytes."""
        total = 0
        for line in read(f"{self.memory}/memory.stat").splitlines():
            if line.startswith(("total_rss ", "total_shmem ")):
                total += int(line.split()[1])
        return total

    def seconds(self):
        """User and system time of the group; None without cpuacct."""
        if not self.cpu:
            return None
        return tuple(int(read(f"{self.cpu}/cpuacct.usage_{part}", "0")) / 1e9 for part in ("user", "sys"))

    def kills(self):
        """Number of processes that the OOM killer has killed."""
        for line in read(f"{self.memory}/memory.oom_control").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def wait_empty(self, seconds):
        end = time.monotonic() + seconds
        while read(f"{self.memory}/cgroup.procs") and time.monotonic() < end:
            time.sleep(0.005)

    def kill(self):
        for path in self.paths():
            for pid in read(f"{path}/cgroup.procs").split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def close(self):
        """Kills everything inside and removes the groups."""
        for path in self.paths():
            for _ in range(3000):
                self.kill()
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
        Groups.live.discard(self)


@atexit.register
def close_groups():
    for group in list(Groups.live):
        group.close()


def vmstat():
    """Pages that the kernel has swapped out and in since boot."""
    values = dict(line.split() for line in read("/proc/vmstat").splitlines())
    return int(values["pswpout"]), int(values["pswpin"])


def warm(size_bytes):
    """Touches memory and frees it.

    A virtual machine's host provides a page at its first touch, which would otherwise be part of
    the time of the run that happens to touch it first.
    """
    step = 64 << 20
    with mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, size_bytes, step):
            memory.madvise(MADV_POPULATE_WRITE, start, min(step, size_bytes - start))


def busy_seconds():
    """Processor time that the machine has spent on anything since its start."""
    user, nice, system, _, _, irq, softirq = map(int, read("/proc/stat").split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class User:
    """An ordinary user: without groups, without any capability (not even in the bounding set), and with no
    way to get one (no_new_privs)."""

    def __init__(self, uid):
        self.uid = uid
        try:
            self.gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            self.gid = uid
        self.prctl = ctypes.CDLL(None).prctl
        self.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4

    def become(self):
        """Makes the calling process, root's, one of this user; for preexec_fn."""
        capability = 0
        while self.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
            self.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            capability += 1
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if self.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError("no_new_privs cannot be set")

    def environment(self, home):
        """Ours, with another home: programs read their settings there, and root's may not be read."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        return ours | {"HOME": home}

    def can(self, *command):
        """Whether a command of this user succeeds."""
        try:
            return subprocess.run(command, preexec_fn=self.become, cwd="/", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False

    def reachable(self, program, place):
        """The path of a program that this user can run: its own, or that of a copy in the directory `place`."""
        if self.can(program, "--version"):
            return program
        copy = shutil.copy(program, place)
        os.chmod(copy, 0o755)
        if not self.can(copy, "--version"):
            raise SystemExit(f"user {self.uid} can run neither {program} nor {copy}")
        return copy

    def own(self, place):
        """Gives a directory and all in it to this user."""
        for folder, _, files in os.walk(place):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)


def measure(command, group, place, timeout, every=0.01, sample=None, user=None):
    """Runs a command in a group; its output goes to `out` and `err` in the directory `place`.

    `sample`, if given, is called every `every` seconds, when the group's resident memory is read.
    All processes of the group are killed after `timeout` seconds. The command is run by the
    `User`, if one is given, whose home is `place`.

    Returns wall, user and system time in seconds, the peak of resident memory in bytes, the exit
    status, whether the time was up, the number of processes that the group's OOM killer has
    killed, and how many processors all other processes used on average.
    """
    peak, stop = [0], threading.Event()
    busy_before = busy_seconds()

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], group.resident())
            if sample:
                sample()
            stop.wait(every)

    def begin():
        group.enter()
        if user:
            user.become()

    watcher = threading.Thread(target=watch)
    with open(os.path.join(place, "out"), "wb") as stdout, open(os.path.join(place, "err"), "wb") as stderr:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=place,
                                   preexec_fn=begin, env=user.environment(place) if user else None)
        watcher.start()
        try:
            pid, status, usage = None, None, None
            while pid != process.pid:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid != process.pid:
                    if time.monotonic() > start + timeout:
                        group.kill()
                    time.sleep(0.002)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - start
            group.wait_empty(5)
        finally:
            stop.set()
            watcher.join()
    user, system = group.seconds() or (usage.ru_utime, usage.ru_stime)
    foreign = max(0, busy_seconds() - busy_before - user - system) / wall
    return {"foreign": foreign, "wall": wall, "user": user, "sys": system, "peak": peak[0], "status": process.returncode,
            "timeout": wall >= timeout, "kills": group.kills()}


def spent(command, place, timeout, user=None, client=None):
    """Runs a command in the directory `place`, and counts the processor time of it and of all its descendants.

    The command is run by the `User`, if one is given. `client`, if given, is called with `place`
    meanwhile, and makes the command end; its time is not counted. The command is killed after
    `timeout` seconds.

    Returns the seconds (user and system), the exit status, the hash of standard output, which goes
    into a pipe, standard error, and what the client returned.
    """
    digest, said = hashlib.sha256(), None
    with open(os.path.join(place, "err"), "wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=place,
                                   preexec_fn=user.become if user else None,
                                   env=user.environment(place) if user else None)
    late = threading.Timer(timeout, process.kill)
    late.start()
    try:
        if client:
            said = client(place)
        while data := process.stdout.read1(1 << 16):
            digest.update(data)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        late.cancel()
        if process.returncode is None:
            process.kill()
        process.stdout.close()
    return {"seconds": usage.ru_utime + usage.ru_stime, "status": process.returncode, "out": digest.hexdigest(),
            "err": read(os.path.join(place, "err")), "said": said}
