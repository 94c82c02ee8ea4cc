"""Names and links of the books (all Markdown files): what they name must exist."""

import fnmatch
import posixpath
import re

from .tree import Finding

ROOTS = ("crates/", "docs/", "scripts/", "bench/", "examples/", "python/", "contrib/", "fuzz/", ".ci/", ".config/")
# The diary and the list of changes name what was there then.
OF_THE_PAST = ("docs/history/*", "CHANGELOG.md")
SOURCE = re.compile(r"[\w./*{},-]+\.(?:rs|py|sh|toml|h)$")


def without_fences(text):
    return re.sub(r"^( *)(```|~~~).*?^\1\2[^\n]*$", lambda match: "\n" * match.group().count("\n"), text, flags=re.S | re.M)


def expanded(name):
    """`a/{b,c}.rs` is two names."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", name)
    if not match:
        return [name]
    return [one for part in match.group(1).split(",")
            for one in expanded(name[:match.start()] + part.strip() + name[match.end():])]


def files_of(tree, name, book):
    """The files that a name in a book may mean: a path from the root or from the book's folder, or the end of a path, of
    which `src` may be left out."""
    name = name.rstrip("/").removeprefix("./")
    places = tree.paths | tree.folders
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(book), name))
    if "*" in name:
        return [path for path in places if fnmatch.fnmatch(path, f"*{name}")]
    exact = [path for path in (name, beside) if path in places]
    if exact:
        return exact
    short = name.replace("/src/", "/")
    return [path for path in tree.paths if path.endswith(f"/{name}") or path.replace("/src/", "/").endswith(f"/{short}")]


def names_of_files(tree):
    """Paths in backticks and in fenced commands exist."""
    for book in tree.named(".md"):
        if any(fnmatch.fnmatch(book, past) for past in OF_THE_PAST):
            continue
        text = tree.texts[book]
        spans = re.findall(r"`([^`\n]+)`", without_fences(text))
        fenced = "\n".join(re.findall(r"^ *```.*?^ *```", text, flags=re.S | re.M))
        # A command's argument may be a user's own file; only the tree's folders are looked up.
        words = [word for span in spans for word in span.split()] + [
            word for word in fenced.split() if word.startswith(ROOTS)]
        for word in words:
            word = re.sub(r"(::?\w*|[,;:.)]+)+$", "", word.strip("()\"'")) if ".rs:" in word else word.strip("()\"',;:")
            if not (word.startswith(ROOTS) or re.fullmatch(r"[\w./*{},-]+\.rs", word)) or re.search(r"[<>$|…=]", word):
                continue
            for name in expanded(word):
                if not files_of(tree, name, book):
                    yield Finding(f"{book}:{name}", "no such file or folder")


def names_of_symbols(tree, foreign=frozenset()):
    """Identifiers in backticks exist somewhere in the tree, and `file.rs: symbol` does in that file. `foreign` are those of
    the kernel and of other projects."""
    for book in tree.named(".md"):
        if any(fnmatch.fnmatch(book, past) for past in OF_THE_PAST):
            continue
        text = without_fences(tree.texts[book])
        for span in re.findall(r"`([^`\n]+)`", text):
            name = span.removesuffix("()").removesuffix("!")
            if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[A-Za-z_]\w*(::[A-Za-z_]\w*)+", name):
                for part in name.split("::"):
                    if part not in tree.words and part not in foreign and name not in foreign:
                        yield Finding(f"{book}:{name}", f"`{part}` is nowhere in the tree")
        pairs = re.findall(r"`([\w./-]+\.rs)(?:::?\s*|\s+)([A-Za-z_]\w*)(?:\(\))?`", text)
        pairs += re.findall(r"`([\w./-]+\.rs)`: `([A-Za-z_][\w.]*)(?:\(\))?`", text)
        for file, symbol in pairs:
            found = files_of(tree, file, book)
            # `a_test_with_a_long_...` is the beginning of a name.
            pattern = rf"\b{symbol.rstrip('.')}" + ("" if symbol.endswith("...") else r"\b")
            if found and not any(re.search(pattern, tree.texts.get(path, "")) for path in found):
                yield Finding(f"{book}:{file}:{symbol}", "no such symbol in that file")


def anchors(text):
    """The anchors of a book's headings, as GitHub makes them."""
    found, seen = set(re.findall(r'<a (?:name|id)="([^"]+)"', text)), {}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", without_fences(text), flags=re.M):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.replace("`", "").replace("*", "").lower()).replace(" ", "-")
        found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return found


def links(tree):
    """Relative links lead to files of the tree, and anchors to headings."""
    for book in tree.named(".md"):
        text = re.sub(r"`[^`\n]*`", "", without_fences(tree.texts[book]))
        targets = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text)
        targets += re.findall(r"^\s*\[[^\]^]+\]:\s*(\S+)", text, flags=re.M) + re.findall(r'(?:src|href)="([^"]+)"', text)
        for target in targets:
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            path, _, anchor = target.partition("#")
            place = posixpath.normpath(posixpath.join(posixpath.dirname(book), path)) if path else book
            if place != "." and place not in tree.paths and place not in tree.folders:
                yield Finding(f"{book}:{target}", "the link leads nowhere")
            elif anchor and place.endswith(".md") and anchor not in anchors(tree.texts[place]):
                yield Finding(f"{book}:{target}", f"{place} has no such heading")
