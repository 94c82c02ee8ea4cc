"""Numbers, proofs, genomes: numpy and its friends, solvers, algebra, bioinformatics."""

import os
import random

from machine import write
from workloads.kit import RANDOM_C, Missing, Workloads, built, source, system_python, tool
from workloads.tools import piped

SCIENCE = Workloads()
program = SCIENCE.program


def with_module(module, package):
    python = system_python()
    try:
        built([python, "-c", f"import {module}"], "/")
    except Missing:
        raise Missing(f"Python has no {module}: apt-get install {package}") from None
    return python


@program("numpy", "numpy, sort and products")
def numpy(place, scale):
    return [with_module("numpy", "python3-numpy"), source(place, "arrays.py", f"""import numpy, hashlib
random = numpy.random.default_rng(1)
a = random.integers(0, 1 << 40, {int(6_000_000 * scale)})
b = numpy.sort(a)
c = (b[::-1] ^ a) % 1000003
print(hashlib.sha256(c.tobytes()).hexdigest(), int(c.sum()))
""")]


@program("numpy-save", "numpy, save and load")
def numpy_save(place, scale):
    return [with_module("numpy", "python3-numpy"), source(place, "save.py", f"""import numpy, hashlib, os
random = numpy.random.default_rng(1)
a = random.random({int(10_000_000 * scale)})
numpy.save("a.npy", a)
b = numpy.load("a.npy")
assert (a == b).all()
a.tofile("a.raw")
c = numpy.fromfile("a.raw")
assert (c == b).all()
os.unlink("a.npy"); os.unlink("a.raw")
print(hashlib.sha256(c.tobytes()).hexdigest())
""")]


@program("scipy", "SciPy, sparse systems")
def scipy(place, scale):
    return [with_module("scipy", "python3-scipy"), source(place, "sparse.py", f"""import numpy, scipy.sparse as sparse
from scipy.sparse.linalg import splu
n = {int(230 * scale)}
line = sparse.diags([-1, 2.1, -1], [-1, 0, 1], shape=(n, n))
grid = sparse.kron(sparse.eye(n), line) + sparse.kron(line, sparse.eye(n))
solution = splu(grid.tocsc()).solve(numpy.ones(n * n))
print(f"{{solution.sum():.3f}} {{abs(grid @ solution - 1).max() < 1e-8}}")
""")]


@program("sklearn", "scikit-learn, k-means and a forest")
def sklearn(place, scale):
    return [with_module("sklearn", "python3-sklearn"), source(place, "cluster.py", f"""import numpy
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
random = numpy.random.RandomState(1)
points = random.rand({int(120_000 * scale)}, 20).round(4)
labels = KMeans(5, n_init=1, max_iter=10, random_state=1).fit(points).labels_
forest = RandomForestClassifier(6, max_depth=10, random_state=1).fit(points[::4], labels[::4])
print((forest.predict(points[1::4]) == labels[1::4]).mean().round(2) > 0.4, sorted(numpy.bincount(labels))[0] > 0)
""")]


@program("z3", "Z3, a puzzle")
def z3(place, scale):
    n, text = int(38 * scale), []
    for row in range(n):
        text.append(f"(declare-const q{row} (_ BitVec 8))\n(assert (bvult q{row} (_ bv{n} 8)))\n")
    for a in range(n):
        for b in range(a):
            text.append(f"(assert (not (= q{a} q{b})))(assert (not (= (bvsub q{a} q{b}) (_ bv{a - b} 8))))"
                        f"(assert (not (= (bvsub q{b} q{a}) (_ bv{a - b} 8))))\n")
    text.append("(check-sat)\n(get-value (q0 q1 q2))\n")
    return [tool("z3", "z3"), "sat.random_seed=1", source(place, "queens.smt2", "".join(text))]


@program("minisat", "MiniSat, random clauses")
def minisat(place, scale):
    pick, variables = random.Random(3), int(100_000 * scale)
    clauses = "".join(" ".join(str(pick.choice((1, -1)) * pick.randrange(1, variables + 1)) for _ in range(3)) + " 0\n"
                      for _ in range(int(variables * 2.5)))
    path = source(place, "in.cnf", f"p cnf {variables} {int(variables * 2.5)}\n{clauses}")
    return piped(f"{tool('minisat', 'minisat')} -verb=0 {path} {place}/out >/dev/null; test $? = 10 && sha256sum <{place}/out")


@program("glpsol", "GLPK, a transport problem")
def glpsol(place, scale):
    n = int(110 * scale) + 2
    path = source(place, "transport.mod", f"""set I := 1..{n}; set J := 1..{n};
param cost{{i in I, j in J}} := (i * 7919 + j * 104729) mod 997 + 1;
var x{{I, J}} >= 0;
minimize total: sum{{i in I, j in J}} cost[i, j] * x[i, j];
s.t. supply{{i in I}}: sum{{j in J}} x[i, j] = 10 + i mod 7;
s.t. demand{{j in J}}: sum{{i in I}} x[i, j] = 10 + j mod 7;
solve;
printf "%.3f\\n", total;
end;
""")
    return piped(f"{tool('glpsol', 'glpk-utils')} --math {path} | grep -v -i 'time\\|memory\\|mb\\|obj ='")


@program("maxima", "Maxima, polynomials")
def maxima(place, scale):
    return piped(f"HOME={place} {tool('maxima', 'maxima')} --very-quiet --batch-string='p : expand((x + y + z + 1)^{int(34 * scale)})$ "
                 f"length(p); q : expand((x - y)^{int(300 * scale)})$ length(q); 3^5000;' | sha256sum")


@program("gp", "PARI/GP, primes and matrices")
def gp(place, scale):
    return piped(f"echo 'default(parisize, 500000000); v = primes({int(2_000_000 * scale)}); s = sum(i = 1, #v, v[i]^2 % 1000003); print(s); "
                 f"m = matrix({int(220 * scale)}, {int(220 * scale)}, i, j, (i * 7919 + j * 104729) % 1009); print(matdet(m) % 1000000007)' "
                 f"| {tool('gp', 'pari-gp')} -q -f 2>/dev/null")


def genome(place, length, name="genome.fa"):
    pick, path = random.Random(1), os.path.join(place, name)
    bases = "".join(pick.choices("ACGT", k=length))
    write(path, ">one\n" + "\n".join(bases[at:at + 70] for at in range(0, length, 70)) + "\n")
    return path, bases


def reads(place, bases, count):
    pick, path = random.Random(2), os.path.join(place, "reads.fq")
    with open(path, "w") as file:
        for number in range(count):
            at = pick.randrange(len(bases) - 100)
            file.write(f"@r{number}\n{bases[at:at + 100]}\n+\n{'I' * 100}\n")
    return path


@program("bwa", "bwa, index and align")
def bwa(place, scale):
    path, bases = genome(place, int(5_000_000 * scale))
    command = tool("bwa", "bwa")
    return piped(f"cd {place} && {command} index {path} 2>/dev/null && {command} mem -t 2 -K 10000000 {path} {reads(place, bases, int(30_000 * scale))} 2>/dev/null "
                 "| grep -v '^@PG' | sha256sum")


@program("samtools", "samtools sort")
def samtools(place, scale):
    pick, path = random.Random(1), os.path.join(place, "in.sam")
    with open(path, "w") as file:
        file.write("@SQ\tSN:one\tLN:100000000\n")
        for number in range(int(250_000 * scale)):
            bases = "".join(pick.choices("ACGT", k=10)) * 10
            file.write(f"r{number}\t0\tone\t{pick.randrange(1, 99_000_000)}\t60\t100M\t*\t0\t0\t{bases}\t{'I' * 100}\n")
    command = tool("samtools", "samtools")
    return piped(f"cd {place} && {command} sort --no-PG -@ 1 -m 200M -O bam {path} | {command} view --no-PG | sha256sum")


@program("bowtie2", "bowtie2-build")
def bowtie2(place, scale):
    path, _ = genome(place, int(3_000_000 * scale))
    return piped(f"cd {place} && {tool('bowtie2-build', 'bowtie2')} --quiet --seed 1 --bmax 2000000 {path} index && cat index.1.bt2 | sha256sum")


@program("blast", "BLAST, a database and a search")
def blast(place, scale):
    path, bases = genome(place, int(20_000_000 * scale))
    query = source(place, "query.fa", ">q\n" + bases[1000:3000] + "\n")
    return piped(f"cd {place} && {tool('makeblastdb', 'ncbi-blast+')} -in {path} -dbtype nucl -out db >/dev/null && "
                 f"blastn -query {query} -db db -outfmt 6 -word_size 11 | sort | sha256sum")


@program("bc", "bc, three thousand digits")
def bc(place, scale):
    return piped(f"echo 'scale={int(3000 * scale)}; 4*a(1)' | {tool('bc', 'bc')} -l | sha256sum")


@program("bfs", "BFS over a graph, C")
def bfs(place, scale):
    path = source(place, "bfs.c", RANDOM_C + r"""int main(int argc, char **argv) {
    uint32_t n = atoi(argv[argc - 1]), degree = 8, *to = malloc((uint64_t)n * degree * 4), *queue = malloc(n * 4ul), head = 0, tail = 0;
    int *depth = malloc(n * sizeof(int));
    for (uint64_t e = 0; e < (uint64_t)n * degree; e++) to[e] = next(n);
    for (uint32_t v = 0; v < n; v++) depth[v] = -1;
    depth[0] = 0;
    queue[tail++] = 0;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t e = 0; e < degree; e++) {
            uint32_t w = to[(uint64_t)v * degree + e];
            if (depth[w] < 0) { depth[w] = depth[v] + 1; queue[tail++] = w; }
        }
    }
    uint64_t sum = 0;
    for (uint32_t v = 0; v < n; v++) sum += depth[v];
    printf("%u %llu\n", tail, (unsigned long long)sum);
}
""")
    built([tool("gcc", "gcc"), "-O2", "-o", "bfs", path], place)
    return [os.path.join(place, "bfs"), str(int(2_500_000 * scale))]
