#!/usr/bin/env python3
"""Checks the licences of all dependencies against deny.toml, where cargo-deny is not installed: scripts/licences.py MANIFEST..."""

import json
import re
import subprocess
import sys
import tomllib


def fine(expression, allowed):
    """Whether an SPDX expression can be met with the allowed licences. `/` is an old way to write OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", expression.replace("/", " OR "))

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        token = tokens.pop(0)
        if token == "(":
            value = either()
            tokens.pop(0)
            return value
        return token in allowed
    return either()


def main():
    with open("deny.toml", "rb") as file:
        licences = tomllib.load(file)["licenses"]
    allowed = set(licences["allow"])
    exceptions = {one["crate"]: allowed | set(one["allow"]) for one in licences["exceptions"]}
    seen = {}
    for manifest in sys.argv[1:]:
        text = subprocess.run(["cargo", "metadata", "--format-version", "1", "--manifest-path", manifest],
                              check=True, stdout=subprocess.PIPE).stdout
        for package in json.loads(text)["packages"]:
            seen[package["name"], package["version"]] = package.get("license")
    bad = [f"{name} {version}: {licence}" for (name, version), licence in sorted(seen.items())
           if not licence or not fine(licence, exceptions.get(name, allowed))]
    print(f"{len(seen)} packages")
    if bad:
        sys.exit("licences that are not allowed:\n" + "\n".join(bad))


if __name__ == "__main__":
    main()
