"""Shows that each check fails on a bad input and passes on a good one, on trees that exist in memory only."""

import sys

from . import books, rooms, source, versions
from .tree import Tree, blanked

CODE = {"crates/pager/src/store/tiers.rs": "pub fn move_down() {}\nconst SHARE_NS: u64 = 1;\n",
        "docs/spec.md": "# The *slots* of `one` file\n\n## Again\n\n## Again\n", "scripts/run.sh": ""}
LONG = "    //" + "x" * 95 + "\n"
ORDER = "`kernel < engine < evict | fault`\n\n| File | Uses | Reason |\n|---|---|---|\n"


def book(text):
    return Tree(CODE | {"docs/a.md": text})


def pager(readme=ORDER, **files):
    texts = {f"crates/pager/src/{room}/a.rs": "" for room in ("kernel", "engine", "evict", "fault")}
    texts |= {f"crates/pager/src/{name.replace('__', '/')}.rs": text for name, text in files.items()}
    return Tree(texts | {"crates/pager/README.md": readme})


def lines(count, inside):
    return "fn long() {\n" + inside * (count - 2) + "}\n"


def versioned(module="1.2.3", wanted="1.2.3", changes="## 1.2.3 - 2026-01-01\n"):
    return Tree({"Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n\n[package]\nversion = "9"\n',
                 "python/Cargo.toml": f'[package]\nversion = "{module}"\n',
                 "crates/capi/folioswap.3": '.TH FOLIOSWAP 3 "" "folioswap 1.2.3" "M"\n', "CHANGELOG.md": changes,
                 "crates/cli/Cargo.toml": f'folioswap-nbd = {{ path = "../nbd", version = "{wanted}" }}\nclap = {{ version = "4" }}\n'})


# Name, check, tree, and the keys that it must find. A good tree has none.
CASES = [
    ("a path of the tree", books.names_of_files, book("`crates/pager/src/store/tiers.rs`, `scripts/run.sh all`"), []),
    ("the end of a path", books.names_of_files, book("`tiers.rs` and `pager/store/tiers.rs`"), []),
    ("two names in one", books.names_of_files, book("`store/{tiers,spill}.rs`"), ["docs/a.md:store/spill.rs"]),
    ("a file that is gone", books.names_of_files, book("see `evictor.rs`"), ["docs/a.md:evictor.rs"]),
    ("a command of a script that is gone", books.names_of_files, book("```sh\nbash scripts/gone.sh\n```\n"),
     ["docs/a.md:scripts/gone.sh"]),
    ("the diary", books.names_of_files, Tree({"docs/history/x.md": "`gone.rs`"}), []),
    ("a symbol of the tree", books.names_of_symbols, book("`move_down()`, `tiers::move_down`"), []),
    ("a foreign symbol", lambda tree: books.names_of_symbols(tree, {"folio_add_lru"}), book("`folio_add_lru`"), []),
    ("a test that is gone", books.names_of_symbols, book("`moves::a_page_that_is_gone`"),
     ["docs/a.md:moves::a_page_that_is_gone", "docs/a.md:moves::a_page_that_is_gone"]),
    ("a symbol in its file", books.names_of_symbols, book("`tiers.rs: SHARE_NS`, `tiers.rs`: `move_down`, `tiers.rs move_...`"), []),
    ("a symbol not in that file", books.names_of_symbols, book("`tiers.rs`: `Elsewhere`"), ["docs/a.md:tiers.rs:Elsewhere"]),
    ("another way to say so", books.names_of_symbols, book("`tiers.rs: Elsewhere`"), ["docs/a.md:tiers.rs:Elsewhere"]),
    ("links that lead somewhere", books.links,
     book("[a](spec.md) [b](spec.md#the-slots-of-one-file) [c](spec.md#again-1) [d](../scripts) [e](https://x.org/y)"), []),
    ("a link to nothing", books.links, book("[a](gone.md)"), ["docs/a.md:gone.md"]),
    ("a link to no heading", books.links, book("[a](spec.md#gone)"), ["docs/a.md:spec.md#gone"]),
    ("a link within the book", books.links, book("# Here\n[a](#there)"), ["docs/a.md:#there"]),
    ("a link defined at the end", books.links, book("[a][b]\n\n[b]: gone.md"), ["docs/a.md:gone.md"]),
    ("a wide comment", source.width_of_comments, Tree({"a.rs": LONG}), ["tree"]),
    ("a wide line of a block", source.width_of_comments, Tree({"a.rs": "/*\n" + "x" * 101 + "\n*/\n"}), ["tree"]),
    ("wide, but a row, code or a string", source.width_of_comments,
     Tree({"a.rs": "//! | " + "x" * 100 + " |\nlet " + "a" * 100 + ';\nlet b = "\n//' + "x" * 100 + '";\n'}), []),
    ("a long file", source.length_of_files, Tree({"a.rs": "x\n" * 501}), ["a.rs"]),
    ("a file whose tests are long", source.length_of_files,
     Tree({"a.rs": "x\n" * 400 + "#[cfg(test)]\nmod tests {\n" + "x\n" * 200 + "}\n", "a/tests.rs": "x\n" * 900}), []),
    ("a long function", source.length_of_functions, Tree({"crates/pager/src/a.rs": lines(81, "a();\n")}),
     ["crates/pager:long"]),
    ("a function whose text has braces", source.length_of_functions,
     Tree({"crates/pager/src/a.rs": lines(80, 'a("{", \'{\'); // {\n'), "crates/cli/src/a.rs": lines(99, "a();\n")}), []),
    ("a long test", source.length_of_functions,
     Tree({"crates/pager/src/a.rs": "#[cfg(test)]\nmod tests {\n" + lines(99, "a();\n") + "}\n"}), []),
    ("tests within a file", source.tests_beside, Tree({"a.rs": "#[cfg(all(test, not(loom)))]\nmod tests {\n}\n"}), ["tree"]),
    ("tests beside", source.tests_beside, Tree({"a.rs": "#[cfg(test)]\nmod tests;\n#[cfg(not(test))]\nmod real {}\n"}), []),
    ("a constant in two places", source.constants_once,
     Tree({"a.rs": "pub const PAGE: usize = 4096;", "b.rs": "const PAGE_SIZE: u64 = 1 << 12;"}), ["a.rs:PAGE", "b.rs:PAGE_SIZE"]),
    ("an exception beside the place", lambda tree: source.constants_once(tree, {"a.rs:PAGE"}),
     Tree({"a.rs": "pub const PAGE: usize = 4096;", "b.rs": "const PAGE: u64 = 4096;"}), ["a.rs:PAGE"]),
    ("an exception that is alone", lambda tree: source.constants_once(tree, {"a.rs:PAGE"}),
     Tree({"a.rs": "pub const PAGE: usize = 4096;"}), []),
    ("a constant made of another", source.constants_once,
     Tree({"a.rs": "pub const PAGE: usize = 4096;", "b.rs": "const PAGE: u64 = units::PAGE as u64;",
           "tests/c.rs": "const PAGE: u64 = 4096;"}), []),
    ("a cluster in two places", source.constants_once,
     Tree({"a.rs": "const CLUSTER_SLOTS: u64 = 512;", "b.rs": "const CLUSTER_PAGES: u64 = 2 * MIB / 4096;"}),
     ["a.rs:CLUSTER_SLOTS", "b.rs:CLUSTER_PAGES"]),
    ("rooms in order", rooms.rooms, pager(engine__b="use crate::{kernel::uffd, engine::c};", lib="use crate::fault::x;"), []),
    ("no order", rooms.rooms, pager(readme="# The pager\n"), ["order"]),
    ("a room that is not there", rooms.rooms, pager(readme=ORDER.replace("kernel", "core < kernel")), ["room core"]),
    ("a use upwards", rooms.rooms, pager(kernel__b="use crate::engine::Engine;"), ["kernel/b.rs engine"]),
    ("upwards within braces", rooms.rooms, pager(engine__b="use crate::{\n    kernel,\n    evict::{Evictor, x},\n};"),
     ["engine/b.rs evict"]),
    ("upwards by a path", rooms.rooms, pager(engine__b="fn f() { crate::evict::wake() }"), ["engine/b.rs evict"]),
    ("upwards by super", rooms.rooms, pager(engine__b="use super::super::evict::wake;"), ["engine/b.rs evict"]),
    ("upwards in a test or a comment", rooms.rooms,
     pager(engine__b="// crate::evict::x\n#[cfg(test)]\nmod tests {\n    use crate::evict::x;\n}\n",
           engine__tests="use crate::evict::x;"), []),
    ("upwards, with a reason", rooms.rooms, pager(readme=ORDER + "| `kernel/b.rs` | `engine` | it wakes it |\n",
                                                 kernel__b="use crate::engine::Engine;"), []),
    ("upwards, without one", rooms.rooms, pager(readme=ORDER + "| `kernel/b.rs` | `engine` | |\n",
                                               kernel__b="use crate::engine::Engine;"), ["kernel/b.rs engine"]),
    ("a reason without a use", rooms.rooms, pager(readme=ORDER + "| `kernel/b.rs` | `engine` | it wakes it |\n"),
     ["listed kernel/b.rs engine"]),
    ("six uses upwards", rooms.rooms, pager(readme=ORDER + "| `kernel/b.rs` | `engine` | it wakes it |\n",
                                           kernel__b="use crate::engine::E;\n" * 6), ["upward lines"]),
    ("a circle on one floor", rooms.rooms, pager(evict__b="use crate::fault::F;", fault__b="use crate::evict::E;"),
     ["circle evict fault"]),
    ("one way on one floor", rooms.rooms, pager(evict__b="use crate::fault::F;"), []),
    ("one version", versions.versions, versioned(), []),
    ("another version of the module", versions.versions, versioned(module="1.2.2"), ["python/Cargo.toml"]),
    ("another version that is wanted", versions.versions, versioned(wanted="1.2.2"), ["crates/cli/Cargo.toml:folioswap-nbd"]),
    ("a version without a section", versions.versions, versioned(changes="## Unreleased\n"), ["CHANGELOG.md"]),
    ("no version", versions.versions, Tree({}), ["Cargo.toml"]),
    ("a file in no room", rooms.rooms, pager(loose="use crate::fault::F;"), ["loose.rs fault"]),
]


def of_the_list():
    """The list of exceptions may only shrink: (name, wrong, stale) of one finding of 3 against several lists."""
    import tidy
    from .tree import Finding
    found = {"file length": {"a.rs": Finding("a.rs", "long", 3)}}
    return [
        ("no exception", tidy.judged(found, {}), (1, 0)),
        ("an exception", tidy.judged(found, {("file length", "a.rs"): 3}), (0, 0)),
        ("one that has grown", tidy.judged(found, {("file length", "a.rs"): 2}), (1, 0)),
        ("one that is not needed", tidy.judged({}, {("file length", "a.rs"): 3}), (0, 1)),
        ("a foreign name that is used", ([], tidy.unused(Tree({"a.md": "`folio_add_lru`"}), ["folio_add_lru"])), (0, 0)),
        ("a foreign name that is not", ([], tidy.unused(Tree({"a.md": ""}), ["folio_add_lru"])), (0, 1)),
        ("a foreign name that is ours", ([], tidy.unused(Tree({"a.md": "`x_y`", "a.rs": "fn x_y() {}"}), ["x_y"])), (0, 1)),
    ]


def run():
    failed = 0
    for name, check, tree, expected in CASES:
        keys = sorted(finding.key for finding in check(tree))
        if keys != sorted(expected):
            failed += 1
            print(f"FAILED: {check.__name__}: {name}: found {keys}, expected {sorted(expected)}")
    of_list = of_the_list()
    for name, (wrong, stale), expected in of_list:
        if (len(wrong), len(stale)) != expected:
            failed += 1
            print(f"FAILED: the list: {name}: {wrong}, {stale}")
    # The code of a file without literals: a quote in a character, a lifetime, a raw string, a nested comment.
    code, comments = blanked("let a = '\"'; f::<'a>(r#\"{\"#, \"\\\"{\"); /* { /* */ { */ g('{')\n// {\n")
    if "{" in code or "g(" not in code or comments != {1}:
        failed += 1
        print(f"FAILED: blanked: {code!r}, {comments}")
    total = len(CASES) + len(of_list) + 1
    print(f"self-test: {total - failed} of {total}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run())
