//! The decoder of lengths beside another one: on random bytes, and on the text of this machine's
//! programs and libraries.
#![cfg(target_arch = "x86_64")]

use folioswap_gate::inside::for_each_site;
use folioswap_gate::rewrite::decode::{Kind, decode};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
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

/// Calls `see` with the name of each of some programs and libraries of this machine, and a text of
/// it.
fn for_each_text(mut see: impl FnMut(&str, &[u8])) {
    let own = std::env::current_exe().expect("a path");
    let mut files = vec![own.to_str().expect("a name")];
    files.extend([
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/bin/python3",
        "/usr/bin/perl",
        "/usr/bin/git",
        "/usr/bin/bash",
    ]);
    if std::env::var_os("FOLIOSWAP_LONG").is_some() {
        files.extend(["/usr/bin/node", "/usr/lib/jvm/default-java/lib/server/libjvm.so"]);
    }
    for path in files {
        let Ok(bytes) = std::fs::read(path) else {
            println!("not here: {path}");
            continue;
        };
        let file = object::File::parse(&*bytes).expect("ELF");
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            see(path, section.data().expect("its bytes"));
        }
    }
}

/// Calls `see` with the instructions of a text, and where they are.
fn for_each_instruction(text: &[u8], mut see: impl FnMut(usize, &Instruction)) {
    let mut decoder = Decoder::with_ip(64, text, 0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let at = decoder.position();
        see(at, &decoder.decode());
    }
}

/// Where a library's code is searched for calls, all of them are found, and nothing else; what
/// looks like one among data, which the C library's text does not have, may be.
#[test]
fn sites_of_programs_and_libraries_are_found() {
    let mut of_library = 0;
    for_each_text(|path, text| {
        let (mut there, mut found, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for_each_instruction(text, |at, it| match it.mnemonic() {
            Mnemonic::Syscall => there.push(at + 2),
            Mnemonic::INVALID => data.push(at),
            _ => {}
        });
        let is_in_data = |at: usize| {
            let next = data.partition_point(|data| *data + 64 < at);
            !path.contains("libc.so") && data.get(next).is_some_and(|data| *data < at + 64)
        };
        for_each_site(text, |behind| found.push(behind));
        found.retain(|behind| there.contains(behind) || !is_in_data(*behind));
        assert_eq!(found, there, "{path}");
        of_library += if path.contains("libc.so") { there.len() } else { 0 };
    });
    println!("{of_library} in the C library");
    assert!(of_library > 300 || !std::path::Path::new("/lib/x86_64-linux-gnu/libc.so.6").exists());
}

#[test]
fn lengths_in_programs_and_libraries_are_right() {
    let (mut agree, mut unknown) = (0u64, 0u64);
    for_each_text(|_, text| {
        for_each_instruction(text, |at, theirs| {
            if theirs.code() != Code::INVALID {
                match compare(&text[at..]) {
                    Verdict::Agree => agree += 1,
                    Verdict::Unknown => unknown += 1,
                }
            }
        });
    });
    println!("{agree} agree, {unknown} unknown");
    assert!(agree > 100_000 && unknown * 1000 < agree, "{agree} {unknown}");
}
