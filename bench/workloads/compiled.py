"""Programs that a compiler makes first, some of them static, and static programs that come so."""

import os

from workloads.kit import Missing, Workloads, built, source, tool

COMPILED = Workloads()
program = COMPILED.program


CPP = """#include <cstdio>
#include <map>
#include <string>
#include <vector>
int main() {{
    unsigned long x = 1, sum = 0;
    std::map<std::string, std::vector<std::pair<int, std::string>>> groups;
    for (int number = 0; number < {rows}; number++) {{
        x = (x * 1103515245 + 12345) % 2147483648;
        groups["name" + std::to_string(number / 8 + x % 64)].emplace_back(number, "a text of some length " + std::to_string(x));
    }}
    for (auto &[name, group] : groups)
        for (auto &[number, text] : group) sum = (sum * 31 + number + text.size()) % 1000000007;
    printf("%zu %lu\\n", groups.size(), sum);
}}
"""


@program("cpp", "C++, a map of strings")
def cpp(place, scale):
    built([tool("g++", "g++"), "-O2", "-o", "groups", source(place, "groups.cc", CPP.format(rows=int(800_000 * scale)))], place)
    return [os.path.join(place, "groups")]


@program("c-static", "C, static")
def c_static(place, scale):
    path = source(place, "static.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                  f"int main(void) {{ size_t n = {int(100 * scale)} << 20; char *p = malloc(n); memset(p, 7, n); "
                  "unsigned s = 0; for (size_t i = 0; i < n; i += 512) s += p[i]; printf(\"%u\\n\", s); }\n")
    built([tool("gcc", "gcc"), "-O1", "-static", "-o", "static", path], place)
    return [os.path.join(place, "static")]


@program("tcc", "C, compiled and run by tcc")
def tcc(place, scale):
    return [tool("tcc", "tcc"), "-run", source(place, "sort.c", f"""#include <stdio.h>
#include <stdlib.h>
static int order(const void *a, const void *b) {{ unsigned x = *(unsigned *)a, y = *(unsigned *)b; return x < y ? -1 : x > y; }}
int main(void) {{
    unsigned n = {int(12_000_000 * scale)}, x = 1, s = 0, *a = malloc(n * 4ul);
    for (unsigned i = 0; i < n; i++) a[i] = x = x * 1664525u + 1013904223u;
    qsort(a, n, 4, order);
    for (unsigned i = 0; i < n; i += 97) s = s * 31 + a[i];
    printf("%u\\n", s);
}}
""")]


@program("fortran", "Fortran, matrices")
def fortran(place, scale):
    path = source(place, "matrix.f90", f"""program matrix
  implicit none
  integer, parameter :: n = {int(2400 * scale)}
  real(8), allocatable :: a(:, :), b(:, :)
  integer :: i, j, round
  allocate(a(n, n), b(n, n))
  do j = 1, n
    do i = 1, n
      a(i, j) = mod(i * 7919 + j * 104729, 1009) / 1009d0
    end do
  end do
  do round = 1, 3
    b = transpose(a)
    a = 0.5d0 * (a + b) + 0.25d0
  end do
  print '(F20.8)', sum(a)
end program
""")
    built([tool("gfortran", "gfortran"), "-O2", "-o", "matrix", path], place)
    return [os.path.join(place, "matrix")]


@program("d", "D with its collector")
def d(place, scale):
    path = source(place, "groups.d", f"""import std.stdio, std.algorithm, std.conv;
void main() {{
    ulong x = 1, sum = 0;
    string[][string] groups;
    foreach (number; 0 .. {int(400_000 * scale)}) {{
        x = (x * 1103515245 + 12345) % 2147483648;
        groups["name" ~ to!string(number / 8 + x % 64)] ~= to!string(x);
    }}
    foreach (name; groups.keys.sort) foreach (text; groups[name]) sum = (sum * 31 + text.length + to!ulong(text)) % 1000000007;
    writeln(groups.length, " ", sum);
}}
""")
    built([tool("ldc2", "ldc"), "-O2", "-of=groups", path], place)
    return [os.path.join(place, "groups")]


@program("nim", "Nim, tables")
def nim(place, scale):
    path = source(place, "groups.nim", f"""import tables, algorithm
var x = 1
var groups: Table[string, seq[(int, string)]]
for number in 0 ..< {int(500_000 * scale)}:
  x = (x * 1103515245 + 12345) mod 0x7fffffff
  groups.mgetOrPut("name" & $(number div 8 + x mod 64), @[]).add((number, $x))
var names: seq[string]
for name in groups.keys: names.add(name)
names.sort()
var sum = 0
for name in names:
  for (number, text) in groups[name]: sum = (sum * 31 + number + text.len) mod 1000000007
echo names.len, " ", sum
""")
    built(["env", f"HOME={place}", tool("nim", "nim"), "c", "-d:release", "--hints:off", "--out:groups", path], place)
    return [os.path.join(place, "groups")]


@program("haskell", "Haskell, Data.Map")
def haskell(place, scale):
    path = source(place, "Groups.hs", f"""module Main where
import qualified Data.Map.Strict as Map
import Data.List (foldl')
main :: IO ()
main = do
  let next x = (x * 1103515245 + 12345) `mod` 2147483648 :: Int
      rows = zip [0 :: Int ..] (take {int(300_000 * scale)} (iterate next 1))
      add groups (n, x) = Map.insertWith (++) ("name" ++ show (n `div` 8 + x `mod` 64)) [n] groups
      fold sum n = (sum * 31 + n) `mod` 1000000007
      groups = foldl' add Map.empty rows
      total = Map.foldl' (foldl' fold) 0 groups
  putStrLn (show (Map.size groups) ++ " " ++ show total)
""")
    built([tool("ghc", "ghc"), "-O1", "-o", "groups", path], place)
    return [os.path.join(place, "groups")]


@program("chicken", "Scheme, compiled by CHICKEN")
def chicken(place, scale):
    path = source(place, "vectors.scm", f"""
(define n {int(600_000 * scale)})
(define v (make-vector n '()))
(let loop ((i 0) (x 1))
  (when (< i n)
    (vector-set! v i (list x (number->string x) i))
    (loop (+ i 1) (modulo (+ (* x 16807) 7) 2147483647))))
(let loop ((i 0) (sum 0))
  (if (= i n) (begin (display sum) (newline))
      (loop (+ i 1) (modulo (+ (* sum 31) (car (vector-ref v i)) (string-length (cadr (vector-ref v i)))) 1000003))))
""")
    built([tool("csc", "chicken-bin"), "-O2", "-o", "vectors", path], place)
    return [os.path.join(place, "vectors")]


@program("gforth", "Gforth")
def gforth(place, scale):
    return [tool("gforth", "gforth"), source(place, "array.fs", f"""
{int(10_000_000 * scale)} constant n
n cells allocate throw constant a
: fill-it 1 n 0 do 1664525 * 1013904223 + $ffffffff and dup a i cells + ! loop drop ;
: sum-it 0 n 0 do 31 * a i 7919 * n mod cells + @ + $ffffffff and loop ;
fill-it sum-it . cr bye
""")]


@program("go-static", "Go, static")
def go_static(place, scale):
    source(place, "go.mod", "module fill\n\ngo 1.19\n")
    source(place, "fill.go", f"""package main

import "fmt"

func main() {{
	data := make([]byte, {int(100 * scale)}<<20)
	for i := range data {{
		data[i] = byte(i * 7)
	}}
	fmt.Println(data[12345], len(data))
}}
""")
    environment = ["env", "CGO_ENABLED=0", f"GOCACHE={place}/gocache", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"]
    built([*environment, tool("go", "golang-go"), "build", "-o", "fill", "fill.go"], place)
    return [os.path.join(place, "fill")]


@program("go-build", "Go's compiler and linker, the library too")
def go_build(place, scale):
    source(place, "go.mod", "module fill\n\ngo 1.19\n")
    functions = "".join(f"func f{n}(m map[string][]int) int {{\n\ts := {n}\n\tfor k, v := range m {{\n"
                        f"\t\tfor _, x := range v {{\n\t\t\ts = s*{n + 3} ^ x + len(k)\n\t\t}}\n\t}}\n"
                        "\treturn s\n}\n" for n in range(int(400 * scale) + 1))
    source(place, "fill.go", 'package main\n\nimport "fmt"\n\n' + functions
           + 'func main() {\n\tfmt.Println(f0(map[string][]int{"a": {1}}))\n}\n')
    # Its compiler and linker are static programs, some sixty runs of them.
    environment = f"CGO_ENABLED=0 GOCACHE={place}/gocache GOTOOLCHAIN=local GOFLAGS=-mod=mod"
    return ["bash", "-c", f"cd {place} && rm -rf gocache fill && {environment} {tool('go', 'golang-go')} build -a "
            "-trimpath -buildvcs=false -p 2 -o fill fill.go && sha256sum <fill && ./fill"]


@program("busybox", "BusyBox, static: a script of sh, awk, sort, tar, gzip")
def busybox(place, scale):
    path = tool("busybox", "busybox-static")
    with open(path, "rb") as file:
        if b"/ld-" in file.read(4096):
            raise Missing(f"{path} is not static: apt-get install busybox-static")
    return [path, "sh", source(place, "script.sh", f"""set -e
cd {place}; rm -rf words; mkdir words
{path} awk 'BEGIN {{
    x = 1
    for (n = 0; n < {int(300_000 * scale)}; n++) {{ x = (x * 16807) % 2147483647; print x, "word" x % 9973, n }}
}}' >lines
{path} sort lines >sorted
{path} awk '{{ count[$2]++; last[$2] = last[$2] " " $3 }}
END {{ for (word in count) print word, count[word], length(last[word]) }}' sorted | {path} sort >words/counts
i=0
while [ $i -lt {int(50 * scale)} ]; do
    last=$((i * 7 + 90))
    {path} sed -n "$((i * 7 + 1)),${{last}}p;${{last}}q" sorted | {path} cut -d' ' -f2 | {path} sort -u >words/$i
    i=$((i + 1))
done
{path} find words -type f | {path} sort | {path} xargs {path} cat | {path} sha256sum
{path} tar -cf - words | {path} gzip -1 | {path} gzip -d | {path} tar -tf - | {path} wc -l
{path} sha256sum <sorted
""")]
