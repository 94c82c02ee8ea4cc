"""Makes the changes of changes.toml in a copy of the tree, and runs the tests. scripts/mutants.sh says how it is called."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(ROOT, "target/mutants")
COPY = os.path.join(WORK, "tree")
# A change may make a test wait for ever. Its limit is a multiple of what the same tests took without
# the change, so that it follows the machine; at least a minute, since a short run says little of how
# long the next one takes.
LIMIT_RATIO = 5
LIMIT_LEAST_S = 60
# The tests themselves, unchanged, must end within this.
UNCHANGED_LIMIT_S = 1800
TOOLS = ["git", "cargo", "rustc", "cc"]


def changes():
    """The changes in the order of their file."""
    with open(os.path.join(HERE, "changes.toml"), "rb") as file:
        found = tomllib.load(file)["change"]
    names = [change["name"] for change in found]
    assert len(set(names)) == len(names), "a name stands there twice"
    return found


def changed(change, text):
    """The text with the change made; None if it cannot be made in exactly one place."""
    if text.count(change["old"]) != 1 or change["old"] == change["new"]:
        return None
    return text.replace(change["old"], change["new"])


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def copy_tree():
    """Brings the copy up to date. Files that are the same keep their time, so that cargo builds only what differs."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode().split("\0")
    wanted = {name for name in listed if name and os.path.isfile(os.path.join(ROOT, name))}
    for name in sorted(wanted):
        source, target = os.path.join(ROOT, name), os.path.join(COPY, name)
        with open(source, "rb") as file:
            content = file.read()
        if os.path.isfile(target):
            with open(target, "rb") as file:
                if file.read() == content:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
        os.chmod(target, os.stat(source).st_mode)
    for folder, _, files in os.walk(COPY):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, COPY) not in wanted:
                os.remove(path)


def cargo(arguments, timeout_s):
    """Runs cargo in the copy; returns its status, None if it was ended after `timeout_s`, and what it said."""
    environment = dict(
        os.environ,
        CARGO_TARGET_DIR=os.path.join(WORK, "build"),
        CARGO_PROFILE_RELEASE_DEBUG="0",
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS="16",
        CARGO_PROFILE_RELEASE_INCREMENTAL="true",
    )
    process = subprocess.Popen(
        ["cargo", "test", "--release", "--quiet", *arguments],
        cwd=COPY, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, said


def cargo_test(arguments, limit_s):
    """Builds tests and runs them; returns ("passed", "failed", "broken" or "no end", the tests that failed, seconds)."""
    # Without a limit, so that a machine with much to do does not look like a test that waits.
    status, said = cargo([*(word for word in arguments if not word.startswith("test:")), "--no-run"], None)
    if status != 0:
        return "broken", errors(said) or [f"cargo ended with status {status}"], 0
    named = [word.removeprefix("test:") for word in arguments]
    started = time.monotonic()
    status, said = cargo(named, limit_s)
    took = time.monotonic() - started
    if status is None:
        return "no end", [f"not within {limit_s:.0f} s"], took
    if status == 0:
        return "passed", [], took
    failed = re.findall(r"^---- (\S+(?: - .*)?) stdout ----$", said, re.MULTILINE)
    if not failed and not re.search(r"^error: (doc)?test failed", said, re.MULTILINE):
        # It was not a test that failed, but what runs them: no memory, no disk, no linker.
        return "broken", errors(said) or [f"cargo ended with status {status}"], took
    return "failed", failed or ["a test program ended by itself"], took


def errors(said):
    """The first errors of what cargo said."""
    return [line for line in said.splitlines() if line.startswith("error")][:3]


def test_runs(change):
    """The test runs of a change, as (arguments of cargo test, the run without a change that tells their limit)."""
    package = ["-p", change["package"]]
    beside = change.get("beside", [])
    return [([*package, *change["first"]], package), *((each, each) for each in beside), (package, package)]


def unchanged(chosen):
    """Runs the tests that are going to judge, without a change; returns the limits, None if one run does not pass."""
    limits = {}
    for change in chosen:
        for _, whole in test_runs(change) if "gone" not in change else []:
            if tuple(whole) in limits:
                continue
            result, names, took = cargo_test(whole, UNCHANGED_LIMIT_S)
            about = f": {', '.join(names[:3])}" if names else ""
            print(f"{result:<10} {'-':<5} {' '.join(whole)}, unchanged [{took:.0f} s]{about}")
            if result != "passed":
                print("the tests do not pass without a change, so they judge none")
                return None
            limits[tuple(whole)] = max(LIMIT_LEAST_S, LIMIT_RATIO * took)
    return limits


def judge(change, limits):
    """Makes one change and runs the tests, those that are expected to notice before the others."""
    path = os.path.join(COPY, change["file"])
    before = read(path)
    after = changed(change, before)
    if after is None:
        return "broken", [f"its text does not stand in {change['file']} exactly once"]
    write(path, after)
    try:
        for arguments, whole in test_runs(change):
            result, names, _ = cargo_test(arguments, limits[tuple(whole)])
            if result != "passed":
                return ("caught" if result == "failed" else result), names
    finally:
        write(path, before)
    return ("equivalent" if "survives" in change else "survived"), []


def checked(change):
    """As `judge`, without a test: whether the change can be made."""
    after = changed(change, read(os.path.join(ROOT, change["file"])))
    return ("can be made", []) if after else ("broken", [f"not in {change['file']} exactly once"])


def main(arguments):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = {argument for argument in arguments if argument.startswith("-")}
    names = [argument for argument in arguments if not argument.startswith("-")]
    every = changes()
    known = {change["name"] for change in every}
    if options - {"--check", "--list"} or set(names) - known:
        print(read(os.path.join(ROOT, "scripts/mutants.sh")).split("\nset ")[0])
        return 2
    chosen = [change for change in every if not names or change["name"] in names]
    if "--list" in options:
        for change in chosen:
            print(f"{change['name']:<5} {change['title']}")
        return 0
    only_check = "--check" in options
    limits = {}
    if not only_check:
        missing = [tool for tool in TOOLS if not shutil.which(tool)]
        if missing:
            print(f"missing: {', '.join(missing)}", file=sys.stderr)
            return 2
        os.makedirs(COPY, exist_ok=True)
        lock = open(os.path.join(WORK, "lock"), "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        copy_tree()
        limits = unchanged(chosen)
        if limits is None:
            return 2
    counts = {}
    for change in chosen:
        started = time.monotonic()
        if "gone" in change:
            verdict, notes = "gone", [change["gone"]]
        else:
            verdict, notes = checked(change) if only_check else judge(change, limits)
        if verdict == "equivalent":
            notes = [change["survives"]]
        if verdict == "caught" and "survives" in change:
            verdict, notes = "broken", ["it is said to be equivalent, and a test failed: " + ", ".join(notes)]
        counts[verdict] = counts.get(verdict, 0) + 1
        about = f": {', '.join(notes[:3])}" if notes else ""
        print(f"{verdict:<10} {change['name']:<5} {change['title']} [{time.monotonic() - started:.0f} s]{about}")
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return 1 if {"survived", "broken", "no end"} & set(counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
