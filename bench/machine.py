"""The machine's set-up for a comparison, put back at the end: huge page settings, zram as swap,
and cgroups around a run. Needs root.
"""

import atexit
import fcntl
import glob
import os
import signal
import subprocess
import sys
import time

THP = "/sys/kernel/mm/transparent_hugepage"


def read(path, default=""):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return default


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


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


class Zram:
    """A zram device as the machine's swap, removed at the end."""

    def __init__(self, size_bytes):
        self.number = None
        self.added = False
        atexit.register(self.close)
        # Only one run under the kernel's swap at a time on the machine: folioswap bench and the
        # tests take the same lock.
        self.lock = open("/run/folioswap-acc.lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            self.number = int(read("/sys/class/zram-control/hot_add"))
            self.added = True
        except ValueError:
            if read("/sys/block/zram0/disksize").strip() != "0":
                raise SystemExit("no zram device can be had")
            self.number = 0
        write(self.sys("comp_algorithm"), "lz4")
        write(self.sys("disksize"), size_bytes)
        device = f"/dev/zram{self.number}"
        subprocess.run(["mkswap", device], check=True, stdout=subprocess.DEVNULL)
        # The highest priority, so that nothing goes to other swap.
        subprocess.run(["swapon", "--priority", "32767", device], check=True)

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
        subprocess.run(["swapoff", f"/dev/zram{number}"], stderr=subprocess.DEVNULL)
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

    def close(self):
        """Kills everything inside and removes the groups."""
        for path in self.paths():
            for _ in range(500):
                for pid in read(f"{path}/cgroup.procs").split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
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
