//! The owner of the data on a file or block device, recognised by the signatures that file systems
//! and volume managers leave.
//!
//! The result only names the owner. Whether a device may be overwritten depends on whether it is
//! blank ([`is_blank`]), so a format that is missing from this table is safe too. Offsets and
//! values are those of the formats' own documentation, as wipefs(8) and blkid(8) look for them.

/// Bytes read from the start: the signatures of btrfs and ZFS lie farthest from it.
pub const START_BYTES: usize = 1 << 20;
/// Bytes read from the end: the second copy of a GPT and the signatures of older RAID lie there.
pub const END_BYTES: usize = 128 << 10;

struct Signature {
    name: &'static str,
    at: usize,
    bytes: &'static [u8],
}

const fn signature(name: &'static str, at: usize, bytes: &'static [u8]) -> Signature {
    Signature { name, at, bytes }
}

/// Signatures in the first [`START_BYTES`]. The more specific ones come first, because a file
/// system may follow a stale boot sector.
const SIGNATURES: &[Signature] = &[
    signature("a LUKS volume", 0, b"LUKS\xba\xbe"),
    signature("an XFS file system", 0, b"XFSB"),
    signature("a squashfs image", 0, b"hsqs"),
    signature("a qcow2 image", 0, b"QFI\xfb"),
    signature("a Ceph BlueStore device", 0, b"bluestore block device"),
    signature("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    signature("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xef"),
    signature("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    signature("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    signature(
        "a bcache or bcachefs device",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    signature("a Linux RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    signature("a Linux RAID member", 4096, b"\xfc\x4e\x2b\xa9"),
    signature("an LVM physical volume", 0, b"LABELONE"),
    signature("an LVM physical volume", 512, b"LABELONE"),
    signature("an LVM physical volume", 1024, b"LABELONE"),
    signature("an LVM physical volume", 1536, b"LABELONE"),
    signature("an ISO 9660 image", 32769, b"CD001"),
    signature("an NTFS file system", 3, b"NTFS    "),
    signature("an exFAT file system", 3, b"EXFAT   "),
    signature("a FAT file system", 54, b"FAT1"),
    signature("a FAT file system", 82, b"FAT32"),
    signature("a partition table (GPT)", 512, b"EFI PART"),
    signature("a partition table (GPT)", 4096, b"EFI PART"),
    signature("a partition table (MBR)", 510, b"\x55\xaa"),
];

/// Page sizes of machines whose swap space this could be.
const SWAP_PAGES: [usize; 4] = [4096, 8192, 16384, 65536];
/// The uberblocks of a ZFS label lie here, one per KiB.
const UBERBLOCKS: core::ops::Range<usize> = 128 << 10..256 << 10;
const UBERBLOCK_MAGIC: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();

/// The owner of the data that begin with `start`, the first [`START_BYTES`] of the device or all of
/// a shorter one; `None` when no signature is known.
pub fn name(start: &[u8]) -> Option<&'static str> {
    let has = |at: usize, bytes: &[u8]| start.get(at..at + bytes.len()) == Some(bytes);
    for page in SWAP_PAGES {
        if has(page - 10, b"SWAPSPACE2") || has(page - 10, b"SWAP-SPACE") {
            return Some("swap space of the kernel (mkswap(8))");
        }
        if has(page - 10, b"S1SUSPEND\0") || has(page - 10, b"ULSUSPEND\0") {
            return Some("a hibernated system");
        }
    }
    if UBERBLOCKS.step_by(1024).any(|at| has(at, &UBERBLOCK_MAGIC)) {
        return Some("a ZFS pool member");
    }
    SIGNATURES.iter().find(|known| has(known.at, known.bytes)).map(|known| known.name)
}

/// Whether both ends hold nothing but zeroes. The bytes between them are not known.
pub fn is_blank(start: &[u8], end: &[u8]) -> bool {
    start.iter().chain(end).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
