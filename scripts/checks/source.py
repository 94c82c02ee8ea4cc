"""Measures of the Rust source: width of comments, length of files and functions, constants told once."""

import re

from .tree import INLINE_TESTS, Finding

COMMENT_COLUMNS = 100
FILE_LINES = 500
FUNCTION_LINES = 80
ENGINE = ("policy", "space", "pager", "slots", "devices", "shmem", "group", "nbd", "agent", "supervisor")
# One meaning each: bytes of a page, bytes and pages of a cluster.
MEANINGS = {"page": r"PAGE|PAGE_SIZE|PAGE_BYTES", "page shift": r"PAGE_SHIFT", "cluster": r"CLUSTER|CLUSTER_BYTES",
            "pages of a cluster": r"CLUSTER_SLOTS|CLUSTER_PAGES|PAGES_PER_CLUSTER|SLOTS_PER_CLUSTER"}


def summed(places, trouble):
    """One finding for the whole tree, so that an exception for it holds while files are moved."""
    return Finding("tree", f"{len(places)} {trouble}: {', '.join(places[:40])}" + (" ..." if places[40:] else ""), len(places))


def width_of_comments(tree):
    """No line of a comment is wider than 100 columns. A row of a table cannot be wrapped, nor can an address."""
    wide = []
    for path, rust in sorted(tree.rust.items()):
        lines = rust.text.split("\n")
        wide += [f"{path}:{number + 1}" for number in sorted(rust.comments) if len(lines[number]) > COMMENT_COLUMNS
                 and not re.match(r"\s*(//[/!]?|\*)?\s*\|", lines[number]) and "://" not in lines[number]]
    if wide:
        yield summed(wide, "lines of comments are too wide")


def length_of_files(tree):
    """No file has more than 500 lines without its tests."""
    for path, rust in tree.rust.items():
        if path not in tree.test_files and (lines := rust.lines_without_tests()) > FILE_LINES:
            yield Finding(path, f"{lines} lines without tests", lines)


def tests_beside(tree):
    """Unit tests are in a file of their own beside the code, not in a module within its file."""
    inline = [f"{path}:{rust.code.count(chr(10), 0, match.start()) + 1}" for path, rust in sorted(tree.rust.items())
              for match in INLINE_TESTS.finditer(rust.code)]
    if inline:
        yield summed(inline, "modules of tests are within a file (`mod tests;` and a file tests.rs instead)")


def crate_of(path):
    return path.split("/src/")[0]


def length_of_functions(tree):
    """No function of the engine's crates has more than 80 lines."""
    for path, rust in tree.rust.items():
        if path in tree.test_files or not path.startswith(tuple(f"crates/{crate}/src/" for crate in ENGINE)):
            continue
        longest = {}
        for name, lines in rust.functions():
            if lines > FUNCTION_LINES:
                longest[name] = max(lines, longest.get(name, 0))
        for name, lines in longest.items():
            yield Finding(f"{crate_of(path)}:{name}", f"a function of {lines} lines in {path}", lines)


def constants_once(tree, allowed=frozenset()):
    """The size of a page and of a cluster is written as a number in one place each. A constant that is made of another one
    says nothing twice; nor do tests, which state what they expect. `allowed` are exceptions: not counted among the places."""
    for meaning, names in MEANINGS.items():
        places = []
        for path, rust in tree.rust.items():
            if path in tree.test_files:
                continue
            for name, value in re.findall(rf"\b(?:const|static)\s+({names})\s*:[^=;]*=\s*([^;]+);", rust.without_tests):
                if re.search(r"(?<![\w.])\d", value):
                    places.append(f"{path}:{name}")
        counted = [place for place in places if place not in allowed]
        for place in places:
            if len(places) > 1 and (place in allowed or len(counted) > 1):
                yield Finding(place, f"the number of *{meaning}* is written in {len(places)} places")
