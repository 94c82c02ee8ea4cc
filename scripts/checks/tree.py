"""The tree that is checked: paths and texts of all tracked files, and what of a Rust file is code, comment and test."""

import functools
import re
import subprocess


class Tree:
    """Files by path. Built from a git work tree, or from a dictionary by the self-test."""

    def __init__(self, texts, paths=None):
        self.texts = texts
        self.paths = set(paths if paths is not None else texts)
        self.folders = {path[:at] for path in self.paths for at in range(len(path)) if path[at] == "/"}

    @classmethod
    def of_work_tree(cls):
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        paths, texts = [path for path in listed.split("\0") if path], {}
        present = []
        for path in paths:
            try:
                with open(path, encoding="utf-8") as file:
                    texts[path] = file.read()
                present.append(path)
            except UnicodeDecodeError:
                present.append(path)
            except (FileNotFoundError, IsADirectoryError):
                pass
        return cls(texts, present)

    def named(self, *endings):
        return sorted(path for path in self.texts if path.endswith(endings))

    @functools.cached_property
    def words(self):
        """Every identifier of every file but the books, and the names of files and folders."""
        found = set()
        for path, text in self.texts.items():
            if not path.endswith((".md", ".lock", ".svg")) and not path.startswith("scripts/checks/"):
                found.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
        for path in self.paths:
            for part in path.split("/"):
                found.update((part, part.split(".")[0], part.split(".")[0].replace("-", "_")))
        return found

    @functools.cached_property
    def rust(self):
        return {path: Rust(self.texts[path]) for path in self.named(".rs")}

    @functools.cached_property
    def test_files(self):
        """Rust files that are tests, by their place or because the module is declared under #[cfg(test)]."""
        found = {path for path in self.rust if re.search(r"(^|/)(tests|benches|examples|fuzz)/|(^|/)tests\.rs$", path)}
        for path, rust in self.rust.items():
            folder = path.rsplit("/", 1)[0]
            if not path.endswith(("/lib.rs", "/main.rs", "/mod.rs")):
                folder = path[:-3]
            for name in re.findall(r"#\[cfg\((?!not\()[^\]]*\btest\b[^\]]*\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", rust.code):
                found |= {other for other in self.rust
                          if other == f"{folder}/{name}.rs" or other.startswith(f"{folder}/{name}/")}
        return found


# The head of a module under #[cfg(test)] whose text is in the same file.
INLINE_TESTS = re.compile(r"#\[cfg\((?!not\()[^\]]*\btest\b[^\]]*\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")


class Rust:
    """A Rust file: `code` is its text with comments and the contents of literals blanked, line for line."""

    def __init__(self, text):
        self.text = text
        self.code, self.comments = blanked(text)

    @functools.cached_property
    def without_tests(self):
        """The code without inline test modules, line for line."""
        code = self.code
        for match in INLINE_TESTS.finditer(code):
            end = closing(code, match.end() - 1)
            code = code[:match.start()] + re.sub(r"[^\n]", " ", code[match.start():end]) + code[end:]
        return code

    def lines_without_tests(self):
        """How many lines the file has, its inline test modules not counted."""
        tests = 0
        for match in INLINE_TESTS.finditer(self.code):
            tests += self.code.count("\n", match.start(), closing(self.code, match.end() - 1)) + 1
        return self.text.count("\n") - tests

    def functions(self):
        """Name and number of lines of each function, tests not counted."""
        code = self.without_tests
        for match in re.finditer(r"\bfn\s+(\w+)", code):
            depth, at = 0, match.end()
            while at < len(code) and not (depth == 0 and code[at] in "{;"):
                depth += (code[at] in "([") - (code[at] in ")]")
                at += 1
            if at < len(code) and code[at] == "{":
                yield match.group(1), code.count("\n", match.start(), closing(code, at)) + 1


def closing(code, at):
    """The index after the brace that closes the one at `at`."""
    depth = 0
    for index in range(at, len(code)):
        depth += (code[index] == "{") - (code[index] == "}")
        if depth == 0:
            return index + 1
    return len(code)


TOKEN = re.compile(r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
  | (?P<string>\b(?:b|c)?"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*")
  | (?P<char>'(?:[^'\\\n]|\\(?:[^u\n]|u\{[^}]*\}))[^'\n]?'|'\\x[0-9a-fA-F]{2}')
""", re.VERBOSE | re.DOTALL)


def blanked(text):
    """The code with comments and literals blanked, and the numbers of the lines that hold nothing but a comment."""
    out, at, comments = [], 0, set()

    def blank(piece):
        return re.sub(r"[^\n]", " ", piece)

    while match := TOKEN.search(text, at):
        out.append(text[at:match.start()])
        end = match.end()
        if match.lastgroup == "block":
            depth = 1
            while depth and end < len(text):
                if text.startswith("/*", end):
                    depth, end = depth + 1, end + 2
                elif text.startswith("*/", end):
                    depth, end = depth - 1, end + 2
                else:
                    end += 1
        elif match.group("raw"):
            close = text.find('"' + match.group("hashes"), end)
            end = len(text) if close < 0 else close + 1 + len(match.group("hashes"))
        if match.group("line") or match.group("block"):
            start = text.rfind("\n", 0, match.start()) + 1
            first = text.count("\n", 0, match.start())
            if not text[start:match.start()].strip():
                comments.update(range(first, first + text.count("\n", match.start(), end) + 1))
            out.append(blank(text[match.start():end]))
        else:
            out.append('"' + blank(text[match.start() + 1:end - 1]) + '"' if end - match.start() > 1 else '"')
        at = end
    out.append(text[at:])
    return "".join(out), comments


class Finding:
    """Something that a check objects to. `key` names it in the list of exceptions, `amount` says how much of it there is."""

    def __init__(self, key, message, amount=1):
        self.key, self.message, self.amount = key, message, amount

    def __repr__(self):
        return f"{self.key}: {self.message}"
