#!/usr/bin/env python3
"""Checks that keep the tree in order: names and links of the books, width of comments, length of files and functions, place
of unit tests, constants told once, the rooms of the pager, versions.

    scripts/tidy.py               checks the tree
    scripts/tidy.py --shrink      takes exceptions that are no longer needed out of the list, and lowers the others
    scripts/tidy.py --versions    checks only that the version is the same wherever it is told
    scripts/tidy.py --self-test   shows that each check fails on a bad input and passes on a good one

`checks/exceptions.txt` has what does not satisfy a check yet. It may only shrink: an exception that is no longer needed
is an error, and so is one that has grown. `checks/foreign.txt` has the names of the kernel and of other projects that the
books mention.
"""

import argparse
import os
import sys

from checks import books, rooms, source, versions
from checks.tree import Tree

HERE = os.path.dirname(os.path.abspath(__file__))
EXCEPTIONS = os.path.join(HERE, "checks/exceptions.txt")
FOREIGN = os.path.join(HERE, "checks/foreign.txt")


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def head_of(path):
    with open(path, encoding="utf-8") as file:
        return "".join(line for line in file if line.startswith("#"))


def exceptions():
    """(check, key) -> the largest amount allowed."""
    found = {}
    for line in lines_of(EXCEPTIONS):
        check, key, amount = (part.strip() for part in line.rsplit("|", 2)[-3:])
        found[check, key] = int(amount)
    return found


def findings(tree, foreign, allowed):
    checks = {
        "files named": books.names_of_files(tree),
        "symbols named": books.names_of_symbols(tree, foreign),
        "links": books.links(tree),
        "comment width": source.width_of_comments(tree),
        "file length": source.length_of_files(tree),
        "function length": source.length_of_functions(tree),
        "test layout": source.tests_beside(tree),
        "constants": source.constants_once(tree, {key for check, key in allowed if check == "constants"}),
        "rooms": rooms.rooms(tree),
        "versions": versions.versions(tree),
    }
    return {name: {finding.key: finding for finding in found} for name, found in checks.items()}


def judged(found, allowed):
    """What is wrong: findings that no exception allows, and exceptions that are not needed."""
    wrong = []
    for name, of_check in found.items():
        for key, finding in of_check.items():
            limit = allowed.get((name, key))
            if limit is None:
                wrong.append(f"{name}: {finding}")
            elif finding.amount > limit:
                wrong.append(f"{name}: {finding} (the exception was for {limit})")
    stale = [f"{name}: {key}: this exception is no longer needed" for name, key in allowed if key not in found.get(name, {})]
    return wrong, stale


def unused(tree, foreign):
    """Foreign names that no book mentions, or that are in the tree by now."""
    text = "\n".join(tree.texts[book] for book in tree.named(".md"))
    return [f"foreign.txt: {name}: no book needs it" for name in foreign
            if name not in text or all(part in tree.words for part in name.split("::"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        from checks import self_test
        return self_test.run()
    os.chdir(os.path.join(HERE, ".."))
    tree, foreign, allowed = Tree.of_work_tree(), lines_of(FOREIGN), exceptions()
    if options.versions:
        wrong = versions.versions(tree)
        for finding in wrong:
            print(finding)
        return 1 if wrong else 0
    found = findings(tree, frozenset(foreign), allowed)
    if options.shrink:
        kept = [(name, key, min(amount, found[name][key].amount)) for (name, key), amount in allowed.items() if key in found[name]]
        needed = [name for name in foreign if not unused(tree, [name])]
        for path, lines in ((EXCEPTIONS, [" | ".join(map(str, one)) for one in sorted(kept)]), (FOREIGN, sorted(needed))):
            head = head_of(path)
            with open(path, "w", encoding="utf-8") as file:
                file.write(head + "".join(f"{line}\n" for line in lines))
        allowed, foreign = {(name, key): amount for name, key, amount in kept}, needed
    wrong, stale = judged(found, allowed)
    stale += unused(tree, foreign)
    for line in wrong + stale:
        print(line)
    counts = {}
    for name, _ in allowed:
        counts[name] = counts.get(name, 0) + 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
    if stale:
        print("scripts/tidy.py --shrink takes them out")
    print(f"{len(tree.paths)} files; exceptions: {said}; {len(wrong)} wrong, {len(stale)} exceptions too many")
    return 1 if wrong or stale else 0


if __name__ == "__main__":
    sys.exit(main())
