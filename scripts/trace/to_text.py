#!/usr/bin/env python3
"""Makes the text form of a trace (`folioswap lab import`) of the lines that swap.bpf.c printed.

    to_text.py MAJOR:MINOR < lines > trace.txt

MAJOR:MINOR is the swap device. A folio that is written becomes an allocation; a read of the device
frees what it reads (cause=swap-in), as the kernel does on a synchronous device; the end of a process
whose memory group has no other frees what its group still holds (cause=exit). Lines of the trace
buffer that were lost are counted on standard error.
"""

import re
import sys

CLUSTER = 512


class Slots:
    """The slots that are in use: the group of each, and the number of their device."""

    def __init__(self):
        self.number = 0
        self.group_of = {}
        self.of_group = {}

    def take(self, slot, group):
        self.release(slot)
        self.group_of[slot] = group
        self.of_group.setdefault(group, set()).add(slot)

    def release(self, slot):
        group = self.group_of.pop(slot, None)
        if group is not None:
            self.of_group[group].discard(slot)
        return group is not None


def runs(slots):
    """Runs of neighbouring slots inside a cluster, as (first, length)."""
    first, length = None, 0
    for slot in sorted(slots):
        if first is not None and slot == first + length and slot % CLUSTER:
            length += 1
            continue
        if first is not None:
            yield first, length
        first, length = slot, 1
    if first is not None:
        yield first, length


def records(lines, device):
    """The lines of the text form, from printed lines in the order of time."""
    slots = Slots()
    for words in lines:
        kind, now, cpu = words[0], words[1], words[2]
        if kind == "out":
            order, number, offset, group, folio = (int(word) for word in words[3:8])
            slots.number = number
            taken = [slot for slot in range(offset, offset + (1 << order)) if slot in slots.group_of]
            # A slot that is written again was freed meanwhile, in a way that no tracepoint shows.
            for first, length in runs(taken):
                yield f"{now} {cpu} free {length} {number}:{first}"
            for slot in range(offset, offset + (1 << order)):
                slots.take(slot, group)
            yield f"{now} {cpu} alloc {order} {number}:{offset} group={group} folio={folio >> 6 & 0xffffffff}"
        elif kind == "in" and words[3] == device:
            first, count = int(words[4]), int(words[5])
            for first, length in runs(slot for slot in range(first, first + count) if slots.release(slot)):
                yield f"{now} {cpu} free {length} {slots.number}:{first} cause=swap-in"
        elif kind == "end":
            held = sorted(slots.of_group.get(int(words[3]), ()))
            for slot in held:
                slots.release(slot)
            for first, length in runs(held):
                yield f"{now} {cpu} free {length} {slots.number}:{first} cause=exit"


def main():
    device = sys.argv[1]
    printed, lost = [], 0
    for line in sys.stdin:
        found = re.search(r"bpf_trace_printk: FS (.*)", line)
        if found:
            printed.append(found.group(1).split())
        elif found := re.search(r"LOST (\d+) EVENTS", line):
            lost += int(found.group(1))
    printed.sort(key=lambda words: int(words[1]))
    print("# folioswap-trace tick_ns=1")
    count = 0
    for record in records(printed, device):
        print(record)
        count += 1
    print(f"{count} records of {len(printed)} lines; {lost} lines were lost", file=sys.stderr)


if __name__ == "__main__":
    main()
