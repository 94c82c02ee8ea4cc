"""What the files of workloads share: how a program is registered, its tools found, its files made."""

import os
import shutil
import subprocess

from machine import write


class Missing(Exception):
    """A program that this machine does not have. The message says how to install it."""


class Workloads(dict):
    """Programs by name: a title, and a function that prepares the program in the directory `place`, at a scale of 0 to 1,
    and returns its command. The command's output must be the same in every run."""

    def program(self, name, title):
        """Registers such a function."""
        def register(prepare):
            self[name] = (title, prepare)
            return prepare
        return register


def tool(command, package):
    """The path of a command, found on PATH."""
    path = shutil.which(command)
    if not path:
        raise Missing(f"{command} is not there: apt-get install {package}")
    return path


def built(command, place):
    """Runs a step of preparation. A failure makes the program a missing one."""
    done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Missing(f"{command[0]} failed while preparing: {done.stdout.strip()[-300:]}")


def source(place, name, text):
    path = os.path.join(place, name)
    write(path, text)
    return path


def system_python():
    """Debian's Python, so that a version manager on PATH does not decide what is measured."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else tool("python3", "python3")
