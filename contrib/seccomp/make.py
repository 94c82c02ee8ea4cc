#!/usr/bin/env python3
"""Makes the seccomp profiles from a default profile of the containers' projects (containers/common or Moby, Apache-2.0).

    contrib/seccomp/make.py /usr/share/containers/seccomp.json      writes folioswap.json and folioswap-flat.json beside itself

base.sha256 has the sum of the profile that they were made from: that of Debian 12 (golang-github-containers-common 0.50).
folioswap.json is the default profile that permits userfaultfd too. It is for Docker, Podman and CRI-O, which resolve its
conditions by the container's capabilities. folioswap-flat.json is for containerd (Kubernetes, nerdctl), which reads no
conditions: they are resolved for x86_64 and a container that has no other capability than CAP_SYS_PTRACE.
"""

import json
import os
import sys

CALL = "userfaultfd"
COMMENT = "folioswap: the kernel asks for CAP_SYS_PTRACE itself, unless only faults in user mode are to be served"


def without(rules, name):
    for rule in rules:
        names = [one for one in rule["names"] if one != name]
        if names:
            yield rule | {"names": names}


def applies(rule, arch, capabilities):
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    return (set(includes.get("caps", [])) <= capabilities and not set(excludes.get("caps", [])) & capabilities
            and (not includes.get("arches") or arch in includes["arches"]) and arch not in excludes.get("arches", []))


def flat(profile):
    """The profile without conditions, in the form of the OCI runtime specification."""
    left = [rule for rule in profile["syscalls"] if applies(rule, "amd64", {"CAP_SYS_PTRACE"})]
    # A call that is permitted and refused is refused: a filter has one rule for a call.
    refused = {name for rule in left if rule["action"] == "SCMP_ACT_ERRNO" and not rule.get("args") for name in rule["names"]}
    rules = []
    for rule in left:
        kept = {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)}
        if rule["action"] == "SCMP_ACT_ALLOW":
            kept["names"] = [name for name in rule["names"] if name not in refused]
        if kept["names"]:
            rules.append(kept)
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": rules}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    profile["syscalls"] = [*without(profile["syscalls"], CALL),
                           {"names": [CALL], "action": "SCMP_ACT_ALLOW", "args": [], "comment": COMMENT, "includes": {}, "excludes": {}}]
    here = os.path.dirname(os.path.abspath(__file__))
    for name, made in (("folioswap.json", profile), ("folioswap-flat.json", flat(profile))):
        with open(os.path.join(here, name), "w", encoding="utf-8") as file:
            json.dump(made, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
