"""The version is told once, in the workspace's Cargo.toml; every file that must repeat it says the same."""

import re

from .tree import Finding

# The Python module is a workspace of its own, and cargo takes no variable there.
REPEATED = [("python/Cargo.toml", r'^version = "([^"]*)"'),
            ("crates/capi/folioswap.3", r'^\.TH .*"folioswap ([^"]*)"')]


def stated(text):
    """The version of the workspace."""
    found = re.search(r'^\[workspace\.package\]\n(?:[^\[].*\n)*?version = "([^"]*)"', text, re.M)
    return found and found.group(1)


def versions(tree):
    version = stated(tree.texts.get("Cargo.toml", ""))
    if version is None:
        return [Finding("Cargo.toml", "Cargo.toml has no version of the workspace", 1)]
    found = []
    for path, pattern in REPEATED:
        match = re.search(pattern, tree.texts.get(path, ""), re.M)
        if match is None or match.group(1) != version:
            found.append(Finding(path, f"{path}: the version is not {version}", 1))
    for path in tree.named("Cargo.toml"):
        for name, other in re.findall(r'^(folioswap[\w-]*) = \{ path = [^}]*\bversion = "([^"]*)"', tree.texts[path], re.M):
            if other != version:
                found.append(Finding(f"{path}:{name}", f"{path}: {name} is wanted in version {other}, not {version}", 1))
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", tree.texts.get("CHANGELOG.md", ""), re.M):
        found.append(Finding("CHANGELOG.md", f"CHANGELOG.md has no section of version {version} with its date", 1))
    return found
