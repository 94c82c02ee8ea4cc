//! The arguments of `mount` and `umount`.

use clap::{Args, ValueEnum, ValueHint, builder::TypedValueParser};
use folioswap_supervisor::{
    size,
    swap_option::{self, SwapOption},
};
use folioswap_tmpfs::HugePolicy;
use std::path::PathBuf;

const MOUNT_EXAMPLES: &str = "\
Examples:
  folioswap mount /mnt/build --memory 1G
        a tmpfs whose contents live in 1 GiB; what is cold is compressed, then
        goes to a file
  folioswap mount /mnt/build --memory 1G --size 8G --huge always && make -C
      /mnt/build -j4
        ... of at most 8 GiB of contents, in large folios
  folioswap mount ~/scratch -m 256M --swap-max 0
        compressed memory only, no file; without root it takes fusermount3
        (package fuse3)
  folioswap mount /mnt/db -m 1G --swap zram,prio=1 --swap
      file:/mnt/fast,size=20G,prio=0
        the file behind the compressed memory lies there
  folioswap mount /mnt/db -m 1G --swap file:/dev/nvme1n1,prio=2 --swap
      file:/var/tmp,prio=1
        a block device prepared with `folioswap mkswap`, then a file; nothing
        is compressed
  folioswap swapoff /mnt/db /dev/nvme1n1
        what is on it is read back, and it is closed, while the mount is in
        use
  folioswap mount /mnt/x -m 1G --foreground
        stay in the foreground; Ctrl-C unmounts
  folioswap stats /mnt/build
        figures of a mount; `folioswap set` changes its limits
  folioswap umount /mnt/build
        unmount; the contents are gone

The limit holds for the daemon and for what the kernel's page cache has of the
mount. When contents find no room in memory, in the compressed store or in the
file, or would be more than SIZE, a write fails with ENOSPC, as on any tmpfs.

DEVICE is written as for `folioswap run`: zram, ram,size=SIZE, file:TARGET or
nbd://HOST/EXPORT, with size=, prio= and so on. Higher priorities are used
first, equal ones in turn. ram is memory beside --memory. SIZE is bytes or has
a unit: 512M, 1.5G, 1GiB (all of them binary: 512M is 512 MiB).

SIGTERM and SIGINT to the daemon unmount; where files are still open, it
serves them to their end. Exit status: 0 when it is mounted, 125 when not (one
message says why).";

const UMOUNT_EXAMPLES: &str = "\
Examples:
  folioswap umount /mnt/build
  folioswap umount --lazy /mnt/build
        takes it out of the tree now, and ends when the last file in it is
        closed

It also removes what is left when a daemon was killed (accesses then end with
\"Transport endpoint is not connected\"). Exit status: 0 when it is unmounted,
125 when not (one message says why).";

/// The folios in which contents come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum HugeArgument {
    /// Pages of 4 KiB
    #[default]
    Never,
    /// The largest folios, of up to 2 MiB, that lie within what is written
    Always,
    /// The same, but not beyond the end of the file
    WithinSize,
    /// As never: over FUSE a program's advice does not reach the daemon
    Advise,
}

impl From<HugeArgument> for HugePolicy {
    fn from(argument: HugeArgument) -> HugePolicy {
        match argument {
            HugeArgument::Never => HugePolicy::Never,
            HugeArgument::Always => HugePolicy::Always,
            HugeArgument::WithinSize => HugePolicy::WithinSize,
            HugeArgument::Advise => HugePolicy::Advise,
        }
    }
}

#[derive(Args)]
#[command(after_help = MOUNT_EXAMPLES)]
pub struct MountArguments {
    /// Directory to mount on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Limit of the daemon and of the kernel's page cache of the mount; at least 32M
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub memory: u64,
    /// The most contents [default: half of this machine's RAM]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max)]
    pub size: Option<u64>,
    /// The most files, directories and other inodes [default: half as many as this machine's RAM
    /// has pages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub inodes: Option<u64>,
    /// Folios that contents come in, as the mount option of tmpfs
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub huge: HugeArgument,
    /// Swap device, in place of the built-in ones: zram | ram,size=S | file:TARGET |
    /// nbd://HOST/EXPORT; repeatable (see below)
    #[arg(long, value_name = "DEVICE", value_parser = clap::builder::OsStringValueParser::new().try_map(|value| swap_option::parse(&value)))]
    pub swap: Vec<SwapOption>,
    /// Tiers that take pages, as the priorities of their devices: 10,0 [default: all]; others wait
    /// for `folioswap set --swap-tiers`
    #[arg(long, value_name = "TIERS", value_parser = crate::swap_tiers::parse, allow_hyphen_values = true)]
    pub swap_tiers: Option<String>,
    /// Directory of the built-in (unlinked) swap file [default: /var/tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub swap_dir: Option<PathBuf>,
    /// Most that the built-in swap file may take; 0: no file [default: half of the free space of
    /// its disk]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max)]
    pub swap_max: Option<u64>,
    /// Permissions of the root directory, in octal
    #[arg(long, value_name = "MODE", default_value = "1777", value_parser = parse_mode)]
    pub mode: u16,
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,
    /// read(2) and write(2) go past the kernel's page cache: faster in large pieces, slower in
    /// small ones
    #[arg(long)]
    pub direct: bool,
}

#[derive(Args)]
#[command(after_help = UMOUNT_EXAMPLES)]
pub struct UmountArguments {
    /// Directory that is mounted on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Take it out of the tree now, even when files in it are open
    #[arg(short, long)]
    pub lazy: bool,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not permissions; write up to four octal digits, e.g. 1777 or 755".to_owned()),
    }
}

#[cfg(test)]
mod tests;
