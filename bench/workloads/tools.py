"""Tools of the command line: compression, text, pictures, sound, compilers, version control, databases."""

import os
import random

from machine import write
from workloads.kit import Workloads, built, generated_c, source, system_python, tool

TOOLS = Workloads()
program = TOOLS.program


def text_file(place, mebibytes, name="text"):
    """A file of lines whose words come from a small dictionary, with numbers between them."""
    pick, path = random.Random(1), os.path.join(place, name)
    words = ["".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=pick.randrange(2, 11))) for _ in range(5000)]
    with open(path, "w") as file:
        written = 0
        while written < mebibytes * (1 << 20):
            line = " ".join(pick.choices(words, k=12)) + f" {pick.getrandbits(40)}\n"
            file.write(line)
            written += len(line)
    return path


def piped(command):
    """A shell that fails where a part of the pipe fails."""
    return ["bash", "-c", f"set -o pipefail; {command}"]


def compressor(command, package, options, title, mebibytes):
    @program(command, title)
    def compress(place, scale):
        return piped(f"{tool(command, package)} {options} -c {text_file(place, mebibytes * scale)} | sha256sum")


compressor("xz", "xz-utils", "-T1 -6", "xz -6", 8)
compressor("zstd", "zstd", "-19 --long=26 -T1", "zstd -19 --long=26", 8)
compressor("brotli", "brotli", "-q 9 --large_window=26", "brotli -q 9, window of 64 MiB", 10)


@program("7z", "7-Zip, LZMA")
def seven_zip(place, scale):
    path = text_file(place, 12 * scale)
    return piped(f"rm -f a.7z; {tool('7zz', '7zip')} a -mx=5 -mmt=1 -mtm=off a.7z {path} >/dev/null && {tool('7zz', '7zip')} x -so a.7z | sha256sum")


@program("sort-unique", "GNU sort -u, words")
def sort_unique(place, scale):
    return piped(f"LC_ALL=C tr ' ' '\\n' < {text_file(place, 25 * scale)} | LC_ALL=C sort -u -S 400M --parallel=2 | sha256sum")


@program("diff", "diff of two large files")
def diff(place, scale):
    path = text_file(place, 30 * scale)
    other, pick = os.path.join(place, "other"), random.Random(2)
    with open(path) as first, open(other, "w") as second:
        second.writelines(line for line in first if pick.randrange(2000))
    return piped(f"{tool('diff', 'diffutils')} --speed-large-files {path} {other} >{place}/changes || test $? = 1; sha256sum <{place}/changes")


@program("git", "git repack of a history")
def git(place, scale):
    program_path = tool("git", "git")
    pick, repository = random.Random(1), os.path.join(place, "repository")
    os.makedirs(repository)
    built([program_path, "init", "-q", "-b", "main", repository], place)
    for commit in range(int(5 * scale) + 1):
        for number in range(8):
            lines = [f"line {pick.getrandbits(64):x} of {number} {pick.getrandbits(200):x}\n" for _ in range(8_000)]
            write(os.path.join(repository, f"file{number}"), "".join(lines))
        built([program_path, "-C", repository, "add", "-A"], place)
        built([program_path, "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", str(commit)], place)
    return piped(f"cd {repository} && git -c pack.threads=2 -c pack.windowMemory=200m repack -a -d -f -q --window=10 && "
                 "git fsck --full 2>&1 | sort && git rev-list --objects --all | wc -l")


@program("trees", "find, sort and tar of a tree, packed and unpacked")
def trees(place, scale):
    pick, tree = random.Random(1), os.path.join(place, "tree")
    for folder in range(int(60 * scale) + 1):
        path = os.path.join(tree, f"part{folder % 11}", f"folder{folder}")
        os.makedirs(path)
        for number in range(200):
            name = os.path.join(path, f"{pick.getrandbits(128):032x} of a tree {number}")
            with open(name, "wb") as file:
                file.write(pick.randbytes(pick.randrange(400)))
            # tar keeps the name of each file that has a second one, and sort all that twenty walks find.
            os.link(name, name + " again")
    options = "--null --verbatim-files-from --no-recursion --numeric-owner --owner=0 --group=0 --mtime=@0"
    return piped(f"""set -e; cd {place}; rm -rf unpacked; mkdir unpacked
find {"tree " * 20} -print0 | LC_ALL=C sort -z -u -S 200M --parallel=2 >names
tar {options} -cf packed.tar -T names
sha256sum <packed.tar
tar -xf packed.tar -C unpacked
find unpacked/tree -type f -printf '%P %s %n\\n' | LC_ALL=C sort | sha256sum
diff -rq tree unpacked/tree""")


@program("imagemagick", "ImageMagick, resize and blur")
def imagemagick(place, scale):
    convert = tool("convert", "imagemagick")
    side = int(1600 * scale)
    built([convert, "-size", f"{side}x{side}", "-seed", "1", "plasma:red-blue", "in.ppm"], place)
    return piped(f"{convert} {place}/in.ppm -limit thread 2 -resize 130% -blur 0x3 -rotate 90 ppm:- | sha256sum")


@program("graphicsmagick", "GraphicsMagick, scale")
def graphicsmagick(place, scale):
    gm = tool("gm", "graphicsmagick")
    side = int(2200 * scale)
    path = os.path.join(place, "in.ppm")
    pick = random.Random(1)
    with open(path, "wb") as file:
        file.write(f"P6 {side} {side} 255\n".encode())
        for _ in range(side):
            file.write(bytes([pick.randrange(200)]) * 30 + pick.randbytes(side * 3 - 30))
    return piped(f"{gm} convert {path} -scale 120% -flip ppm:- | sha256sum")


@program("ffmpeg", "ffmpeg, x264")
def ffmpeg(place, scale):
    return piped(f"{tool('ffmpeg', 'ffmpeg')} -v error -f lavfi -i testsrc2=size=1280x720:rate=25:duration={max(1, int(3 * scale))} "
                 "-threads 2 -c:v libx264 -preset medium -x264-params deterministic=1 -f rawvideo - | sha256sum")


def c_compiler(name, command, title):
    @program(name, title)
    def compile_(place, scale):
        path = source(place, "large.c", generated_c(int(260 * scale), 7))
        return piped(f"cd {place} && {tool(command, command)} -O2 -c -o large.o {path} && sha256sum <large.o")


c_compiler("gcc-large", "gcc", "gcc -O2, one large file")
c_compiler("clang", "clang", "clang -O2, one large file")


@program("g++", "g++, templates")
def gxx(place, scale):
    headers = "".join(f"#include <{name}>\n" for name in ("map", "regex", "string", "vector", "iostream", "functional", "thread", "unordered_map"))
    uses = "".join(f"std::map<std::string, std::vector<std::pair<int, char[{n}]>>> m{n};\n"
                   f"int f{n}() {{ std::regex r(\"a{n}\"); return std::regex_search(std::string(\"a{n}\"), r) + m{n}.size(); }}\n"
                   for n in range(1, int(40 * scale) + 2))
    path = source(place, "templates.cc", headers + uses)
    return piped(f"cd {place} && {tool('g++', 'g++')} -O1 -c -o t.o {path} && sha256sum <t.o")


@program("valgrind", "Valgrind, memcheck")
def valgrind(place, scale):
    path = source(place, "small.c", "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { unsigned s = 0; for (int i = 0; i < "
                  f"{int(40_000 * scale)}; i++) {{ char *p = malloc(500); p[i % 500] = i; s += p[i % 500]; }} printf(\"%u\\n\", s); }}\n")
    built([tool("gcc", "gcc"), "-g", "-O1", "-o", "small", path], place)
    return [tool("valgrind", "valgrind"), "-q", "--error-exitcode=9", os.path.join(place, "small")]


@program("pandoc", "pandoc, markdown to HTML")
def pandoc(place, scale):
    lines = text_file(place, 0.6 * scale)
    return piped(f"{tool('pandoc', 'pandoc')} -f markdown -t html {lines} | sha256sum")


@program("ghostscript", "Ghostscript, pages to pictures")
def ghostscript(place, scale):
    boxes = "".join(f"{(x * 37) % 600} {(x * 91) % 800} {x % 50 + 5} {x % 40 + 5} rectfill 0.{x % 10} setgray\n" for x in range(int(20_000 * scale)))
    path = source(place, "page.ps", f"%!PS\n{boxes}showpage\n")
    return piped(f"{tool('gs', 'ghostscript')} -q -dSAFER -dBATCH -dNOPAUSE -dMaxBitmap=500000000 -sDEVICE=ppmraw -r600 -sOutputFile=- {path} | sha256sum")


@program("pdftoppm", "Poppler, a page at 600 dpi")
def pdftoppm(place, scale):
    boxes = "".join(f"{(x * 37) % 600} {(x * 91) % 800} {x % 50 + 5} {x % 40 + 5} re f 0.{x % 10} g\n" for x in range(int(5_000 * scale)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
               "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >>",
               f"<< /Length {len(boxes)} >>\nstream\n{boxes}endstream"]
    text, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects):
        places.append(len(text))
        text += f"{number + 1} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{at:010} 00000 n \n" for at in places)
    text += f"xref\n0 5\n0000000000 65535 f \n{table}trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    return piped(f"{tool('pdftoppm', 'poppler-utils')} -r 600 {source(place, 'page.pdf', text)} | sha256sum")


@program("povray", "POV-Ray, spheres")
def povray(place, scale):
    pick = random.Random(1)
    spheres = "".join(f"sphere {{ <{pick.random() * 10:.4f}, {pick.random() * 10:.4f}, {pick.random() * 10:.4f}>, 0.05 pigment {{ color rgb <"
                      f"{pick.random():.3f}, 0.5, 0.5> }} }}\n" for _ in range(int(40_000 * scale)))
    path = source(place, "scene.pov", "#version 3.7;\nglobal_settings { assumed_gamma 1 }\ncamera { location <5, 5, -15> look_at <5, 5, 5> }\n"
                  f"light_source {{ <0, 20, -20> rgb 1 }}\n{spheres}")
    return piped(f"cd {place} && HOME={place} {tool('povray', 'povray')} -D +WT1 +W160 +H120 +FP +Oscene.ppm {path} 2>/dev/null && grep -av '^# ' scene.ppm | sha256sum")


@program("graphviz", "Graphviz, neato")
def graphviz(place, scale):
    pick, n = random.Random(1), int(1800 * scale)
    edges = "".join(f"{a} -- {pick.randrange(n)};\n" for a in range(n))
    return piped(f"{tool('neato', 'graphviz')} -Gstart=1 -Gmaxiter=5 -Tplain {source(place, 'graph.dot', f'graph {{{edges}}}')} | cut -d' ' -f1,2 | sha256sum")


@program("gnuplot", "gnuplot, a million points")
def gnuplot(place, scale):
    return piped(f"{tool('gnuplot', 'gnuplot-nox')} -e \"set terminal dumb; set samples {int(1_000_000 * scale) + 10}; plot sin(x) + sin(3 * x)\" | sha256sum")


@program("sqlite-file", "SQLite in a file, a cache of 80 MiB")
def sqlite_file(place, scale):
    path = source(place, "queries.sql", f"""PRAGMA cache_size = -80000;
PRAGMA synchronous = OFF;
CREATE TABLE t (id INTEGER PRIMARY KEY, key INTEGER, note TEXT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {int(400_000 * scale)})
INSERT INTO t SELECT x, (x * 7919) % 50021, printf('note %d of %x', x, x * 2654435761) FROM n;
CREATE INDEX by_key ON t (key, note);
SELECT key, count(*), max(note) FROM t GROUP BY key ORDER BY 2 DESC, 1 LIMIT 10;
UPDATE t SET note = note || '!' WHERE key % 3 = 0;
SELECT sum(length(note)) FROM t;
""")
    return piped(f"cd {place} && rm -f a.db && {tool('sqlite3', 'sqlite3')} a.db '.read {path}'")


@program("python-zlib", "CPython, HMAC and zlib of a large message")
def python_zlib(place, scale):
    path = text_file(place, 40 * scale)
    return [system_python(), source(place, "sign.py", f"""import hashlib, hmac, zlib
data = open({path!r}, "rb").read()
parts = [hmac.new(bytes([n]), data, hashlib.sha512).digest() for n in range(2)]
packed = zlib.compress(data, 6)
assert zlib.decompress(packed) == data
print(hashlib.sha256(b"".join(parts) + packed).hexdigest())
""")]
