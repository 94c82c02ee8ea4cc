"""What the files of workloads share: how a program is registered, its tools found, its files made."""

import os
import random
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


# How a program in C begins that draws its own random numbers.
RANDOM_C = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static uint64_t x = 1;
static uint32_t next(uint32_t n) { x = x * 6364136223846793005u + 1442695040888963407u; return (x >> 33) % n; }
"""


def generated_c(functions, seed):
    """A file of C that keeps a compiler busy: loops and switches over arrays."""
    pick, text = random.Random(seed), ["#include <stdint.h>\n"]
    for number in range(functions):
        cases = "".join(f"        case {case}: a[i] = a[i] * {pick.randrange(3, 999)}u + (b[i] >> {pick.randrange(1, 31)}); "
                        f"s ^= a[(i + {pick.randrange(64)}) & 63]; break;\n" for case in range(12))
        text.append(f"uint32_t f{seed}_{number}(uint32_t *a, const uint32_t *b, uint32_t n) {{\n    uint32_t s = n;\n"
                    f"    for (uint32_t i = 0; i < (n & 63); i++)\n        switch (b[i] % 13) {{\n{cases}"
                    f"        default: s += a[i]; }}\n    return s;\n}}\n")
    return "".join(text)


def fill_script(mebibytes, touches):
    """A script for Python that fills a bytearray with pages that compress by half, and touches them at random."""
    return f"""import hashlib, random
pages = {mebibytes} << 8
data = bytearray(pages << 12)
for page in range(pages):
    noise = hashlib.shake_128(page.to_bytes(8, "little")).digest(2000)
    data[page << 12 : (page + 1) << 12] = noise + noise[:8] * 262
print(hashlib.sha256(data).hexdigest())
pick, total = random.Random(1), 0
for _ in range({touches}):
    at = pick.randrange(len(data))
    total += data[at] * (at % 251)
print(total, hashlib.sha256(data).hexdigest())
"""
