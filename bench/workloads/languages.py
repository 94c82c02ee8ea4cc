"""Runtimes of languages: most group rows by name in a hash table, sort the names, and fold the values, which is what makes
an interpreter's heap large. The rows come from the same generator everywhere; those of one name lie near each other, as
in a log of sessions."""

from workloads.kit import Workloads, built, source, system_python, tool

LANGUAGES = Workloads()
program = LANGUAGES.program


@program("lua", "Lua 5.4, tables")
def lua(place, scale):
    return [tool("lua5.4", "lua5.4"), source(place, "groups.lua", f"""
local x, groups = 1, {{}}
for number = 1, {int(700_000 * scale)} do
    x = (x * 1103515245 + 12345) % 2147483648
    local name = "name" .. (number // 8 + x % 64)
    local group = groups[name]
    if not group then group = {{}}; groups[name] = group end
    group[#group + 1] = number
end
local names = {{}}
for name in pairs(groups) do names[#names + 1] = name end
table.sort(names)
local sum = 0
for _, name in ipairs(names) do
    for _, number in ipairs(groups[name]) do sum = (sum * 31 + number) % 1000000007 end
end
print(#names, sum)
""")]


@program("ruby", "Ruby, hash and sort")
def ruby(place, scale):
    return [tool("ruby", "ruby"), source(place, "groups.rb", f"""
x, groups = 1, Hash.new {{ |all, name| all[name] = [] }}
{int(600_000 * scale)}.times do |number|
  x = (x * 1103515245 + 12345) % 2147483648
  groups["name#{{number / 8 + x % 64}}"] << [number, x.to_s]
end
sum = 0
groups.keys.sort.each {{ |name| groups[name].each {{ |number, text| sum = (sum * 31 + number + text.size) % 1000000007 }} }}
puts "#{{groups.size}} #{{sum}}"
""")]


@program("php", "PHP, arrays")
def php(place, scale):
    return [tool("php", "php-cli"), "-d", "memory_limit=-1", source(place, "groups.php", f"""<?php
$x = 1; $groups = [];
for ($number = 0; $number < {int(800_000 * scale)}; $number++) {{
    $x = ($x * 1103515245 + 12345) % 2147483648;
    $groups["name" . (intdiv($number, 8) + $x % 64)][] = [$number, "text $x"];
}}
ksort($groups, SORT_STRING);
$sum = 0;
foreach ($groups as $rows) foreach ($rows as [$number, $text]) $sum = ($sum * 31 + $number + strlen($text)) % 1000000007;
echo count($groups), " $sum\\n";
""")]


AWK = """BEGIN {{
    x = 1
    for (number = 0; number < {rows}; number++) {{
        x = (x * 16807) % 2147483647
        name = "name" (int(number / 8) + x % 64)
        count[name]++
        text[name, count[name]] = number ":" x
    }}
    for (i = 0; i < {rows} / 8 + 64; i++) {{
        name = "name" i
        for (j = 1; j <= count[name]; j++) {{ split(text[name, j], part, ":"); sum = (sum * 31 + part[1]) % 1000003 }}
    }}
    print sum
}}
"""


@program("gawk", "gawk, associative arrays")
def gawk(place, scale):
    return [tool("gawk", "gawk"), "-f", source(place, "groups.awk", AWK.format(rows=int(500_000 * scale)))]


@program("mawk", "mawk, associative arrays")
def mawk(place, scale):
    return [tool("mawk", "mawk"), "-f", source(place, "groups.awk", AWK.format(rows=int(700_000 * scale)))]


@program("bash", "bash, arrays")
def bash(place, scale):
    return [tool("bash", "bash"), source(place, "groups.sh", f"""
declare -A groups
declare -a numbers
x=1
for ((number = 0; number < {int(250_000 * scale)}; number++)); do
    x=$(((x * 1103515245 + 12345) % 2147483648))
    numbers[number]="number $x of the array"
    groups[name$((number / 8 + x % 64))]+=" $number"
done
sum=0
for ((i = 0; i < number / 8 + 64; i++)); do
    for number in ${{groups[name$i]}}; do sum=$(((sum * 31 + number) % 1000000007)); done
done
echo ${{#groups[@]}} ${{#numbers[@]}} $sum
""")]


PYTHON = """import sys
x, groups = 1, {{}}
for number in range({rows}):
    x = (x * 1103515245 + 12345) % 2147483648
    groups.setdefault(f"name{{number // 8 + x % 64}}", []).append((number, str(x)))
total = 0
for name in sorted(groups):
    for number, text in groups[name]:
        total = (total * 31 + number + len(text)) % 1000000007
print(len(groups), total)
"""


@program("pypy", "PyPy, dictionaries")
def pypy(place, scale):
    return [tool("pypy3", "pypy3"), source(place, "groups.py", PYTHON.format(rows=int(800_000 * scale)))]


@program("python-fork", "CPython, a pool of four processes")
def python_fork(place, scale):
    return [system_python(), source(place, "pool.py", f"""import hashlib, multiprocessing
data = [hashlib.sha256(str(number).encode()).hexdigest() for number in range({int(500_000 * scale)})]
def work(part):
    digest = hashlib.sha256()
    for text in sorted(data[part::16]):
        digest.update(text.encode())
    return digest.hexdigest()
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(4) as pool:
        print(*pool.map(work, range(16)), sep="\\n")
""")]


@program("python-threads", "CPython, eight threads")
def python_threads(place, scale):
    return [system_python(), source(place, "threads.py", f"""import hashlib, threading
blocks = [None] * 8
def work(own):
    noise = hashlib.shake_128(bytes([own])).digest({int(8_000_000 * scale)})
    blocks[own] = [noise[at : at + 64].hex() for at in range(0, len(noise), 64)]
    blocks[own].sort()
threads = [threading.Thread(target=work, args=(own,)) for own in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(hashlib.sha256("".join("".join(block) for block in blocks).encode()).hexdigest())
""")]


@program("python-shared", "CPython, shared memory of two processes")
def python_shared(place, scale):
    return [system_python(), source(place, "shared.py", f"""import hashlib, mmap, os
size = {int(120 * scale)} << 20
memory = mmap.mmap(-1, size)
child = os.fork()
for at in range(0 if child else 1 << 20, size, 2 << 20):
    memory[at : at + (1 << 20)] = hashlib.shake_128(str(at).encode()).digest(1 << 20)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(hashlib.sha256(memory).hexdigest())
""")]


@program("node-workers", "Node.js, four workers")
def node_workers(place, scale):
    return [tool("node", "nodejs"), source(place, "workers.js", f"""
const {{ Worker, isMainThread, workerData, parentPort }} = require('worker_threads');
if (isMainThread) {{
    const sums = [];
    let left = 4;
    for (let own = 0; own < 4; own++)
        new Worker(__filename, {{ workerData: own }}).on('message', sum => {{
            sums[own] = sum;
            if (--left === 0) console.log(sums.join(' '));
        }});
}} else {{
    let x = workerData + 1, sum = 0;
    const rows = new Map();
    for (let i = 0; i < {int(120_000 * scale)}; i++) {{
        x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
        rows.set('name' + x, {{ id: i, text: String(x) }});
    }}
    for (const name of [...rows.keys()].sort()) sum = (sum * 31 + rows.get(name).id) % 1000003;
    parentPort.postMessage(sum);
}}
""")]


JAVA = """import java.util.*;
public class Rows {{
    record Row(int id, String text) {{}}
    public static void main(String[] arguments) {{
        var random = new Random(1);
        var groups = new TreeMap<String, List<Row>>();
        for (int i = 0; i < {rows}; i++)
            groups.computeIfAbsent("name" + (i / 8 + random.nextInt(64)), key -> new ArrayList<>()).add(new Row(i, "text" + random.nextInt()));
        long sum = 0;
        for (int again = 0; again < 2; again++)
            for (var group : groups.values()) for (Row row : group) sum = (sum * 31 + row.id() + row.text().length()) % 1000000007;
        System.out.println(groups.size() + " " + sum);
    }}
}}
"""


def java_with(collector, title):
    @program(f"java-{collector.lower()}", title)
    def java(place, scale):
        built([tool("javac", "default-jdk-headless"), source(place, "Rows.java", JAVA.format(rows=int(350_000 * scale)))], place)
        return [tool("java", "default-jre-headless"), f"-XX:+Use{collector}GC", "-Xms32m", "-Xmx256m", "-cp", place, "Rows"]


java_with("Serial", "Java, serial collector")
java_with("Parallel", "Java, parallel collector")
java_with("Z", "Java, ZGC")
java_with("Shenandoah", "Java, Shenandoah")


@program("clojure", "Clojure")
def clojure(place, scale):
    return [tool("clojure", "clojure"), source(place, "groups.clj", f"""
(let [next (fn [x] (mod (+ (* x 1103515245) 12345) 2147483648))
      rows (map-indexed vector (take {int(200_000 * scale)} (iterate next 1)))
      groups (group-by (fn [[n x]] (str "name" (+ (quot n 8) (mod x 64)))) rows)]
  (println (count groups)
           (reduce (fn [sum name] (reduce (fn [s [n _]] (mod (+ (* s 31) n) 1000000007)) sum (groups name)))
                   0 (sort (keys groups)))))
""")]


@program("erlang", "Erlang, ets tables")
def erlang(place, scale):
    source(place, "groups.erl", f"""-module(groups).
-export([main/0]).
main() ->
    Table = ets:new(rows, [ordered_set]),
    fill(Table, {int(400_000 * scale)}, 1),
    Sum = ets:foldl(fun({{_, Number, Text}}, Sum) -> (Sum * 31 + Number + byte_size(Text)) rem 1000000007 end, 0, Table),
    io:format("~p ~p~n", [ets:info(Table, size), Sum]),
    halt(0).
fill(_, 0, _) -> ok;
fill(Table, Number, X) ->
    Next = (X * 1103515245 + 12345) rem 2147483648,
    ets:insert(Table, {{{{Number div 8 + Next rem 64, Number}}, Number, integer_to_binary(Next)}}),
    fill(Table, Number - 1, Next).
""")
    built([tool("erlc", "erlang-nox"), "groups.erl"], place)
    return [tool("erl", "erlang-nox"), "-noshell", "-pa", place, "-s", "groups", "main"]


@program("guile", "Guile 3, hash tables")
def guile(place, scale):
    return [tool("guile", "guile-3.0"), "--no-auto-compile", "-s", source(place, "groups.scm", f"""
(define table (make-hash-table))
(let loop ((number 0) (x 1))
  (when (< number {int(500_000 * scale)})
    (let* ((next (modulo (+ (* x 1103515245) 12345) 2147483648)) (key (+ (quotient number 8) (modulo next 64))))
      (hashv-set! table key (cons (cons number (number->string next)) (hashv-ref table key '())))
      (loop (+ number 1) next))))
(let loop ((key 0) (sum 0))
  (if (= key {int(500_000 * scale) // 8 + 64})
      (begin (display sum) (newline))
      (loop (+ key 1)
            (let fold ((rows (hashv-ref table key '())) (sum sum))
              (if (null? rows) sum
                  (fold (cdr rows) (modulo (+ (* sum 31) (caar rows) (string-length (cdar rows))) 1000000007)))))))
""")]


@program("sbcl", "SBCL, hash tables")
def sbcl(place, scale):
    return [tool("sbcl", "sbcl"), "--dynamic-space-size", "1GB", "--script", source(place, "groups.lisp", f"""
(let ((table (make-hash-table :test 'equal)) (x 1) (sum 0))
  (dotimes (number {int(400_000 * scale)})
    (setf x (mod (+ (* x 1103515245) 12345) 2147483648))
    (push (cons number (format nil "~D" x)) (gethash (+ (floor number 8) (mod x 64)) table)))
  (dotimes (key {int(400_000 * scale) // 8 + 64})
    (dolist (row (gethash key table))
      (setf sum (mod (+ (* sum 31) (car row) (length (cdr row))) 1000000007))))
  (format t "~D ~D~%" (hash-table-count table) sum))
""")]


@program("ocaml", "OCaml, bytecode")
def ocaml(place, scale):
    return [tool("ocaml", "ocaml-nox"), source(place, "groups.ml", f"""
let () =
  let table = Hashtbl.create 50000 and x = ref 1 and sum = ref 0 in
  for number = 0 to {int(700_000 * scale)} - 1 do
    x := (!x * 1103515245 + 12345) mod 2147483648;
    let key = number / 8 + !x mod 64 in
    let rows = try Hashtbl.find table key with Not_found -> [] in
    Hashtbl.replace table key ((number, string_of_int !x) :: rows)
  done;
  for key = 0 to {int(700_000 * scale) // 8 + 64} do
    let rows = try Hashtbl.find table key with Not_found -> [] in
    List.iter (fun (number, text) -> sum := (!sum * 31 + number + String.length text) mod 1000000007) rows
  done;
  Printf.printf "%d %d\\n" (Hashtbl.length table) !sum
""")]


@program("prolog", "SWI-Prolog, facts")
def prolog(place, scale):
    return [tool("swipl", "swi-prolog-nox"), "-q", "-g", "main", "-t", "halt", source(place, "groups.pl", f"""
:- dynamic row/2.
fill(N, N, _) :- !.
fill(I, N, X) :- Y is (X * 16807) mod 2147483647, K is I // 8 + Y mod 64, assertz(row(K, Y)), J is I + 1, fill(J, N, Y).
main :- fill(0, {int(400_000 * scale)}, 1), findall(X, row(7, X), L), msort(L, S), length(S, N),
        findall(K-X, row(K, X), All), keysort(All, Sorted), foldl([_-X, A, B]>>(B is (A * 31 + X) mod 1000000007), Sorted, 0, Sum),
        format("~w ~w~n", [N, Sum]).
""")]


@program("racket", "Racket, hash tables")
def racket(place, scale):
    return [tool("racket", "racket"), source(place, "groups.rkt", f"""#lang racket/base
(define table (make-hasheqv))
(for/fold ([x 1]) ([number (in-range {int(400_000 * scale)})])
  (define next (modulo (+ (* x 1103515245) 12345) 2147483648))
  (hash-update! table (+ (quotient number 8) (modulo next 64)) (lambda (rows) (cons (cons number (number->string next)) rows)) '())
  next)
(displayln (for*/fold ([sum 0]) ([key (in-range {int(400_000 * scale) // 8 + 64})] [row (in-list (hash-ref table key '()))])
  (modulo (+ (* sum 31) (car row) (string-length (cdr row))) 1000000007)))
""")]


@program("r", "R, data frames")
def r(place, scale):
    return [tool("Rscript", "r-base-core"), source(place, "frame.R", f"""
set.seed(1)
rows <- {int(800_000 * scale)}
frame <- data.frame(key = sample(20000, rows, TRUE), kind = sample(letters, rows, TRUE), value = round(runif(rows), 6))
sums <- aggregate(value ~ kind, frame, sum)
frame <- frame[order(frame$value, frame$key), ]
cat(sprintf("%s %.3f\\n", sums$kind, sums$value), sep = "")
cat(nrow(frame), frame$key[1:5], "\\n")
""")]
