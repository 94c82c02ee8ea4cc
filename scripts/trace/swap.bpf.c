// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints a line for each folio that reclaim writes to swap, each transfer of a block device, and each
// process that ends, with its memory group, into the trace buffer. kernel.sh compiles, loads and
// reads it, to_text.py makes a trace of it. The programs stand on typed tracepoints, so they need
// neither kprobes nor fentry, and the types are those of the running kernel's BTF (vmlinux.h).
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// In a swap entry the device's number is above this bit, the offset below.
#define TYPE_SHIFT 58
#define OFFSET_MASK ((1ULL << TYPE_SHIFT) - 1)
#define HEAD_BIT 6
#define OPERATION_MASK 0xff

static __always_inline unsigned int order_of(struct folio *folio)
{
    unsigned long flags = BPF_CORE_READ(folio, flags.f);
    if (!(flags >> HEAD_BIT & 1))
        return 0;
    return BPF_CORE_READ(folio, _flags_1) & 0xff;
}

SEC("tp_btf/mm_vmscan_write_folio")
int BPF_PROG(written, struct folio *folio)
{
    struct mem_cgroup *group = (void *)(BPF_CORE_READ(folio, memcg_data) & ~7UL);
    __u64 entry = BPF_CORE_READ(folio, swap.val);
    bpf_printk("FS out %llu %u %u %llu %llu %d %llu", bpf_ktime_get_ns(), bpf_get_smp_processor_id(),
               order_of(folio), entry >> TYPE_SHIFT, entry & OFFSET_MASK,
               group ? BPF_CORE_READ(group, id.id) : 0, (__u64)folio);
    return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(transfer, struct bio *bio)
{
    __u32 device = BPF_CORE_READ(bio, bi_bdev, bd_dev);
    __u64 sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
    __u32 bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
    // Operation 0 is a read.
    if ((BPF_CORE_READ(bio, bi_opf) & OPERATION_MASK) == 0)
        bpf_printk("FS in %llu %u %u:%u %llu %u", bpf_ktime_get_ns(), bpf_get_smp_processor_id(),
                   device >> 20, device & 0xfffff, sector / 8, bytes / 4096);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended, struct task_struct *task, bool last_thread)
{
    if (!last_thread)
        return 0;
    struct mem_cgroup *group = (void *)BPF_CORE_READ(task, cgroups, subsys[memory_cgrp_id]);
    bpf_printk("FS end %llu %u %d", bpf_ktime_get_ns(), bpf_get_smp_processor_id(),
               BPF_CORE_READ(group, id.id));
    return 0;
}

// The helpers that read the kernel's memory are for programs under this licence.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
