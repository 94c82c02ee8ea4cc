#!/bin/sh
# The first process of the emulated machine of scripts/test_aarch64.sh: makes every check, and says
# by the console what came of it. The last line is the sum: N passed, N failed.
export PATH=/usr/bin:/usr/sbin:/folioswap HOME=/root LC_ALL=C.UTF-8
passed=0 failed=0 failures=
up() { cut -d ' ' -f 1 /proc/uptime; }

check() { # NAME SECONDS COMMAND...: it must end with 0 within so many seconds
    name=$1 seconds=$2 begun=$(up) status=0
    shift 2
    timeout -k 5 "$seconds" "$@" >/tmp/said 2>&1 </dev/null || status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1)) word=ok
    else
        failed=$((failed + 1)) word=FAILED failures="$failures
  $name (status $status)"
        tail -n 40 /tmp/said
    fi
    printf '%-7s %7.1f s  %s\n' $word "$(mawk "BEGIN { print $(up) - $begun }")" "$name"
}
says() { # TEXT COMMAND...: what it prints must have this in it
    text=$1
    shift
    "$@" >/tmp/text 2>&1 || { cat /tmp/text; return 1; }
    cat /tmp/text
    grep -q -- "$text" /tmp/text
}
# The disk is emulated too, so everything goes to compressed RAM, which is not counted.
within() { # LIMIT COMMAND...
    limit=$1
    shift
    folioswap run -m "$limit" --memory-scope resident --swap-max 0 "$@"
}
same() { # LIMIT COMMAND...: prints within the limit what it prints alone
    limit=$1
    shift
    "$@" >/tmp/alone || return
    within "$limit" -- "$@" >/tmp/within || return
    cat /tmp/within
    cmp /tmp/alone /tmp/within
}
refused() { # TEXT COMMAND...: ends with 125 and says so
    text=$1
    shift
    "$@" >/tmp/text 2>&1
    [ $? -eq 125 ] && grep -q -- "$text" /tmp/text
}
# `timeout` starts programs, not functions: this file is that program as well.
case ${1:-} in
    says | same | refused | within) "$@"; exit ;;
esac

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs -o mode=1777 tmp /tmp
for module in /folioswap/modules/*; do
    insmod "$module" || echo "no module $module"
done
mount -t ext4 /dev/vda /var/tmp && chmod 1777 /var/tmp || echo "there is no disk"
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
me=/folioswap/guest.sh

echo "=== $(uname -srm), page size $(getconf PAGESIZE), $(nproc) processors"
check "doctor says that run works" 120 $me says 'folioswap run. works here' folioswap doctor
cat /tmp/said
check "the demonstration: 96 MiB within 24" 900 $me within 24M --stats -- four-times 96
cat /tmp/said
check "order, random and changes, two threads" 900 $me same 24M acc-touch --size 64M --kind mixed --phases fill,reread,random,verify \
    --touches 2000 --threads 2
check "two processes" 900 $me same 32M acc-touch --size 48M --kind mixed --phases fill,reread,verify --processes 2
check "huge pages" 900 $me same 24M acc-touch --size 64M --kind 2 --phases fill,reread,verify --huge yes
for form in execl execl-short execle execlp execv execve execvp execvpe fexecve execveat posix_spawn vfork system popen; do
    check "exec by $form stays managed" 300 $me says "ok $form" "$me" within 16M -- forms $form 24
done
for case in generations threads raw-clone spawn; do
    check "fork: $case" 900 $me within 40M -- fork $case 64
done
check "Python: an array larger than the limit" 900 $me says 'sum 50331648' "$me" within 32M -- \
    python3 -c 'a = bytearray(b"\1") * (48 << 20); print("sum", sum(a[i] for i in range(0, len(a), 4096)) * 4096)'
check "a program for another processor is refused" 60 $me refused x86-64 folioswap run -m 32M -- foreign
check "the C library: sort" 900 sort-example
for binary in /folioswap/tests/*; do
    # The symbols of the agent are looked at where it was built.
    check "tests: ${binary##*/}" 1500 "$binary" --quiet --skip the_agent_takes_no_function
    grep -a '^test result' /tmp/said
done
[ -z "$failures" ] || echo "failed:$failures"
echo "$passed passed, $failed failed"
sync
# An init that ends would be a panic of the kernel's; this ends the machine.
echo o >/proc/sysrq-trigger
sleep 60
