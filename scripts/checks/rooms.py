"""The rooms of the pager: modules that are folders, in an order in which each may use those before it.

The order is a line of the pager's README, `kernel < staging < engine < store < evict | fault < program`: rooms with a `|` between
them are on one floor and may not use each other both ways. A use upwards is an exception: a row of the README's table
whose heading begins with *File* and *Uses*: the file within `src`, the room, the reason. There are at most five."""

import re

from .tree import Finding

UPWARD_LINES = 5
PAGER = "crates/pager"


def order(readme):
    """Floors of the rooms, from 0, or nothing if the README does not give an order."""
    for line in readme.split("\n"):
        plain = line.replace("`", "").strip().rstrip(".")
        if re.fullmatch(r"\w+(\s*\|\s*\w+)*(\s*<\s*\w+(\s*\|\s*\w+)*){2,}", plain):
            return {room.strip(): floor for floor, rooms in enumerate(plain.split("<")) for room in rooms.split("|")}
    return {}


def upward_rows(readme):
    """(file, room) -> reason, from the README's table of uses upwards."""
    found, within = {}, False
    for line in readme.split("\n"):
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        if len(cells) < 3:
            within = False
        elif cells[0] == "File" and cells[1].startswith("Uses"):
            within = True
        elif within and not set(cells[0]) <= set("-: "):
            found[cells[0], cells[1].split("::")[0]] = " ".join(cells[2:]).strip()
    return found


def leaves(path):
    """The paths of a use tree: `a::{b, c::{d, e}}` is `a::b`, `a::c::d`, `a::c::e`."""
    path = path.strip()
    at = path.find("{")
    if at < 0:
        return [path.split(" as ")[0].strip()]
    inside, depth, start, found = path[at + 1:path.rindex("}")], 0, 0, []
    for index, letter in enumerate(inside + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if inside[start:index].strip():
                found += [path[:at] + leaf for leaf in leaves(inside[start:index])]
            start = index + 1
    return found


def module_of(path):
    """The module of a file within `src`, as a list: `store/tiers.rs` is store, tiers."""
    parts = path[:-3].split("/")
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def uses(code, module):
    """(line, first segment of the module used) for all that a file uses of its crate, by `use` and by path."""
    found = set()

    def add(path, line):
        parts = [part.strip() for part in path.split("::")]
        here = list(module)
        if parts[0] == "crate":
            here, parts = [], parts[1:]
        elif parts[0] in ("super", "self"):
            while parts and parts[0] in ("super", "self"):
                here = here[:-1] if parts[0] == "super" else here
                parts = parts[1:]
        else:
            return
        if here + parts:
            found.add((line, (here + parts)[0]))

    rest = code
    for match in re.finditer(r"\buse\s+([^;]+);", code):
        for leaf in leaves(re.sub(r"\s+", " ", match.group(1))):
            add(leaf, code.count("\n", 0, match.start()) + 1)
        rest = rest[:match.start()] + re.sub(r"[^\n]", " ", match.group()) + rest[match.end():]
    for match in re.finditer(r"\b(?:crate|super)(?:::\w+)+", rest):
        add(match.group(), rest.count("\n", 0, match.start()) + 1)
    return sorted(found)


def rooms(tree):
    """Each room of the pager uses those before it in the README's order only, but for the exceptions listed there."""
    source = f"{PAGER}/src/"
    readme = tree.texts.get(f"{PAGER}/README.md", "")
    floors = order(readme)
    if not floors:
        yield Finding("order", f"{PAGER}/README.md gives no order of the rooms (`kernel < staging < ...`)")
        return
    listed, upward, sideways, files = upward_rows(readme), {}, {}, {}
    for path, rust in tree.rust.items():
        if path.startswith(source) and path not in tree.test_files:
            files[path[len(source):]] = rust
    for floor in floors:
        if not any(module_of(path)[:1] == [floor] for path in files):
            yield Finding(f"room {floor}", "the README's order names a room that is not there")
    for path, rust in files.items():
        room = (module_of(path) or [None])[0]
        for line, used in uses(rust.without_tests, module_of(path)):
            if used not in floors or used == room or path == "lib.rs":
                continue
            if room not in floors:
                yield Finding(f"{path} {used}", f"line {line}: a file that is in no room uses {used}")
            elif floors[used] > floors[room]:
                upward.setdefault((path, used), []).append(line)
            elif floors[used] == floors[room]:
                sideways.setdefault((room, used), []).append(f"{path}:{line}")
    for (path, used), lines in upward.items():
        if not listed.get((path, used)):
            yield Finding(f"{path} {used}", f"line {lines[0]}: uses {used}, which is above it, without a reason in the README")
    for path, used in listed:
        if (path, used) not in upward:
            yield Finding(f"listed {path} {used}", "the README lists a use upwards that is not there any more")
    if (lines := sum(map(len, upward.values()))) > UPWARD_LINES:
        yield Finding("upward lines", f"{lines} lines use a room above theirs, {UPWARD_LINES} may", lines)
    for room, used in sideways:
        if room < used and (used, room) in sideways:
            yield Finding(f"circle {room} {used}", f"use each other: {sideways[room, used][0]}, {sideways[used, room][0]}")
