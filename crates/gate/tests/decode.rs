//! The decoder of lengths beside another one: on random bytes, and on the text of this machine's
//! programs and libraries.
#![cfg(target_arch = "x86_64")]

use folioswap_gate::rewrite::decode::{Kind, decode};
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind};
use object::{Object, ObjectSection, SectionKind};

/// What the decoders say of the same bytes.
enum Verdict {
    Agree,
    /// Ours does not know the instruction: no harm.
    Unknown,
}

fn compare(bytes: &[u8]) -> Verdict {
    let Ok(ours) = decode(bytes) else { return Verdict::Unknown };
    let mut decoder = Decoder::with_ip(64, bytes, 0x1000_0000, DecoderOptions::NONE);
    let theirs = decoder.decode();
    if theirs.code() == Code::INVALID {
        // What a processor refuses is never reached: its length does not matter.
        return Verdict::Unknown;
    }
    let shown = &bytes[..bytes.len().min(15)];
    assert_eq!(ours.length, theirs.len(), "{shown:02x?} {:?}", theirs.code());
    if theirs.is_ip_rel_memory_operand() {
        let offsets = decoder.get_constant_offsets(&theirs);
        match ours.kind {
            Kind::Relative(at) => assert_eq!(at as usize, offsets.displacement_offset(), "{shown:02x?}"),
            Kind::Fixed => {}
            _ => panic!("{shown:02x?} {:?}: {:?}", theirs.code(), ours.kind),
        }
    }
    let near =
        matches!(theirs.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16);
    use Mnemonic::{
        Call, Int, Int1, Int3, Iret, Iretq, Jmp, Loop, Loope, Loopne, Ret, Retf, Syscall, Xbegin,
    };
    match theirs.mnemonic() {
        Ret if ours.kind == Kind::Return => {}
        Call
        | Ret
        | Retf
        | Int
        | Int1
        | Int3
        | Iret
        | Iretq
        | Loop
        | Loope
        | Loopne
        | Syscall
        | Xbegin
        | Mnemonic::Jrcxz
        | Mnemonic::Jecxz
        | Mnemonic::Sysenter
        | Mnemonic::Ud2 => {
            assert_eq!(ours.kind, Kind::Fixed, "{shown:02x?} {:?}", theirs.code());
        }
        Jmp if !near => assert_eq!(ours.kind, Kind::Fixed, "{shown:02x?}"),
        _ if near => match ours.kind {
            Kind::Jump(distance) | Kind::Branch(_, distance) => {
                let target = theirs.next_ip().wrapping_add_signed(distance as i64);
                assert_eq!(target, theirs.near_branch_target(), "{shown:02x?}");
            }
            Kind::Fixed => {}
            _ => panic!("{shown:02x?} {:?}: {:?}", theirs.code(), ours.kind),
        },
        _ => assert!(!matches!(ours.kind, Kind::Jump(_) | Kind::Branch(..) | Kind::Return), "{shown:02x?}"),
    }
    Verdict::Agree
}

#[test]
fn lengths_of_random_bytes_are_right() {
    let rounds = if std::env::var_os("FOLIOSWAP_LONG").is_some() { 100_000_000 } else { 3_000_000 };
    let mut state = 0x6174_6567_6174_6567u64;
    let (mut agree, mut unknown) = (0u64, 0u64);
    for _ in 0..rounds {
        let mut bytes = [0u8; 16];
        for half in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            half.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        match compare(&bytes) {
            Verdict::Agree => agree += 1,
            Verdict::Unknown => unknown += 1,
        }
    }
    println!("{agree} agree, {unknown} unknown or invalid");
    assert!(agree > rounds / 2);
}

#[test]
fn lengths_in_programs_and_libraries_are_right() {
    let long = std::env::var_os("FOLIOSWAP_LONG").is_some();
    let mut files = vec![std::env::current_exe().expect("a path")];
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/bin/python3",
        "/usr/bin/perl",
        "/usr/bin/git",
        "/usr/bin/bash",
    ] {
        files.push(path.into());
    }
    if long {
        files.extend(["/usr/bin/node", "/usr/lib/jvm/default-java/lib/server/libjvm.so"].map(Into::into));
    }
    let (mut agree, mut unknown) = (0u64, 0u64);
    for path in files {
        let Ok(bytes) = std::fs::read(&path) else {
            println!("not here: {}", path.display());
            continue;
        };
        let file = object::File::parse(&*bytes).expect("ELF");
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            let text = section.data().expect("its bytes");
            let mut decoder = Decoder::with_ip(64, text, 0, DecoderOptions::NONE);
            while decoder.can_decode() {
                let at = decoder.position();
                let theirs = decoder.decode();
                if theirs.code() == Code::INVALID {
                    continue;
                }
                match compare(&text[at..]) {
                    Verdict::Agree => agree += 1,
                    Verdict::Unknown => unknown += 1,
                }
            }
        }
    }
    println!("{agree} agree, {unknown} unknown");
    assert!(agree > 100_000 && unknown * 1000 < agree, "{agree} {unknown}");
}
