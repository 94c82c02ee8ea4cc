"""Servers, with a client that fills them, reads everything back and stops them."""

import os

from workloads.kit import Missing, Workloads, source, system_python, tool

SERVERS = Workloads()
program = SERVERS.program


@program("memcached", "memcached")
def memcached(place, scale):
    server = tool("memcached", "memcached")
    return [system_python(), source(place, "fill.py", f"""import hashlib, os, socket, subprocess, time
path = {place!r} + "/sock"
if os.path.exists(path): os.unlink(path)
server = subprocess.Popen([{server!r}, "-u", "root", "-m", "400", "-s", path, "-t", "2"])
while True:
    try:
        peer = socket.socket(socket.AF_UNIX); peer.connect(path); break
    except OSError:
        time.sleep(0.01)
stream = peer.makefile("rwb")
count = {int(60_000 * scale)}
value = lambda number: hashlib.shake_128(str(number).encode()).digest(800)
for number in range(count):
    stream.write(b"set k%d 0 0 800 noreply\\r\\n%s\\r\\n" % (number, value(number)))
stream.flush()
right = 0
for number in range(count):
    stream.write(b"get k%d\\r\\n" % number)
    stream.flush()
    stream.readline()
    right += stream.read(800) == value(number)
    stream.readline(); stream.readline()
print(right, count)
server.terminate(); server.wait()
""")]


@program("postgres", "PostgreSQL, sort and hash join")
def postgres(place, scale):
    found = sorted(name for name in os.listdir("/usr/lib/postgresql") if os.path.exists(f"/usr/lib/postgresql/{name}/bin/initdb")) \
        if os.path.isdir("/usr/lib/postgresql") else []
    if not found:
        raise Missing("PostgreSQL is not there: apt-get install postgresql")
    binaries = f"/usr/lib/postgresql/{found[-1]}/bin"
    return ["bash", source(place, "run.sh", f"""set -e
cd {place}; chmod 711 {place}; rm -rf data; mkdir data
as=
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses root
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
    chown nobody:nogroup data
fi
$as {binaries}/initdb -D data -U me --no-sync -E UTF8 --locale=C >/dev/null 2>&1
cat >> data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '{place}/data'
shared_buffers = 40MB
work_mem = 80MB
fsync = off
max_parallel_workers_per_gather = 2
END
$as {binaries}/pg_ctl -D data -l data/log -w start >/dev/null
trap '$as {binaries}/pg_ctl -D data -m immediate stop >/dev/null 2>&1' EXIT
{binaries}/psql -h {place}/data -U me -d postgres -q -A -t <<END
CREATE TABLE t AS SELECT x AS id, (x * 7919) % 50021 AS key, md5(x::text) AS note FROM generate_series(1, {int(300_000 * scale)}) x;
SELECT md5(string_agg(note, ',' ORDER BY note)) FROM t;
SELECT a.key, count(*), max(b.note) FROM t a JOIN t b ON a.id = b.key GROUP BY a.key ORDER BY 2 DESC, 1 LIMIT 5;
END
trap - EXIT
$as {binaries}/pg_ctl -D data -m fast -w stop >/dev/null
""")]


@program("mariadb", "MariaDB, InnoDB")
def mariadb(place, scale):
    server, install, client = (tool(name, "mariadb-server") for name in ("mariadbd", "mariadb-install-db", "mariadb"))
    return ["bash", source(place, "run.sh", f"""set -e
cd {place}; rm -rf data; mkdir data
{install} --no-defaults --user=root --datadir={place}/data --auth-root-authentication-method=normal >/dev/null 2>&1
{server} --no-defaults --user=root --datadir={place}/data --socket={place}/data/sock --skip-networking --innodb-buffer-pool-size=80M \\
    --innodb-flush-log-at-trx-commit=0 --pid-file={place}/data/pid >data/log 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
ask() {{ {client} --no-defaults -u root -S {place}/data/sock -N -B "$@"; }}
until ask -e 'SELECT 1' >/dev/null 2>&1; do kill -0 $server; sleep 0.05; done
ask <<END
CREATE DATABASE d; USE d; SET SESSION max_recursive_iterations = 10000000; SET SESSION tmp_table_size = 100000000;
SET SESSION max_heap_table_size = 100000000;
CREATE TABLE t (id INT PRIMARY KEY, k INT, note CHAR(32), KEY (k)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, (seq * 7919) % 50021, md5(seq) FROM seq_1_to_{int(150_000 * scale)};
SELECT k, count(*), max(note) FROM t GROUP BY k ORDER BY 2 DESC, 1 LIMIT 5;
UPDATE t SET note = md5(note) WHERE k % 3 = 0;
SELECT md5(group_concat(note ORDER BY id LIMIT 5000)) FROM t;
SELECT sum(crc32(note)) FROM t;
END
ask -e SHUTDOWN
trap - EXIT
wait $server
""")]
