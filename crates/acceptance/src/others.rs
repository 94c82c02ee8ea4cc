//! Programs of others that the tests run natively and managed.

/// How many of [`OTHERS`] a test runs that has little time.
pub const FEW: usize = 6;

const PYTHON: &str = "import hashlib, os, subprocess, threading\n\
    data = [hashlib.sha256(bytes([n])).digest() * 4096 for n in range(64)]\n\
    sums = lambda: [hashlib.sha256(part).hexdigest() for part in data]\n\
    before = sums()\n\
    threads = [threading.Thread(target=sums) for _ in range(4)]\n\
    [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
    child = os.fork()\n\
    if child == 0: os._exit(0 if sums() == before else 3)\n\
    print(os.waitpid(child, 0)[1], sums() == before, subprocess.check_output(['echo', 'words']))";

const PYTHON_SIGNALS: &str = "import os, signal, threading\n\
    count = [0]\n\
    def alarm(*_): count[0] += 1\n\
    signal.signal(signal.SIGALRM, alarm)\n\
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
    ends = os.pipe()\n\
    def send():\n\
    \x20   for n in range(200): os.write(ends[1], bytes([n]) * 3000)\n\
    thread = threading.Thread(target=send); thread.start()\n\
    got = b''\n\
    while len(got) < 600000: got += os.read(ends[0], 600000 - len(got))\n\
    thread.join()\n\
    signal.setitimer(signal.ITIMER_REAL, 0)\n\
    print(got == b''.join(bytes([n]) * 3000 for n in range(200)), count[0] > 0)";

/// Programs of others, each with its arguments; each prints the same whenever it runs. The first
/// [`FEW`] are of as many kinds.
pub const OTHERS: [&[&str]; 14] = [
    &["python3", "-c", PYTHON],
    &["sh", "-c", "find /usr/share/doc | sort | sha256sum; tar cf - /usr/share/doc 2>&1 | wc -c"],
    &[
        "sqlite3",
        ":memory:",
        "with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) select sum(length(hex(x))) from c",
    ],
    &["sh", "-c", "seq 1 50000 | sort -R --random-source=/dev/zero | sort -n --parallel=2 | sha256sum"],
    &[
        "sh",
        "-c",
        "d=$(mktemp -d) && trap 'rm -rf $d' EXIT && cd $d && git init -q . && seq 1 3000 > file && git add file && git -c user.name=n -c user.email=e commit -q -m m && git fsck && git show --stat | tail -1",
    ],
    &[
        "sh",
        "-c",
        "d=$(mktemp -d) && trap 'rm -rf $d' EXIT && cd $d && echo 'int main(void) { return 42; }' > m.c && cc -O1 -c m.c && cc m.o -o m; ./m; echo $?",
    ],
    &["python3", "-c", PYTHON_SIGNALS],
    &[
        "perl",
        "-e",
        "my %h; $h{$_ % 5003} .= $_ for 1..60000; print length(join '', map { $h{$_} } sort keys %h), qq{\\n}",
    ],
    &[
        "awk",
        "BEGIN { for (i = 0; i < 60000; i++) a[i % 4001] = a[i % 4001] i; for (k in a) n += length(a[k]); print n }",
    ],
    &["sh", "-c", "seq 1 40000 | openssl enc -aes-128-cbc -K 00 -iv 00 2>/dev/null | sha256sum"],
    &["sh", "-c", "seq 1 30000 | xz -0 | xz -d | sha256sum"],
    // Static programs, of musl and of glibc, that start each other.
    &[
        "busybox",
        "sh",
        "-c",
        "busybox seq 1 20000 | busybox sort | busybox md5sum; busybox find /usr/share/man | busybox wc -l",
    ],
    &[
        "bash",
        "-c",
        "x=; for i in {1..3000}; do x+=$i; done; echo ${#x}; echo $(echo $(echo nested)) | sed s/n/N/",
    ],
    &[
        "sh",
        "-c",
        "printf '%s\\n' a:b c:d > /dev/null; dd if=/dev/zero bs=512 count=20000 2>/dev/null | cksum",
    ],
];
